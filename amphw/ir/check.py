"""Static checks: everything that can be known to be wrong before anything runs.

`infer` types every edge and returns each node's behaviour. Errors name node, port and field.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amphw.ir.algebra import simplify
from amphw.ir.behaviour import Behaviour, EdgeType
from amphw.ir.errors import GraphError, ProgramError
from amphw.ir.expr import Const, Expr, attrs_of, fields_of, tables_of
from amphw.ir.graph import Graph, PortRef
from amphw.ir.grouping import Group
from amphw.ir.nodes import Source
from amphw.ir.primitives.images import Windows
from amphw.ir.routing import Flatmap, Isu, Phi, Ungroup


@dataclass(frozen=True)
class Typed:
    """A checked graph: behaviours by node, types by out-port."""

    graph: Graph
    behaviours: dict[str, Behaviour]
    edges: dict[PortRef, EdgeType]

    def into(self, node: str, port: str) -> EdgeType:
        """The type of the edge that enters an in-port."""
        return self.edges[self.graph.sources_of[(node, port)]]

    def __str__(self) -> str:
        return self.graph.written(self.edges)


def infer(graph: Graph) -> Typed:
    """Run every check; raises GraphError at the first fault."""
    _connections(graph)
    order = _reachable(graph)
    _loops(graph)
    typed = _types(graph, order)
    for (node, port), edge in typed.edges.items():
        _edge(graph, node, port, edge)
    _schema(graph)
    _names(graph, typed)
    _row_spaces(typed)
    return typed


def _connections(graph: Graph) -> None:
    if not any(isinstance(n, Source) for n in graph.nodes.values()):
        raise GraphError(f"the graph '{graph.name}' has no Source, so nothing would ever run")
    for name, node in graph.nodes.items():
        for port in node.ins:
            if (name, port) not in graph.sources_of:
                raise GraphError("nothing is connected to this in-port", node=name, port=port)
        for port in node.outs:
            if (name, port) not in graph.edges:
                raise GraphError(
                    "this out-port goes nowhere; connect it, or put a Discard behind it", node=name, port=port
                )


def _reachable(graph: Graph) -> list[str]:
    seen: list[str] = [n for n, node in graph.nodes.items() if isinstance(node, Source)]
    queue = deque(seen)
    while queue:
        for follower in graph.successors(queue.popleft()):
            if follower not in seen:
                seen.append(follower)
                queue.append(follower)
    for name in graph.nodes:
        if name not in seen:
            raise GraphError("no path leads here from a Source", node=name)
    return seen


def components(graph: Graph) -> list[list[str]]:
    """Strongly connected components of more than one node, or with an edge to itself (Tarjan, iterative)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    out: list[list[str]] = []
    for root in graph.nodes:
        if root in index:
            continue
        work = [(root, iter(graph.successors(root)))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, successors = work[-1]
            for follower in successors:
                if follower not in index:
                    index[follower] = low[follower] = len(index)
                    stack.append(follower)
                    on_stack.add(follower)
                    work.append((follower, iter(graph.successors(follower))))
                    break
                if follower in on_stack:
                    low[node] = min(low[node], index[follower])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        group.append(member)
                        if member == node:
                            break
                    if len(group) > 1 or node in graph.successors(node):
                        out.append(sorted(group))
    return out


def _loops(graph: Graph) -> None:
    for group in components(graph):
        inside = set(group)
        phis = [n for n in group if isinstance(graph.nodes[n], Phi)]
        where = phis[0] if phis else group[0]
        if not any(follower not in inside for n in group for follower in graph.successors(n)):
            raise GraphError(
                f"a loop without exit: {', '.join(group)}; a Cond must lead out of it", node=where
            )
        if not phis:
            raise GraphError(
                f"a loop without entry: {', '.join(group)}; a Phi must let messages in", node=where
            )
        _changes_state(graph, inside, where)


def _changes_state(graph: Graph, inside: set[str], where: str) -> None:
    """Every turn of a loop must change the state, or one state would occur twice at a port."""
    rest = {n for n in inside if not isinstance(graph.nodes[n], Isu | Group | Flatmap | Ungroup)}
    colour: dict[str, int] = {}
    for root in sorted(rest):
        stack = [(root, False)]
        while stack:
            node, done = stack.pop()
            if done:
                colour[node] = 2
            elif colour.get(node, 0) == 0:
                colour[node] = 1
                stack.append((node, True))
                for follower in graph.successors(node):
                    if follower in rest and colour.get(follower, 0) == 1:
                        raise GraphError(
                            "a loop that never changes its state; an Isu must count or step", node=where
                        )
                    if follower in rest and colour.get(follower, 0) == 0:
                        stack.append((follower, False))


def _types(graph: Graph, order: list[str]) -> Typed:
    rules = graph.schema.rules()
    edges: dict[PortRef, EdgeType] = {}
    behaviours: dict[str, Behaviour] = {}
    inferred: dict[str, dict[str, EdgeType]] = {}
    waiting = deque(order)
    while waiting:
        name = waiting.popleft()
        node = graph.nodes[name]
        present = {
            p: edges[graph.sources_of[(name, p)]] for p in node.ins if graph.sources_of[(name, p)] in edges
        }
        # A Phi starts with what it has, and is typed again when the loop's back edge is.
        enough = bool(present) if isinstance(node, Phi) else len(present) == len(node.ins)
        if not enough or inferred.get(name) == present:
            continue
        inferred[name] = present
        try:
            behaviours[name], outs = node.infer(present, rules)
        except ProgramError as error:
            raise GraphError(str(error), node=name) from error
        for port, edge in outs.items():
            if edges.get((name, port)) != edge:
                edges[(name, port)] = edge
                waiting.append(graph.edges[(name, port)][0])
    # Report the join that waits rather than a Phi that is short of its back edge because of it.
    for name in sorted(order, key=lambda n: (isinstance(graph.nodes[n], Phi), n not in behaviours)):
        missing = [p for p in graph.nodes[name].ins if graph.sources_of[(name, p)] not in edges]
        if missing and len(missing) < len(graph.nodes[name].ins):
            raise GraphError(
                "waits for an operand that only comes around its own loop; enter the loop through a Phi",
                node=name,
                port=missing[0],
            )
    return Typed(graph, behaviours, edges)


def _edge(graph: Graph, node: str, port: str, edge: EdgeType) -> None:
    for f in edge.state.fields:
        if f.bound < 1:
            raise GraphError(
                f"its extent '{f.extent}' has no static bound; declare one (bound=...), and what happens "
                "there",
                node=node,
                port=port,
                field=f.name,
            )
    follower = graph.edges[(node, port)][0]
    left = set(graph.ancestors(node)) - set(graph.ancestors(follower))
    for name in sorted(left):
        for field in graph.regions[name].fields:
            if field in edge.state.names:
                raise GraphError(
                    f"the edge to '{follower}' leaves the region '{name}' and still carries its field; "
                    "drop it first",
                    node=node,
                    port=port,
                    field=field,
                )


def _names(graph: Graph, typed: Typed) -> None:
    """Expressions may read only attributes and tables that the schema declares."""
    attrs, tables = {*graph.schema.attrs, "instance"}, set(graph.schema.tables)
    for name, b in typed.behaviours.items():
        expressions = [e for r in b.receives for _, e in r.key]
        expressions += [x for r in b.receives for x in (r.member, r.count) if x is not None]
        expressions += [e for m in b.emits for _, e in m.state] + [
            m.guard for m in b.emits if m.guard is not None
        ]
        expressions += [e for _, e in b.spaces] + [f.extent for f in b.state.fields]
        expressions += [f.extent for m in b.emits for f in m.expand]
        expressions += [e for e, _ in b.program.ints] if b.program else []
        for e in expressions:
            for missing in sorted(attrs_of(e) - attrs):
                raise GraphError(
                    f"'{e}' reads the attribute '{missing}', which the schema does not declare", node=name
                )
            for missing in sorted(tables_of(e) - tables):
                raise GraphError(
                    f"'{e}' reads the table '{missing}', which the schema does not declare", node=name
                )
        for m in b.emits:
            if m.data is not None and m.data not in graph.schema.data:
                raise GraphError(
                    f"reads the data array '{m.data}', which the schema does not declare",
                    node=name,
                    port=m.port,
                )
            readable = {*b.state.names, *(f.name for f, _ in b.decides), *(f.name for f in m.expand)}
            if m.guard is not None and fields_of(m.guard) - readable:
                missing = sorted(fields_of(m.guard) - readable)[0]
                raise GraphError(
                    f"its guard '{m.guard}' reads a field that its state does not hold",
                    node=name,
                    port=m.port,
                    field=missing,
                )


def _row_spaces(typed: Typed) -> None:
    """Row counts read the firing state; what reduces to one row a message needs a space of one row."""
    for name, b in typed.behaviours.items():
        for space, rows in () if b.is_source else b.spaces:
            for missing in sorted(fields_of(rows) - set(b.state.names)):
                raise GraphError(
                    f"the row count '{rows}' of '{space}' reads a field that {b.state} does not hold",
                    node=name,
                    field=missing,
                )
        counts = dict(b.spaces)
        for instr in b.program.instrs if b.program else ():
            one = {"sum_rows": "space", "max_rows": "space", "spread_rows": "source"}.get(instr.op)
            if one is not None and simplify(counts[instr.attr()[one]]) != Const(1):
                space = instr.attr()[one]
                raise GraphError(
                    f"{instr.op} needs one row a message in '{space}', which has {counts[space]}", node=name
                )
            if instr.op in ("patches", "unpatch"):
                _windows(name, instr.op, instr.attr(), counts)


def _windows(node: str, op: str, attrs: dict[str, Any], counts: Mapping[str, Expr]) -> None:
    """The space of the windows has as many rows for each image as there are windows in one."""
    image, window = (attrs["source"], attrs["space"])[:: 1 if op == "patches" else -1]
    count = Windows.of(attrs).count
    if simplify(counts[window]) != simplify(counts[image] * count):
        raise GraphError(
            f"{op} has {count} windows for each of the {counts[image]} rows in '{image}', but '{window}' has "
            f"{counts[window]} rows",
            node=node,
        )


def _schema(graph: Graph) -> None:
    """Axioms and the shapes of tables may read only what the schema declares."""
    attrs, tables = {*graph.schema.attrs, "instance"}, set(graph.schema.tables)
    read = [(f"the table '{n}'", e) for n, t in graph.schema.tables.items() for e in (*t.shape, t.high)]
    for axiom in graph.schema.axioms:
        stated = [e for e in (axiom.left, axiom.right, axiom.where) if e is not None]
        for stray in sorted({n for e in stated for n in fields_of(e)} - {f.name for f in axiom.over}):
            raise GraphError(
                f"the axiom '{axiom.name}' reads a field that it is not stated over; add it to `over`",
                field=stray,
            )
        read += [(f"the axiom '{axiom.name}'", e) for e in (*stated, *(f.extent for f in axiom.over))]
    for what, e in read:
        for missing in sorted(attrs_of(e) - attrs):
            raise GraphError(f"{what} reads the attribute '{missing}', which the schema does not declare")
        for missing in sorted(tables_of(e) - tables):
            raise GraphError(f"{what} reads the table '{missing}', which the schema does not declare")
