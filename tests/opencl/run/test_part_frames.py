"""Frames as a part of a run writes them: what kernels find by their header is what was handed over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amphw.engine.lowering.lower import Unit, lower
from amphw.engine.parts.part import PartFrame
from amphw.engine.policy import BACKWARD, FORWARD, INFER
from amphw.engine.tiles.code import Place
from amphw.engine.tiles.tiling import tile
from amphw.opencl import abi
from amphw.opencl.run.frames import UnitFrames, View, Written
from amphw.opencl.run.log import LogRows
from amphw.opencl.run.memory import Arena
from amphw.opencl.run.rows import Counts, Room
from tests.graphs.cases import CASES

ZEROS, ONES = 0, 512
SLOTS = np.array([4, 0, 4], np.int32)
FIRINGS = np.array([1, 3, 2], np.int32)
FIRINGS_OF_AN_INSTANCE = 5


def computing(backward: bool = False) -> list[Any]:
    """Nodes of half of the graphs, each program once; backward: those that something goes back through."""
    found: dict[str, tuple[str, Unit]] = {}
    for case in CASES[::2]:
        for unit in lower(case.build()).units:
            if unit.derivative is None or unit.behaviour.report:
                continue
            if unit.derivative.backward.outputs or not backward:
                found.setdefault(str(unit.behaviour.program), (f"{case.name}-{unit.name}", unit))
    return [pytest.param(unit, id=name) for name, unit in found.values()]


class Handed:
    """A unit's frames over two instances, whose firings have 0 to 3 rows in all spaces but the first."""

    def __init__(self, unit: Unit):
        self.unit, self.tiled, self.arena = unit, tile(unit), Arena(1 << 24)
        self.frames = UnitFrames(unit, self.tiled, View(self.arena), ZEROS, ONES, True)
        self.room = Room(1 << 16, 1 << 20)
        self.random = np.random.default_rng(2)
        n, place = FIRINGS_OF_AN_INSTANCE, 1 << 20
        self.counts = {}
        for slot in (0, 4):
            rows = {s: self.random.integers(0, 4, n) if k else 2 for k, s in enumerate(self.tiled.spaces)}
            self.counts[slot] = Counts(n, rows)
            place = self.frames.kept.lay(slot, place, self.counts[slot])
        self.rows = {
            s: np.array(
                [np.broadcast_to(self.counts[a].rows[s], n)[f] for a, f in zip(SLOTS, FIRINGS, strict=True)],
                np.int32,
            )
            for s in self.tiled.spaces
        }
        self.total = [int(self.rows[s].sum()) for s in self.tiled.spaces]

    def frame(self, kind: int) -> PartFrame:
        program = self.unit.behaviour.program
        assert program is not None
        if kind == BACKWARD:
            wanted = [None if t.kind == "int" else (t.space, t.width) for t in program.outputs_types]
        else:
            wanted = [(o.space, o.width) for o in self.unit.operands]
        arrays = [
            None if each is None else self.numbers(int(self.rows[each[0]].sum()), each[1]) for each in wanted
        ]
        ints = [self.random.integers(0, 9, int(self.rows[space].sum())) for _, space in program.ints]
        return PartFrame(7, self.unit.index, kind, SLOTS, FIRINGS, self.rows, arrays, ints)

    def numbers(self, rows: int, width: int) -> np.ndarray:
        return self.random.normal(size=(rows, width)).astype(np.float32)

    def write(self, frame: PartFrame, log: LogRows | None = None) -> Written:
        self.taken = 0

        def take(words: int) -> int:
            self.taken = words
            place = self.room.take(words)
            assert place is not None
            return place

        return self.frames.write(frame, self.total, take, log)

    def header(self, written: Written, word: int, count: int = 1) -> list[int]:
        return self.arena.words[written.place + word : written.place + word + count].tolist()

    def table(self, written: Written, base: int, rows: int) -> np.ndarray:
        (place,) = self.header(written, abi.TABLES + base)
        return self.arena.words[place : place + rows]


@pytest.mark.parametrize("kind", [FORWARD, INFER], ids=["forward", "inference"])
@pytest.mark.parametrize("unit", computing())
def test_kernels_find_what_was_handed_over(unit: Unit, kind: int) -> None:
    check_written(Handed(unit), kind)


@pytest.mark.parametrize("unit", computing(backward=True))
def test_kernels_find_what_came_back(unit: Unit) -> None:
    check_written(Handed(unit), BACKWARD)


