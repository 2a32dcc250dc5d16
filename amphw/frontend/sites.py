"""One layer used in several places: its parameters have one owner, and each use is a call site.

The sites' states have different fields, so each message gets the number of its site and its fields renamed to
ones that all sites share, whose extents depend on the site. Behind the layer everything goes back. Where
sites call different functions of the layer, `alternatives` makes one program of these, with operands that are
as wide as the widest, and results of each function at out-ports of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from amphw.frontend.alternatives import Alternative, side_by_side
from amphw.frontend.index import Dim, dims_of
from amphw.frontend.source import FrontendError
from amphw.frontend.trace import Call, Trace
from amphw.ir import functions as f
from amphw.ir.behaviour import StateMap
from amphw.ir.expr import Const, Expr, Field, substitute, where
from amphw.ir.functions import concat
from amphw.ir.graph import PortRef
from amphw.ir.grouping import Group
from amphw.ir.nodes import NPT, PPT, Node
from amphw.ir.program import Program, Value
from amphw.ir.program import trace as traced_program
from amphw.ir.routing import Cond, Isu, Phi
from amphw.ir.state import FieldType


def share(trace: Trace, name: str, calls: Sequence[Call]) -> None:
    """Put one node in the place of those of all calls."""
    net = trace.net
    if len(calls) == 1:
        _rename(trace, calls[0].node, name)
        return
    for call in calls:
        if call.apart:
            _take_apart(trace, call, *call.apart)
    _lookups_by_number(trace, name, calls)
    shared = _shared_fields(name, calls)
    program, results = _program_of_all(name, trace, calls, shared)
    rows = _by_site(name, [_extent(call, shared) for call in calls])
    net.nodes[name] = PPT(name, program)
    net.places[name] = net.places[calls[0].node]
    ports = tuple(f"site{k}" for k in range(len(calls)))
    for j, (operand, t) in enumerate(program.inputs):
        phi = trace.name(f"{name}_{operand}")
        net.nodes[phi] = Phi(phi, ports, rows=None if rows == Const(1) else rows)
        net.places[phi] = net.places[name]
        for k, call in enumerate(calls):
            given = _operand(trace, name, call, j, t.width)
            enter = _beside(trace, call, Isu(trace.name(f"{name}_enter"), _enter(k, name, call, shared)))
            net.inputs[(enter, "in")] = given
            net.inputs[(phi, ports[k])] = (enter, "out")
        net.inputs[(name, operand)] = (phi, "out")
    moved: dict[PortRef, PortRef] = {}
    for number, out in enumerate(PPT(name, program).outs):
        back = trace.name(f"{name}_site?")
        net.nodes[back] = Cond(back, Field(f"{name}_site"), ports)
        net.places[back] = net.places[name]
        net.inputs[(back, "in")] = (name, out)
        for k, call in enumerate(calls):
            first, count = results[call.function]
            if not first <= number < first + count:
                continue  # without any row, and goes nowhere
            leave = _beside(trace, call, Isu(trace.name(f"{name}_leave"), _leave(name, call, shared)))
            net.inputs[(leave, "in")] = (back, ports[k])
            moved[(call.node, net.nodes[call.node].outs[number - first])] = (leave, "out")
    for into, source in net.inputs.items():
        net.inputs[into] = moved.get(source, source)
    for call in calls:
        _forget(trace, call.node)


def _take_apart(trace: Trace, call: Call, group: Group, layer: PPT) -> None:
    """A Group that computes the layer as one that only gathers, and the layer behind it."""
    net = trace.net
    opened, members = (net.inputs.pop((call.node, port)) for port in ("init", "in"))
    name = trace.name(f"{group.name.partition('@')[0]}_receive")
    net.nodes[name], net.nodes[call.node] = replace(group, name=name), layer
    net.places[name] = net.places[call.node]
    if call.node in net.region_of:
        net.region_of[name] = net.region_of[call.node]
    net.inputs[name, "init"] = net.inputs[call.node, layer.ins[0]] = opened
    net.inputs[name, "in"], net.inputs[call.node, layer.ins[1]] = members, (name, "out")


def _lookups_by_number(trace: Trace, name: str, calls: Sequence[Call]) -> None:
    """Where some uses of an embedding look up a number that the network chose, the Integers of the others
    come as numbers too: all uses are one program."""
    net = trace.net
    programs = [_program(trace, call) for call in calls]
    chosen = [p for p in programs if [i.op for i in p.instrs] == ["to_int", "take"]]
    for call, program in zip(calls, programs, strict=True):
        if not chosen or [i.op for i in program.instrs] != ["take"]:
            continue
        ((expr, _),), ((operand, t),) = program.ints, program.inputs
        number = trace.name(f"{name}_number")
        wide = traced_program(lambda u, e=expr: f.number(u, e), {operand: t.width})
        _beside(trace, call, NPT(number, wide))
        net.inputs[number, operand] = net.inputs[call.node, operand]
        net.inputs[call.node, operand] = (number, "out")
        net.nodes[call.node] = PPT(call.node, chosen[0])


def _program(trace: Trace, call: Call) -> Program:
    node = trace.net.nodes[call.node]
    assert isinstance(node, PPT)
    return node.program


def _shared_fields(name: str, calls: Sequence[Call]) -> list[FieldType]:
    """The site, and as many fields as the site with the most has; those that a site lacks are 0 there."""
    fields = [FieldType(f"{name}_site", Const(len(calls)), len(calls))]
    for j in range(max(len(dims_of(c.context)) for c in calls)):
        extents: list[Expr] = []
        bound = 1
        for call in calls:
            dims = dims_of(call.context)
            extents.append(substitute(dims[j].extent, _names(dims, name)) if j < len(dims) else Const(1))
            bound = max(bound, dims[j].bound if j < len(dims) else 1)
        fields.append(FieldType(f"{name}_{j}", _by_site(name, extents), bound))
    return fields


def _names(dims: Sequence[Dim], name: str) -> dict[str, Expr]:
    return {d.name: Field(f"{name}_{j}") for j, d in enumerate(dims)}


def _by_site(name: str, values: Sequence[Expr]) -> Expr:
    """The value that belongs to the site of the message."""
    result = values[-1]
    for k, value in reversed(list(enumerate(values[:-1]))):
        result = value if value == result else where(Field(f"{name}_site").eq(k), value, result)
    return result


def _extent(call: Call, shared: Sequence[FieldType]) -> Expr:
    name = shared[0].name.removesuffix("_site")
    return substitute(call.rows.extent, _names(dims_of(call.context), name)) if call.rows else Const(1)


def _enter(k: int, name: str, call: Call, shared: Sequence[FieldType]) -> StateMap:
    dims = dims_of(call.context)
    values: list[Expr] = [Const(k), *(d.at for d in dims)]
    values += [Const(0)] * (len(shared) - len(values))
    back = _names(dims, name)
    return StateMap(drop={d.name: back[d.name] for d in dims}, add=tuple(zip(shared, values, strict=True)))


def _leave(name: str, call: Call, shared: Sequence[FieldType]) -> StateMap:
    dims = dims_of(call.context)
    drop: Mapping[str, Expr | None] = {
        f.name: dims[j].at if 0 <= j < len(dims) else None for j, f in enumerate(shared, -1)
    }
    return StateMap(
        drop=drop, add=tuple((d.field, e) for d, e in zip(dims, _names(dims, name).values(), strict=True))
    )


def _program_of_all(
    name: str, trace: Trace, calls: Sequence[Call], shared: Sequence[FieldType]
) -> tuple[Program, dict[str, tuple[int, int]]]:
    """The program of the node, and of each function the number of its first result and of its results."""
    sites: dict[str, list[int]] = {}
    for k, call in enumerate(calls):
        sites.setdefault(call.function, []).append(k)
    made = []
    for function, numbers in sites.items():

        def here(yes: Expr, no: Expr, numbers: list[int] = numbers) -> Expr:
            return _by_site(name, [yes if k in numbers else no for k in range(len(calls))])

        single = all(_extent(calls[k], shared) == Const(1) for k in numbers)
        made.append(Alternative(function, _joined(name, trace, calls, numbers), here, single))
    results, first = {}, 0
    for a in made:
        results[a.function] = first, len(a.program.outputs)
        first += len(a.program.outputs)
    if len(made) == 1:
        return made[0].program, results
    try:
        return side_by_side(name, made), results
    except FrontendError as error:
        raise FrontendError(error.message, trace.net.places[calls[-1].node]) from None


def _joined(name: str, trace: Trace, calls: Sequence[Call], numbers: Sequence[int]) -> Program:
    """One program for these sites: theirs are the same but for the state expressions that they read."""
    programs = {k: _program(trace, calls[k]) for k in numbers}
    first = programs[numbers[0]]
    for k, p in programs.items():
        same = (p.inputs, p.params, p.instrs, p.outputs) == (
            first.inputs,
            first.params,
            first.instrs,
            first.outputs,
        )
        same = same and (len(p.ints), len(p.spaces)) == (len(first.ints), len(first.spaces))
        if not same:
            raise FrontendError(
                f"the layer '{name}' is used here with other widths or other operands than at "
                f"{trace.net.places[calls[numbers[0]].node]}; one layer is one function, and one with "
                "several has a name for each, as `fe.Layer(shapes={...}, encode=..., decode=...)`",
                trace.net.places[calls[k].node],
            )

    def of_site(expressions: Sequence[Expr]) -> Expr:
        found = {
            k: substitute(e, _names(dims_of(calls[k].context), name))
            for k, e in zip(numbers, expressions, strict=True)
        }
        # Elsewhere the function has no rows; what it would read there does not matter.
        return _by_site(name, [found.get(k, found[numbers[-1]]) for k in range(len(calls))])

    each = [programs[k] for k in numbers]
    ints = tuple((of_site([p.ints[i][0] for p in each]), s) for i, (_, s) in enumerate(first.ints))
    spaces = tuple((s, of_site([p.spaces[i][1] for p in each])) for i, (s, _) in enumerate(first.spaces))
    return replace(first, ints=ints, spaces=spaces)


def _operand(trace: Trace, name: str, call: Call, number: int, width: int) -> PortRef:
    """Where a site's operand comes from, with zeros where its function has fewer, or a narrower one."""
    inputs = _program(trace, call).inputs
    operand, t = inputs[number if number < len(inputs) else 0]
    source = trace.net.inputs[(call.node, operand)]
    if number < len(inputs) and t.width == width:
        return source
    start = t.width if number < len(inputs) else 0

    def wide(x: Value) -> Value:
        rest = x.builder.emit("zeros", [], space="rows", width=width - start)
        return concat(x, rest) if start else rest

    pad = NPT(trace.name(f"{name}_pad"), traced_program(wide, {"in": t.width}))
    _beside(trace, call, pad)
    trace.net.inputs[(pad.name, "in")] = source
    return pad.name, "out"


def _beside(trace: Trace, call: Call, node: Node) -> str:
    net = trace.net
    net.nodes[node.name] = node
    net.places[node.name] = net.places[call.node]
    if call.node in net.region_of:
        net.region_of[node.name] = net.region_of[call.node]
    return node.name


def _forget(trace: Trace, node: str) -> None:
    net = trace.net
    net.nodes.pop(node)
    net.region_of.pop(node, None)
    for port in [p for p in net.inputs if p[0] == node]:
        del net.inputs[port]


def _rename(trace: Trace, old: str, new: str) -> None:
    net = trace.net
    net.nodes = {
        new if k == old else k: replace(v, name=new) if k == old else v for k, v in net.nodes.items()
    }
    net.places[new] = net.places.pop(old)
    if old in net.region_of:
        net.region_of[new] = net.region_of.pop(old)
    net.inputs = {
        (new if a == old else a, p): (new if b == old else b, q) for (a, p), (b, q) in net.inputs.items()
    }
