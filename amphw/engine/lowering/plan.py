"""Plans: what an instance's structure makes of the lowered graph, as integer tables.

Keys become dense addresses (`KeySpace`). For every unit the plan holds how many messages a firing needs, how
many rows it has, and for every path a table: sender's address -> (target's firing, position in the operand,
row). All conditionals are decided here, vectorised over the instance's states, once a structure: instances of
equal structure (every sequence of one length) share a plan. The inner loop then evaluates no expression.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from amphw.engine import faults
from amphw.engine.faults import OUTSIDE_A_TABLE, trapped
from amphw.engine.lowering.lower import Expand, Guard, Lowered, Path, Trap, Unit, choices
from amphw.ir.errors import StateError
from amphw.ir.expr import ROW, Attr, Env, Expr, evaluate
from amphw.ir.instance import Instance
from amphw.ir.state import MOST_STATES, OUT_OF_DOMAIN, Columns, KeySpace, StateType, structure_of

MOST_ROWS = MOST_STATES
"""Rows, states or messages of one unit in one instance: the planes number them with 32 bits."""


@dataclass
class PathTable:
    """Deliveries of one path in the order of the sender's (address, decision), then of its copies.

    start int64 [outcomes + 1] indexes the rest by sender outcome; firing, position, row int64 [deliveries]:
    the target's firing address, the message's position in the operand, and the single row sent (-1: all).
    data: for a source, (first row in the data array, rows) of each delivery.
    """

    start: np.ndarray
    firing: np.ndarray
    position: np.ndarray
    row: np.ndarray
    data: tuple[np.ndarray, np.ndarray] | None = None


@dataclass
class UnitTable:
    """One unit's part of a plan.

    space: its states. spaces: rows of each firing by row space, int64 [firings], or one int if all have as
    many. need int64 [firings]: messages that complete a firing. members[operand]: start of each firing's
    positions, int64 [firings + 1], for group operands, else None. rows[operand]: rows of one message, as
    `spaces`.
    """

    space: KeySpace
    spaces: dict[str, np.ndarray | int]
    need: np.ndarray
    members: list[np.ndarray | None]
    rows: list[np.ndarray | int]
    paths: list[PathTable]
    faults: dict[int, str] = field(default_factory=dict)  # sender outcome -> why it cannot be sent


@dataclass
class Plan:
    units: list[UnitTable]


def build_plan(lowered: Lowered, instance: Instance) -> Plan:
    """Tables for one instance; StateError or InstanceError where its structure leaves a declared domain."""
    tables = [_unit(u, instance) for u in lowered.units]
    for u, table in zip(lowered.units, tables, strict=True):
        table.paths = [_path(u, p, tables, instance) for p in u.out]
        _bounded(u, "sends", "messages", np.array([len(p.firing) for p in table.paths], np.int64), instance)
        for trap in u.traps:
            _spring(u, trap, table, instance)
    return Plan(tables)


def check_data(lowered: Lowered, plan: Plan, instance: Instance) -> None:
    """InstanceError where a source's data array has fewer rows than the source sends."""
    for u, table in zip(lowered.units, plan.units, strict=True):
        name = u.behaviour.emits[0].data if u.behaviour.is_source else None
        if name is None:
            continue
        wanted = max((int((t.data[0] + t.data[1]).max(initial=0)) for t in table.paths if t.data), default=0)
        if len(instance.data[name]) < wanted:
            raise faults.short_data(u, instance, wanted)


def _rows(unit: Unit, e: Expr, env: Env, instance: Instance) -> np.ndarray | int:
    """Rows by firing, as one number where all have as many."""
    values = evaluate(e, env)
    if len(values) and values.min() < 0:
        raise StateError(
            f"node '{unit.name}': instance {instance.number} has a negative number of rows '{e}'"
        )
    _bounded(unit, "has", "rows", values, instance)
    return int(values[0]) if len(values) and bool((values == values[0]).all()) else np.array(values)


def _bounded(unit: Unit, does: str, what: str, counts: np.ndarray, instance: Instance) -> None:
    """Before anything is made of so many: their sum is within 32 bits, or StateError."""
    # Each of at most 2**31 is checked first, so that their sum does not leave 64 bits.
    if len(counts) and (counts.max() > MOST_ROWS or counts.sum() > MOST_ROWS):
        raise StateError(
            f"node '{unit.name}': instance {instance.number} {does} more {what} than {MOST_ROWS}"
        )


