"""fuse: neighbouring computing nodes of one state become one node with one program.

A CPU pays for every queue hop, so Concat -> Linear -> ReLU should be one frame; an FPGA maps the fine-grained
graph instead. Two nodes fuse where the first has a single out-port that leads straight into the second
(so both fire for the same states) and at most one of them owns parameters; the fused node takes the owner's
name, so parameters, update rules and checkpoints stay where they were. A Group takes in what is computed from
its rows alone. A computing node that then gets one message at several ports gets it once. Where `sinks` says
so, a Loss takes in what leads to it alone: an owner's name is the fused node's, and what it reports is told
of the Loss as before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from amphw.ir.check import infer
from amphw.ir.expr import ROWS, Const, Op
from amphw.ir.graph import Graph
from amphw.ir.grouping import Group
from amphw.ir.nodes import NPT, PPT, Concat, Loss, Node, OwningLoss, Split, Transform
from amphw.ir.primitives import ValueType
from amphw.ir.program import Builder, Program, Value
from amphw.ir.routing import Bcast


def fuse(
    graph: Graph,
    apart: Collection[str] = (),
    homes: Mapping[str, str] = MappingProxyType({}),
    sinks: bool = False,
) -> Graph:
    """The graph with every such pair fused, repeatedly.

    apart: nodes that stay as they are. homes: where nodes are; only those of one place are fused. sinks:
    whether losses are fused with what leads to them, for executors that compute both.
    """
    typed = infer(graph)
    nodes: dict[str, Node] = {}
    for name, node in graph.nodes.items():
        program = typed.behaviours[name].program
        if isinstance(node, Concat | Split) and program is not None and name not in apart:
            node = NPT(name, program)
        elif isinstance(node, Group):
            node = replace(node, program=program)
        nodes[name] = node
    # Port names of Concat and Split survive: their programs' inputs and outputs carry them.
    edges = dict(graph.edges)
    region_of = dict(graph.region_of)
    losses = {name: node for name, node in nodes.items() if isinstance(node, Loss)}
    apart = {*apart, *(name for name, loss in losses.items() if not (sinks and loss.trains))}
    while True:
        if (pair := _candidate(nodes, edges, apart, homes)) is not None:
            _merge(nodes, edges, region_of, *pair)
        elif (double := _doubled(nodes, edges, apart)) is not None:
            _unify(nodes, edges, region_of, *double)
        else:
            break
    return _rebuilt(graph, nodes, edges, region_of)


def _candidate(
    nodes: dict[str, Node],
    edges: dict[tuple[str, str], tuple[str, str]],
    apart: Collection[str],
    homes: Mapping[str, str],
) -> tuple[str, str, str] | None:
    for (first, _), (second, port) in edges.items():
        if first in apart or second in apart or homes.get(first) != homes.get(second):
            continue
        a, b = nodes[first], nodes[second]
        if first == second or not isinstance(b, Transform | Loss) or len(a.outs) != 1:
            continue
        if isinstance(a, Transform) and _worthwhile(a, b):
            return first, second, port
        if isinstance(a, Group) and isinstance(b, Transform) and _gathers_for(a, b):
            return first, second, port
    return None


def _gathers_for(a: Group, b: Transform) -> bool:
    """Whether the Group can compute what follows it, whose spaces of one row a message become its own."""
    assert a.program is not None
    opens = [rows for _, rows in b.program.spaces]
    if len(b.ins) != 1 or len(b.outs) != 1 or any(rows != Const(1) or a.init for rows in opens):
        return False
    # Intervals count gradient rows, a Group's firings: an owner may join it only where it has as many.
    return not b.params or (not a.params and a.program.outputs_types[0].space == "rows")


def _worthwhile(a: Transform, b: Transform | Loss) -> bool:
    if not _in_proportion(a.program) or not _in_proportion(b.program):
        return False  # a node that opens row spaces of its own stays as it is
    if a.params:
        # An owner must not wait for operands that only its follower needs: it would lose its own batching.
        return not b.params and len(b.ins) == 1
    return True


def _in_proportion(program: Program) -> bool:
    """Whether the spaces that it opens have rows in proportion to its message, and its results are in "rows".

    Both nodes' messages then have the same rows, and a space of one name is one of equal size in both.
    """
    multiples = all(e == ROWS or (isinstance(e, Op) and e.children[0] == ROWS) for _, e in program.spaces)
    return multiples and all(t.space == "rows" for t in program.outputs_types)


def _merge(
    nodes: dict[str, Node],
    edges: dict[tuple[str, str], tuple[str, str]],
    region_of: dict[str, str],
    first: str,
    second: str,
    port: str,
) -> None:
    a, b = nodes[first], nodes[second]
    assert isinstance(a, Transform | Group) and isinstance(b, Transform | Loss) and a.program is not None
    taken = {p for p in b.ins if p != port}
    rename = {p: p if p not in taken else f"{first}_{p}" for p in a.ins}
    merged: Node
    if isinstance(b, Loss):
        program = inlined(a.program, b.program, port, rename)
        name = first if a.params else second
        merged = OwningLoss(name, program, b.names, b.name) if a.params else replace(b, program=program)
    elif isinstance(a, Group):
        # Its owner's name, else its own: what gathers is what a reader looks for.
        name = second if b.params else first
        (gathered,) = a.program.outputs_types
        spaces = {"rows": gathered.space, **{opened: "rows" for opened, _ in b.program.spaces}}
        merged = replace(a, name=name, program=inlined(a.program, b.program, port, rename, spaces))
    else:
        program = inlined(a.program, b.program, port, rename)
        name = first if a.params else second
        merged = (PPT if program.params else NPT)(name, program)
    new_edges: dict[tuple[str, str], tuple[str, str]] = {}
    for (source, out), (target, into) in edges.items():
        if source == first:
            continue  # the inner edge
        if target == first:
            target, into = name, rename[into]
        elif target == second:
            target = name
        new_edges[(name if source == second else source, out)] = (target, into)
    edges.clear()
    edges.update(new_edges)
    region = region_of.get(first if isinstance(a, Group) else second)
    for gone in (first, second):
        region_of.pop(gone, None)
    if region is not None:
        region_of[name] = region
    order = [name if n == second else n for n in nodes if n != first]
    old = dict(nodes)
    nodes.clear()
    nodes.update({n: merged if n == name else old[n] for n in order})


def _doubled(
    nodes: dict[str, Node], edges: dict[tuple[str, str], tuple[str, str]], apart: Collection[str]
) -> tuple[tuple[str, str], str] | None:
    """A way from a Bcast into a node that has one from there already: its beginning, and the other's port."""
    found: dict[tuple[str, str], str] = {}
    for (fork, out), (target, port) in edges.items():
        reads = isinstance(nodes[target], Transform | Loss) and target not in apart
        if not isinstance(nodes[fork], Bcast) or not reads:
            continue
        if (fork, target) in found:
            return (fork, out), found[fork, target]
        found[fork, target] = port
    return None


