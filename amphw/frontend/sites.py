"""One layer used in several places: its parameters have one owner, and each use is a call site.

The sites' states have different fields, so each message gets the number of its site and its fields renamed to
ones that all sites share, whose extents depend on the site. Behind the layer everything goes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from amphw.frontend.index import Dim, dims_of
from amphw.frontend.source import FrontendError
from amphw.frontend.trace import Call, Trace
from amphw.ir.behaviour import StateMap
from amphw.ir.expr import Const, Expr, Field, substitute, where
from amphw.ir.grouping import Group
from amphw.ir.nodes import PPT
from amphw.ir.program import Program
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
    programs = [_program(trace, call) for call in calls]
    shared = _shared_fields(name, calls)
    program = _joined(name, trace, calls, programs, shared)
    rows = _by_site(name, [_extent(call, shared) for call in calls])
    net.nodes[name] = PPT(name, program)
    net.places[name] = net.places[calls[0].node]
    ports = tuple(f"site{k}" for k in range(len(calls)))
    for operand, _ in programs[0].inputs:
        phi = trace.name(f"{name}_{operand}")
        net.nodes[phi] = Phi(phi, ports, rows=None if rows == Const(1) else rows)
        net.places[phi] = net.places[name]
        for k, call in enumerate(calls):
            enter = _beside(trace, call, f"{name}_enter", _enter(k, name, call, shared))
            net.inputs[(enter, "in")] = net.inputs[(call.node, operand)]
            net.inputs[(phi, ports[k])] = (enter, "out")
        net.inputs[(name, operand)] = (phi, "out")
    moved: dict[tuple[str, str], tuple[str, str]] = {}
    for out, old in zip(PPT(name, program).outs, net.nodes[calls[0].node].outs, strict=True):
        back = trace.name(f"{name}_site?")
        net.nodes[back] = Cond(back, Field(f"{name}_site"), ports)
        net.places[back] = net.places[name]
        net.inputs[(back, "in")] = (name, out)
        for k, call in enumerate(calls):
            leave = _beside(trace, call, f"{name}_leave", _leave(name, call, shared))
            net.inputs[(leave, "in")] = (back, ports[k])
            moved[(call.node, old)] = (leave, "out")
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


def _joined(
    name: str, trace: Trace, calls: Sequence[Call], programs: Sequence[Program], shared: Sequence[FieldType]
) -> Program:
    """One program for all sites: theirs are the same but for the state expressions that they read."""
    first = programs[0]
    for call, p in zip(calls, programs, strict=True):
        same = (p.inputs, p.params, p.instrs, p.outputs) == (
            first.inputs,
            first.params,
            first.instrs,
            first.outputs,
        )
        if not same or len(p.ints) != len(first.ints):
            raise FrontendError(
                f"the layer '{name}' is used here with other widths or other operands than at "
                f"{trace.net.places[calls[0].node]}; one layer is one function",
                trace.net.places[call.node],
            )
    ints = []
    for i, (_, space) in enumerate(first.ints):
        at_sites = [
            substitute(p.ints[i][0], _names(dims_of(c.context), name))
            for c, p in zip(calls, programs, strict=True)
        ]
        ints.append((_by_site(name, at_sites), space))
    return replace(first, ints=tuple(ints))


def _beside(trace: Trace, call: Call, stem: str, map: StateMap) -> str:
    name = trace.name(stem)
    trace.net.nodes[name] = Isu(name, map)
    trace.net.places[name] = trace.net.places[call.node]
    if call.node in trace.net.region_of:
        trace.net.region_of[name] = trace.net.region_of[call.node]
    return name


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