def firings(unit: Unit, instance: Instance) -> tuple[KeySpace, dict[str, np.ndarray | int]]:
    """A unit's states, and the rows of each by row space; see `UnitTable`."""
    b = unit.behaviour
    space = KeySpace(b.state, instance)
    env = space.env()
    # A source's rows are counted over the states that it emits, not over its one firing.
    return space, {} if b.is_source else {name: _rows(unit, e, env, instance) for name, e in b.spaces}


def _unit(unit: Unit, instance: Instance) -> UnitTable:
    space, spaces = firings(unit, instance)
    env = space.env()
    need = np.zeros(space.size, dtype=np.int64)
    members: list[np.ndarray | None] = []
    for o in unit.operands:
        if o.count is None:
            need += 1
            members.append(None)
        else:
            count = evaluate(o.count, env)
            if len(count) and count.min() < 0:
                raise StateError(
                    f"node '{unit.name}': instance {instance.number} has a negative count '{o.count}'"
                )
            _bounded(unit, "waits for", "messages", count, instance)
            need += count
            members.append(np.concatenate([[0], np.cumsum(count)]).astype(np.int64))
    _bounded(unit, "waits for", "messages", need.max(initial=0, keepdims=True), instance)
    rows = [_rows(unit, o.rows, env, instance) for o in unit.operands]
    return UnitTable(space, spaces, need, members, rows, [])


def _spring(unit: Unit, trap: Trap, table: UnitTable, instance: Instance) -> None:
    """Note the outcomes that would send a message which no port takes."""
    _, sender = _walked(unit, trap.steps, _outcomes(unit, table.space, instance), instance)
    for outcome in sender.tolist():
        table.faults[outcome] = trapped(trap)


def _outcomes(unit: Unit, space: KeySpace, instance: Instance) -> Columns:
    """Every firing of the unit with everything that it may decide, as an environment.

    Lenient: states that never occur may read outside a table; those that do occur are faults.
    """
    outcomes = unit.decisions
    _bounded(unit, "has", "outcomes", np.array([min(outcomes, MOST_ROWS + 1) * space.size]), instance)
    columns = {n: np.repeat(c, outcomes) for n, c in space.columns.items()}
    left = np.tile(np.arange(outcomes, dtype=np.int64), space.size)
    for f, _ in reversed(unit.behaviour.decides):
        columns[f.name] = left % choices(f)
        left = left // choices(f)
    return Columns(instance, columns, space.size * outcomes, strict=False)


def _walked(
    unit: Unit, steps: Sequence[Guard | Expand], env: Columns, instance: Instance
) -> tuple[Columns, np.ndarray]:
    """What is left of `env` after a path's steps, and the outcome that each row came from."""
    sender = np.arange(env.size, dtype=np.int64)
    for step in steps:
        if isinstance(step, Guard):
            keep = np.flatnonzero(evaluate(step.condition, env))
            env, sender = env.subset(keep), sender[keep]
        else:
            extent = np.maximum(evaluate(step.extent, env), 0)
            _bounded(unit, "sends", "messages", extent, instance)
            env, sender = _expand(step, extent, env, sender)
    return env, sender


def _path(unit: Unit, path: Path, tables: list[UnitTable], instance: Instance) -> PathTable:
    root = _outcomes(unit, tables[unit.index].space, instance)
    n = root.size
    env, sender = _walked(unit, path.steps, root, instance)
    target = tables[path.target]
    state = {name: evaluate(e, env) for name, e in path.key}
    firing = target.space.address(state, env.size, strict=False)
    position = firing
    starts = target.members[path.operand]
    if starts is not None:
        assert path.member is not None
        member = evaluate(path.member, env)
        inside = np.where(firing >= 0, firing, 0)
        room = starts[inside + 1] - starts[inside] if target.space.size else np.zeros(env.size, np.int64)
        outside = (firing < 0) | (member < 0) | (member >= room)
        position = np.where(outside, OUT_OF_DOMAIN, (starts[inside] if target.space.size else 0) + member)
    row = env.columns[path.by_row] if path.by_row is not None else np.full(env.size, -1, dtype=np.int64)
    for outcome in np.flatnonzero(root.outside).tolist():
        tables[unit.index].faults[outcome] = OUTSIDE_A_TABLE
    start = np.searchsorted(sender, np.arange(n + 1))
    data = _source_rows(unit, env, instance) if unit.behaviour.is_source else None
    return PathTable(start, firing, position, np.asarray(row), data)