def check_written(handed: Handed, kind: int) -> None:
    code = handed.frames.codes[kind]
    assert code is not None
    frame = handed.frame(kind)
    written = handed.write(frame)
    assert handed.taken <= handed.frames.words(len(SLOTS), handed.total)
    spaces = len(handed.tiled.spaces)
    assert handed.header(written, abi.MESSAGES) == [3]
    assert handed.header(written, abi.ROWS, spaces) == handed.total
    for s, space in enumerate(handed.tiled.spaces):
        (starts,) = handed.header(written, abi.STARTS + s)
        assert handed.arena.words[starts : starts + 4].tolist() == [0, *np.cumsum(handed.rows[space])]
    taken: set[int] = set()
    for k, b in enumerate(code.bases):
        if b.place in (Place.Param, Place.ParamRow):
            assert handed.header(written, abi.TABLES + k) == [0]
            continue
        table = handed.table(written, k, handed.total[b.space])
        where = table[:, None] + np.arange(b.width)
        if b.place == Place.Constant:
            assert set(table.tolist()) <= {(ZEROS, ONES)[b.index]}
            continue
        assert len(np.unique(where)) == where.size and not taken & set(where.flat)
        taken |= set(where.flat)
        given = b.place == Place.OutputGradient or (b.place == Place.Operand and kind != BACKWARD)
        if given:
            np.testing.assert_array_equal(handed.arena.floats[where], frame.arrays[b.index])
    slots = handed.header(written, abi.TABLES + len(code.bases), len(code.int_operands))
    for place, operand, space in zip(slots, code.int_operands, code.int_spaces, strict=True):
        assert place % 2 == 0
        if operand >= 0:
            values = handed.arena.words[place : place + 2 * handed.total[space]].view(np.int64)
            np.testing.assert_array_equal(values, frame.ints[operand])


@pytest.mark.parametrize("unit", computing(backward=True))
def test_the_backward_direction_finds_what_the_forward_one_left(unit: Unit) -> None:
    """Operands as they came in, and outputs and saved rows where the forward kernels have put them."""
    handed = Handed(unit)
    assert handed.tiled.backward is not None
    ahead = handed.frame(FORWARD)
    forward = handed.write(ahead)
    places = {
        (b.place, b.index): handed.table(forward, k, handed.total[b.space]).tolist()
        for k, b in enumerate(handed.tiled.forward.bases)
    }
    backward = handed.write(handed.frame(BACKWARD))
    for k, b in enumerate(handed.tiled.backward.bases):
        table = handed.table(backward, k, handed.total[b.space])
        if b.place == Place.Operand:
            found = handed.arena.floats[table[:, None] + np.arange(b.width)]
            np.testing.assert_array_equal(found, ahead.arrays[b.index])
        elif b.place in (Place.Output, Place.Saved):
            assert table.tolist() == places[b.place, b.index]


@pytest.mark.parametrize("unit", [u for u in computing(backward=True) if u.values[0].owns])
def test_rows_are_logged_behind_those_of_frames_before(unit: Unit) -> None:
    handed = Handed(unit)
    tiled = handed.tiled
    assert tiled.backward is not None
    buffers = [(1 << 21) + (k << 16) for k in range(len(tiled.log_buffers))]
    ints = [(1 << 21) - ((k + 1) << 12) for k in range(len(tiled.log_ints))]
    log = LogRows(buffers, ints, [3] * len(tiled.spaces))
    written = handed.write(handed.frame(BACKWARD), log)
    assert written.log is None and log.rows == [3 + n for n in handed.total]
    for k, b in enumerate(tiled.backward.bases):
        if b.place == Place.Log:
            stride = abi.row_stride(b.width)
            expected = [buffers[b.index] + (3 + r) * stride for r in range(handed.total[b.space])]
            assert handed.table(written, k, handed.total[b.space]).tolist() == expected
    behind = abi.TABLES + len(tiled.backward.bases) + len(tiled.backward.int_spaces)
    assert handed.header(written, behind, len(ints)) == [place + 2 * 3 for place in ints]
    alone = handed.write(handed.frame(BACKWARD))
    own = alone.log
    assert own is not None and own.rows == handed.total
    assert handed.header(alone, behind, len(ints)) == own.ints
    assert own.header()[abi.LOG_BUFFERS :].tolist() == [*own.buffers, *own.ints]
    assert all(own.buffers) and all(place % 2 == 0 for place in own.ints)