def _unify(
    nodes: dict[str, Node],
    edges: dict[tuple[str, str], tuple[str, str]],
    region_of: dict[str, str],
    way: tuple[str, str],
    port: str,
) -> None:
    """Have the node read what comes that way from its other port; a Bcast with one way left goes."""
    target, gone = edges.pop(way)
    node, fork = nodes[target], way[0]
    assert isinstance(node, Transform | Loss)
    program = node.program
    builder = Builder(program.params)
    builder.spaces.update(dict(program.spaces))
    read = {name: builder.input(name, t) for name, t in program.inputs if name != gone}
    operands = [read[port if name == gone else name] for name, _ in program.inputs]
    nodes[target] = replace(node, program=builder.build(replay(program, builder, operands)))
    left = [edges.pop(edge) for edge in [e for e in edges if e[0] == fork]]
    if len(left) > 1:
        nodes[fork] = Bcast(fork, len(left))
        edges.update({(fork, f"out{k}"): to for k, to in enumerate(left)})
        return
    (before,) = (edge for edge, to in edges.items() if to[0] == fork)
    (edges[before],) = left
    del nodes[fork]
    region_of.pop(fork, None)


def inlined(
    inner: Program,
    outer: Program,
    port: str,
    rename: dict[str, str],
    spaces: Mapping[str, str] | None = None,
) -> Program:
    """`outer` with its operand `port` computed by `inner` (of one output).

    spaces: outer's row spaces by the names that they have in inner.
    """
    builder = Builder([*inner.params, *outer.params])
    builder.spaces.update(dict(inner.spaces))
    builder.spaces.update({name: rows for name, rows in outer.spaces if name not in (spaces or {})})
    values: dict[str, Value] = {}
    for name, t in outer.inputs:
        if name == port:
            for inner_name, inner_type in inner.inputs:
                values[f"inner:{inner_name}"] = builder.input(rename[inner_name], inner_type)
        else:
            values[name] = builder.input(name, t)
    (result,) = replay(inner, builder, [values[f"inner:{n}"] for n, _ in inner.inputs])
    arguments = [result if n == port else values[n] for n, _ in outer.inputs]
    return builder.build(replay(outer, builder, arguments, spaces or {}))


def replay(
    program: Program, builder: Builder, inputs: Sequence[Value], spaces: Mapping[str, str] | None = None
) -> list[Value]:
    """Record the program's instructions once more, on other inputs -> its outputs there."""
    to = spaces or {}
    for value, (_, t) in zip(inputs, program.inputs, strict=True):
        assert value.type == ValueType(t.kind, to.get(t.space, t.space), t.width), (value.type, t)
    values = [*inputs, *(builder.integer(e, to.get(space, space)) for e, space in program.ints)]
    for instr in program.instrs:
        attrs = {k: to.get(v, v) if k in {"space", "source"} else v for k, v in instr.attr().items()}
        values.append(builder.emit(instr.op, [values[a] for a in instr.args], **attrs))
    return [values[o] for o in program.outputs]


def _rebuilt(
    graph: Graph,
    nodes: dict[str, Node],
    edges: dict[tuple[str, str], tuple[str, str]],
    region_of: dict[str, str],
) -> Graph:
    out = graph.empty_copy()
    for node in nodes.values():
        out.add(node)
    out.region_of = dict(region_of)
    for (source, port), (target, into) in edges.items():
        # A single out-port of a fused node is called "out", whatever it was before.
        ports = nodes[source].outs
        out.connect(f"{source}.{port if port in ports else ports[0]}", f"{target}.{into}")
    return out