def _source_rows(unit: Unit, env: Columns, instance: Instance) -> tuple[np.ndarray, np.ndarray]:
    """(first row, rows) of each delivery in the instance's data array: all states in address order."""
    (emit,) = unit.behaviour.emits
    emitted = KeySpace(StateType(emit.expand), instance)
    rows = _rows(unit, dict(unit.behaviour.spaces)["rows"], emitted.env(), instance)
    state = {f.name: env.columns[f"{unit.name}.{f.name}"] for f in emit.expand}
    address = emitted.address(state, env.size)
    counts = np.full(emitted.size, rows, np.int64) if isinstance(rows, int) else rows
    return row_starts(counts, emitted.size)[address], counts[address]


def _expand(step: Expand, extent: np.ndarray, env: Columns, sender: np.ndarray) -> tuple[Columns, np.ndarray]:
    picked = np.repeat(np.arange(env.size), extent)
    starts = np.cumsum(extent) - extent
    wide = env.subset(picked)
    wide.columns[step.name] = np.arange(len(picked), dtype=np.int64) - np.repeat(starts, extent)
    return wide, sender[picked]


def row_starts(rows: np.ndarray | int, n: int) -> np.ndarray:
    """First row of each of n messages in a dense array -> int64 [n + 1]."""
    if isinstance(rows, int):
        return np.arange(n + 1, dtype=np.int64) * rows
    return np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)


def integers(
    unit: Unit, table: UnitTable, instance: Instance
) -> tuple[list[tuple[np.ndarray, np.ndarray]], frozenset[int]]:
    """The unit's integer operands for a whole instance: (values int64 [rows], first row of each firing).

    Also the firings that read outside a table, which must not occur.
    """
    out = []
    faulty: set[int] = set()
    program = unit.behaviour.program
    size = table.space.size
    for e, space in program.ints if program else ():
        starts = row_starts(table.spaces[space], size)
        firing = np.repeat(np.arange(size), np.diff(starts))
        columns = {n: c[firing] for n, c in table.space.columns.items()}
        columns[ROW.name] = np.arange(len(firing), dtype=np.int64) - starts[firing]
        env = Columns(instance, columns, len(firing), strict=False)  # a state of the space need not occur
        out.append((np.array(evaluate(e, env)), starts))
        faulty.update(firing[env.outside].tolist())
    return out, frozenset(faulty)


T = TypeVar("T")


class Planner(Generic[T]):
    """Builds plans, and keeps those of recent structures; `finish` turns one into the executor's own form."""

    def __init__(self, lowered: Lowered, finish: Callable[[Plan], T], keep: int = 4096):
        self.lowered, self.finish, self.keep = lowered, finish, keep
        scalars, self._tables = structure_of(lowered.planning())
        self._scalars = sorted(scalars, key=str)
        self._plans: OrderedDict[tuple[object, ...], T] = OrderedDict()

    def signature(self, instance: Instance) -> tuple[object, ...]:
        """What the routes of the instance depend on."""
        here = Columns(instance, {}, 1)
        attrs = tuple(
            instance.attr(e.name) if isinstance(e, Attr) else int(evaluate(e, here)[0]) for e in self._scalars
        )
        found = ((t, instance.tables[t]) for t in sorted(self._tables))
        # The element type too: equal bytes of another type are other numbers.
        tables = tuple((t, a.dtype.str, a.shape, a.tobytes()) for t, a in found)
        return (*attrs, *tables)

    def plan(self, instance: Instance) -> T:
        """The plan in the executor's form."""
        key = self.signature(instance)
        found = self._plans.get(key)
        if found is None:
            found = self.finish(build_plan(self.lowered, instance))
            self._plans[key] = found
            if len(self._plans) > self.keep:
                self._plans.popitem(last=False)
        else:
            self._plans.move_to_end(key)
        return found
