"""What an instance takes of a device's memories, and the words that its tables become.

Addresses within an instance are relative; `Placed` says where its pieces lie. Instances of equal structure
have equal layouts, which are made once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amphw.engine.lowering.lower import Path
from amphw.engine.lowering.plan import PathTable, Plan
from amphw.ir.instance import Instance
from amphw.ir.state import BitLayout, KeySpace, StateType
from amphw.rtl.isa.steps import inner_extents
from amphw.rtl.plan.hardware import HardwarePlan


@dataclass(frozen=True)
class Firings:
    """A unit's firings: the first's number, how many, and runs of equal ones.

    runs: (first, count, first record, words of each, messages that complete each).
    """

    first: int
    count: int
    runs: tuple[tuple[int, int, int, int, int], ...]


@dataclass(frozen=True)
class Way:
    """A delivery that leads to some position."""

    path: Path
    table: PathTable
    delivery: int


@dataclass
class Layout:
    """Relative places of an instance's pieces.

    firings: by unit. operands: (unit, operand) -> first place. arrivals: by inbound path, where the payload
    of each delivery lies. answers: by outbound path, first of the places for gradients, and where those lie.
    ways: for (unit, operand, position) a delivery that leads there, once somebody has asked (see `way`).
    """

    plan: Plan
    firings: dict[int, Firings] = field(default_factory=dict)
    operands: dict[tuple[int, int], int] = field(default_factory=dict)
    members: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)
    arrivals: dict[int, list[int]] = field(default_factory=dict)
    answers: dict[int, tuple[int, list[int]]] = field(default_factory=dict)
    starts: dict[StateType, np.ndarray] = field(default_factory=dict)
    states: dict[int, list[int]] = field(default_factory=dict)
    ways: dict[tuple[int, int, int], Way] = field(default_factory=dict)
    n_firings: int = 0
    n_places: int = 0
    n_payload: int = 0


def rows_of(rows: np.ndarray | int, at: int) -> int:
    return rows if isinstance(rows, int) else int(rows[at])


def make_layout(hardware: HardwarePlan, plan: Plan, instance: Instance) -> Layout:
    """The layout of instances with this structure."""
    out = Layout(plan)
    for unit in hardware.partition.units:
        table = plan.units[unit.index]
        code = hardware.codes[unit.index]
        runs: list[list[int]] = []
        for at in range(table.space.size):
            rows = [0] * len(code.rows)
            for space, r in code.spaces.register.items():
                rows[r] = rows_of(table.spaces[space], at)
            words, need = code.record.size.of(rows), int(table.need[at])
            if runs and runs[-1][3:] == [words, need]:
                runs[-1][1] += 1
            else:
                runs.append([out.n_firings + at, 1, out.n_payload, words, need])
            out.n_payload += words
        out.firings[unit.index] = Firings(out.n_firings, table.space.size, tuple(tuple(r) for r in runs))  # type: ignore[misc]
        out.n_firings += table.space.size
        for i, members in enumerate(table.members):
            out.operands[unit.index, i] = out.n_places
            out.n_places += table.space.size if members is None else int(members[-1])
            if members is not None:
                out.members[unit.index, i] = members
        out.states[unit.index] = (
            BitLayout.of(unit.behaviour.state).pack(table.space.columns) or [0] * table.space.size
        )
    for path in hardware.partition.inbound:
        out.arrivals[path.index] = _payloads(hardware, out, path)
    for path in hardware.partition.outbound:
        first = out.n_places
        payload = _payloads(hardware, out, path)
        out.answers[path.index] = (first, payload)
        out.n_places += len(payload)
    for key in hardware.control.directory.offsets:
        if key[0] == "starts":
            state = key[1]
            assert isinstance(state, StateType)
            extents = KeySpace(state, instance)._extents[-1]
            out.starts[state] = np.concatenate([[0], np.cumsum(extents)]).astype(np.int64)
    return out


def _payloads(hardware: HardwarePlan, out: Layout, path: Path) -> list[int]:
    """Reserve room for the payload of each delivery of a path that crosses the border -> where each lies."""
    rows = out.plan.units[path.target].rows[path.operand]
    width = hardware.lowered.units[path.target].operands[path.operand].width
    deliveries = path_table(hardware, out.plan, path)
    found = []
    for firing, row in zip(deliveries.firing.tolist(), deliveries.row.tolist(), strict=True):
        found.append(out.n_payload)
        out.n_payload += width * (1 if row >= 0 else rows_of(rows, max(firing, 0)))
    return found


def path_table(hardware: HardwarePlan, plan: Plan, path: Path) -> PathTable:
    """The deliveries of a path."""
    source = hardware.lowered.units[path.source]
    return plan.units[path.source].paths[source.out.index(path)]


def way(hardware: HardwarePlan, layout: Layout, u: int, k: int, position: int) -> Way:
    """A delivery that leads to a position of an operand: the device has room for what comes along it."""
    if not layout.ways:
        for path in hardware.partition.inbound:
            table = path_table(hardware, layout.plan, path)
            for n, at in enumerate(table.position.tolist()):
                layout.ways.setdefault((path.target, path.operand, at), Way(path, table, n))
    return layout.ways[u, k, position]


@dataclass(frozen=True)
class Placed:
    """Where an instance's pieces lie on the device."""

    firings: int
    places: int
    payload: int
    table: int


def table_words(
    hardware: HardwarePlan, layout: Layout, instance: Instance, at: Placed
) -> tuple[list[int], list[int]]:
    """(the slot's directory, words from `at.table` on): structure tables, prefix sums, places of members."""
    directory: list[int] = [0] * hardware.control.directory.size
    words: list[int] = []

    def put(values: Any) -> int:
        first = at.table + len(words)
        words.extend(int(v) & 0xFFFF for v in np.asarray(values).reshape(-1))
        return first

    for key, offset in hardware.control.directory.offsets.items():
        kind = key[0]
        if kind == "attr":
            value = instance.attr(str(key[1]))
        elif kind == "table":
            value = put(padded(hardware, instance, str(key[1])))
        elif kind == "firings":
            value = at.firings + layout.firings[key[1]].first  # type: ignore[index]
        elif kind == "operand":
            u, i = key[1], key[2]
            value = at.places + layout.operands[u, i] - at.firings - layout.firings[u].first  # type: ignore[index]
        elif kind == "members":
            u, i = key[1], key[2]
            first = put(at.places + layout.operands[u, i] + layout.members[u, i])  # type: ignore[index]
            value = first - at.firings - layout.firings[u].first  # type: ignore[index]
        else:
            value = put(layout.starts[key[1]])  # type: ignore[index]
        directory[offset] = value & 0xFFFF
    return directory, words


def table_room(hardware: HardwarePlan, layout: Layout, instance: Instance) -> int:
    """Words of table memory that the instance takes beside its slot's directory."""
    room = sum(len(s) for s in layout.starts.values()) + sum(len(m) for m in layout.members.values())
    for key in hardware.control.directory.offsets:
        if key[0] == "table":
            room += padded(hardware, instance, str(key[1])).size
    return room


def padded(hardware: HardwarePlan, instance: Instance, name: str) -> np.ndarray:
    """A structure table with the static extents of its dimensions but the first."""
    values = instance.tables[name]
    extents = inner_extents(hardware.graph.schema, name)
    if values.ndim == 1 or list(values.shape[1:]) == extents:
        return values
    out = np.zeros((values.shape[0], *extents), values.dtype)
    out[tuple(slice(0, n) for n in values.shape)] = values
    return out
