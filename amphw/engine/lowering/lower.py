"""Lowering a graph for the CPU: units that compute, and paths between them with the routing compiled in.

A *unit* is a node with a program (or a source). Everything that only routes (Phi, Isu, Cond, Bcast, Flatmap,
Ungroup, Replicate, Discard) disappears into *paths*: a path leads from one output of a unit to one operand of
another and knows, as expressions over the sender's state, when it is taken, how many messages it makes, and
at which firing and position each arrives. Without this an RNN step would pay for six queue hops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from amphw.ir.algebra import simplify
from amphw.ir.behaviour import Behaviour, Emit, Receive
from amphw.ir.check import Typed, infer
from amphw.ir.derive import Derivative, differentiate, inference
from amphw.ir.device import Direction
from amphw.ir.errors import GraphError
from amphw.ir.expr import Const, Expr, Field, Op, either, is_condition, lift, substitute
from amphw.ir.graph import Graph
from amphw.ir.passes.rest import rest
from amphw.ir.program import Program
from amphw.ir.routing import Cond, Replicate
from amphw.ir.state import FieldType, StateType

Observation = tuple[int, Direction, int, list[np.ndarray | None]]
"""(unit, direction, firing, its outputs or its operands' gradients; None: the plane does not make it)."""


@dataclass(frozen=True)
class Guard:
    """Only the states for which the condition holds go on."""

    condition: Expr


@dataclass(frozen=True)
class Expand:
    """Every state goes on once for each value of a new field."""

    name: str
    extent: Expr


@dataclass(frozen=True)
class Path:
    """From output `value` of unit `source` to operand `operand` of unit `target` (-1: discarded).

    steps are applied in order; then `key` (over the sender's fields and the expanded ones) is the target's
    firing state and `member` its position in a group. by_row: the expanded field that picks one row.
    """

    index: int
    source: int
    value: int
    target: int
    operand: int
    steps: tuple[Guard | Expand, ...]
    key: tuple[tuple[str, Expr], ...]
    member: Expr | None
    by_row: str | None
    data: str | None


@dataclass(frozen=True)
class Trap:
    """Where messages arrive that no port of the routing node `node` takes: a fault of graph or data."""

    node: str
    steps: tuple[Guard | Expand, ...]


@dataclass
class Operand:
    """An in-port of a unit; a group operand takes `count` messages a firing."""

    port: str
    width: int
    space: str
    rows: Expr  # rows of one message, over the firing state
    count: Expr | None
    needs_gradient: bool = False


@dataclass
class Unit:
    """A node that computes. `depth` grows downstream (loops count once)."""

    index: int
    name: str
    behaviour: Behaviour
    operands: list[Operand]
    out: list[Path] = field(default_factory=list)
    traps: list[Trap] = field(default_factory=list)
    derivative: Derivative | None = None
    inference: Program | None = None
    owns: bool = False
    depth: int = 0

    @property
    def decisions(self) -> int:
        """Product of the extents of the decided fields: each firing has that many outcomes."""
        n = 1
        for f, _ in self.behaviour.decides:
            n *= choices(f)
        return n


def choices(decided: FieldType) -> int:
    """How many values an observed field has: its extent, which the checks hold to be a constant.

    Not its bound, which only sizes the bits that carry it.
    """
    assert isinstance(decided.extent, Const)
    return decided.extent.value


@dataclass
class Lowered:
    """A checked graph as the CPU runs it. by_name: unit number by node name."""

    graph: Graph
    typed: Typed
    units: list[Unit]
    paths: list[Path]
    by_name: dict[str, int]

    def planning(self) -> Iterator[Expr]:
        """Every expression that decides routes, counts or row numbers: what a plan depends on."""
        for u in self.units:
            yield from (f.extent for f in u.behaviour.state.fields)
            yield from (e for _, e in u.behaviour.spaces)
            yield from (f.extent for m in u.behaviour.emits for f in m.expand)
            for o in u.operands:
                yield o.rows
                if o.count is not None:
                    yield o.count
        for u in self.units:
            yield from (s.condition if isinstance(s, Guard) else s.extent for t in u.traps for s in t.steps)
        for p in self.paths:
            yield from (s.condition if isinstance(s, Guard) else s.extent for s in p.steps)
            yield from (e for _, e in p.key)
            if p.member is not None:
                yield p.member


def lower(graph: Graph) -> Lowered:
    """Check the graph and compile its routes."""
    typed = infer(graph)
    if (rested := rest(graph, typed)) is not graph:
        graph, typed = rested, infer(rested)
    units: list[Unit] = []
    for name, b in typed.behaviours.items():
        if b.program is not None or b.is_source:
            units.append(
                Unit(len(units), name, b, _operands(typed, name, b), owns=bool(graph.nodes[name].params))
            )
    units.sort(key=lambda u: list(graph.nodes).index(u.name))
    for i, u in enumerate(units):
        u.index = i
    lowered = Lowered(graph, typed, units, [], {u.name: u.index for u in units})
    for u in units:
        for emit in u.behaviour.emits:
            _follow(lowered, u, emit)
    _gradients_needed(lowered)
    _depths(lowered)
    for u in units:
        if u.behaviour.program is not None:
            wanted = [i for i, o in enumerate(u.operands) if o.needs_gradient]
            u.derivative = differentiate(u.behaviour.program, wanted)
            u.inference = inference(u.behaviour.program)
    return lowered


def _operands(typed: Typed, name: str, b: Behaviour) -> list[Operand]:
    if b.program is None:
        return []
    spaces = dict(b.spaces)
    out = []
    for r, (_, t) in zip(b.receives, b.program.inputs, strict=True):
        edge = typed.into(name, r.port)
        rows = simplify(edge.rows) if r.count is not None else spaces[t.space]
        out.append(Operand(r.port, edge.width, t.space, rows, r.count))
    return out


@dataclass
class _Walk:
    """A path under construction: the message's fields as expressions over the sender's frame."""

    node: str
    port: str
    value: int
    fields: Mapping[str, Expr]
    steps: tuple[Guard | Expand, ...]
    by_row: str | None
    data: str | None
    trail: tuple[str, ...]


def _follow(lowered: Lowered, unit: Unit, emit: Emit) -> None:
    start = {f: Field(f) for f in (*unit.behaviour.state.names, *(f.name for f, _ in unit.behaviour.decides))}
    fields, steps, row = _emitted(emit, start, unit.name)
    stack = [_Walk(unit.name, emit.port, emit.value, fields, steps, row, emit.data, ())]
    while stack:
        walk = stack.pop()
        node, port = lowered.graph.edges[(walk.node, walk.port)]
        b = lowered.typed.behaviours[node]
        receive = next(r for r in b.receives if r.port == port)
        key = {n: substitute(e, walk.fields) for n, e in receive.key}
        if node in lowered.by_name:
            _arrive(lowered, unit, walk, lowered.units[lowered.by_name[node]], receive, key)
            continue
        assert node not in walk.trail, node  # `rest` has put a unit into every loop
        trap = _trap(lowered, node, b, walk, key)
        if trap is not None:
            unit.traps.append(trap)
        # Reversed, so that the stack hands out the ports in their order.
        for e in reversed(b.emits):
            inner, more, inner_row = _emitted(e, key, node)
            if walk.by_row is not None and inner_row is not None:
                raise GraphError("rows of one message are separated twice on the way", node=node)
            stack.append(
                _Walk(
                    node,
                    e.port,
                    walk.value,
                    inner,
                    walk.steps + more,
                    walk.by_row or inner_row,
                    walk.data,
                    (*walk.trail, node),
                )
            )


def _trap(lowered: Lowered, node: str, b: Behaviour, walk: _Walk, key: Mapping[str, Expr]) -> Trap | None:
    """The way of the messages that a Cond or Replicate has no port for; None where there can be none."""
    choice = lowered.graph.nodes[node]
    index = (
        choice.index if isinstance(choice, Cond) else choice.rule if isinstance(choice, Replicate) else None
    )
    if index is None or _exhaustive(index, b.state, len(b.emits)):
        return None
    here = substitute(index, key)
    beyond = either(here < 0, lift(len(b.emits)) <= here)
    return Trap(node, (*walk.steps, Guard(simplify(beyond))))


def _exhaustive(index: Expr, state: StateType, ports: int) -> bool:
    """Whether an index is certain to name one of so many ports."""
    if is_condition(index):
        return ports >= 2
    if isinstance(index, Field):
        extent = state.get(index.name).extent
        return isinstance(extent, Const) and extent.value <= ports
    if isinstance(index, Op) and index.op == "%":
        return isinstance(index.args[1], Const) and 0 < index.args[1].value <= ports
    return isinstance(index, Const) and 0 <= index.value < ports


def _emitted(
    emit: Emit, firing: Mapping[str, Expr], node: str
) -> tuple[dict[str, Expr], tuple[Guard | Expand, ...], str | None]:
    fields = dict(firing)
    steps: list[Guard | Expand] = []
    row = None
    for f in emit.expand:
        fresh = f"{node}.{f.name}"
        steps.append(Expand(fresh, substitute(f.extent, fields)))
        fields[f.name] = Field(fresh)
        row = fresh if emit.by_row else None
    if emit.guard is not None:
        steps.append(Guard(simplify(substitute(emit.guard, fields))))
    return {n: simplify(substitute(e, fields)) for n, e in emit.state}, tuple(steps), row


def _arrive(
    lowered: Lowered, unit: Unit, walk: _Walk, target: Unit, receive: Receive, key: Mapping[str, Expr]
) -> None:
    operand = next(i for i, o in enumerate(target.operands) if o.port == receive.port)
    member = substitute(receive.member, walk.fields) if receive.member is not None else None
    path = Path(
        len(lowered.paths),
        unit.index,
        walk.value,
        target.index,
        operand,
        walk.steps,
        tuple((n, simplify(e)) for n, e in key.items()),
        simplify(member) if member is not None else None,
        walk.by_row,
        walk.data,
    )
    lowered.paths.append(path)
    unit.out.append(path)


def _gradients_needed(lowered: Lowered) -> None:
    """An operand needs a gradient only if some parameter lies upstream; the rest return empty messages."""
    wants = {u.index: u.owns for u in lowered.units}
    changed = True
    while changed:
        changed = False
        for p in lowered.paths:
            if wants[p.source]:
                lowered.units[p.target].operands[p.operand].needs_gradient = True
                if not wants[p.target]:
                    wants[p.target] = changed = True


def _depths(lowered: Lowered) -> None:
    """Longest distance from a source, ignoring edges that close a loop."""
    state: dict[int, int] = {}
    order: list[int] = []
    for root in (u.index for u in lowered.units if u.behaviour.is_source):
        stack = [(root, iter(lowered.units[root].out))]
        state.setdefault(root, 1)
        while stack:
            at, paths = stack[-1]
            for p in paths:
                if p.target not in state:
                    state[p.target] = 1
                    stack.append((p.target, iter(lowered.units[p.target].out)))
                    break
            else:
                stack.pop()
                if state[at] == 1:
                    state[at] = 2
                    order.append(at)
    position = {u: i for i, u in enumerate(reversed(order))}
    for u in reversed(order):
        for p in lowered.units[u].out:
            if position[p.target] > position[u]:
                target = lowered.units[p.target]
                target.depth = max(target.depth, lowered.units[u].depth + 1)
