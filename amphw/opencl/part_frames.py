"""Frames that a part of a run is handed, as they lie in its arena: header, tables and rows (`abi.py`).

Here a frame's block holds, in this order, what the device is given (header, tables, integers, operands or
gradients of outputs), what it gives back (integers, outputs or gradients of operands), and what nobody else
reads (scratch, saved rows). The rows that a backward frame reads again are their instance's (`KeptRows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from amphw.engine.lower import Unit
from amphw.engine.part import PartFrame, PartResult
from amphw.engine.policy import BACKWARD, FORWARD, INFER
from amphw.engine.tile_code import Base, Code, Place, TiledUnit
from amphw.opencl import abi
from amphw.opencl.memory import Arena
from amphw.opencl.part_memory import APART, Counts, KeptRows, RowsOf

SLACK = 64
"""Words behind the last row, which kernels read in whole vectors."""

GIVEN = (Place.Operand, Place.OutputGradient)
MADE = (Place.Output, Place.InputGradient)
OWN = (Place.Saved, Place.Scratch)


class View:
    """The arena as numbers of other kinds."""

    def __init__(self, arena: Arena):
        self.words, self.floats, self.longs = arena.words, arena.floats, arena.bytes.view(np.int64)
        self._by_stride: dict[int, np.ndarray] = {}

    def rows(self, stride: int) -> np.ndarray:
        """float32 [rows, stride]: what has its place at a multiple of the stride is a row of this."""
        if stride not in self._by_stride:
            n = len(self.floats) // stride
            self._by_stride[stride] = self.floats[: n * stride].reshape(n, stride)
        return self._by_stride[stride]

    def block(self, place: int, rows: int, stride: int) -> np.ndarray:
        """float32 [rows, stride] from a place on."""
        return self.floats[place : place + rows * stride].reshape(rows, stride)

    def integers(self, place: int, rows: int) -> np.ndarray:
        return self.longs[place // 2 : place // 2 + rows]


@dataclass
class LogRows:
    """A piece of the gradient log. Places of its buffers and of its columns of integers; rows by space."""

    buffers: list[int]
    ints: list[int]
    rows: list[int]

    def header(self) -> np.ndarray:
        """See `abi.LOG_ROWS`."""
        head = np.zeros(abi.LOG_BUFFERS, np.int32)
        head[abi.LOG_ROWS : abi.LOG_ROWS + len(self.rows)] = self.rows
        return np.array([*head, *self.buffers, *self.ints], np.int32)


@dataclass
class Written:
    """A frame in the arena. words: that the device must be given from `place` on; sent, fetched: (place,
    words) besides, and that come back. rows: by space. log: where it logs, if that is a piece of its own."""

    frame: PartFrame
    place: int
    words: int
    rows: list[int]
    sent: list[tuple[int, int]] = field(default_factory=list)
    fetched: list[tuple[int, int]] = field(default_factory=list)
    log: LogRows | None = None
    made: dict[int, tuple[Base, int | np.ndarray]] = field(default_factory=dict)
    """By output or operand, where its rows are: the place of the first one, or a table."""
    slots: list[int] = field(default_factory=list)
    """The place of each integer slot."""


class UnitFrames:
    """One unit's. zeros, ones: places of rows of them. shared: whether the arena is the device's own."""

    def __init__(self, unit: Unit, tiled: TiledUnit, view: View, zeros: int, ones: int, shared: bool):
        self.unit, self.tiled, self.view, self.shared = unit, tiled, view, shared
        self.constants = zeros, ones
        self.codes = {FORWARD: tiled.forward, INFER: tiled.inference, BACKWARD: tiled.backward}
        self.kept = KeptRows(tiled)
        forward = {(b.place, b.index) for b in tiled.forward.bases}
        # What the backward direction alone reads is kept all the same.
        self._unread = [
            Base(*each) for each in self.kept.bases if each[0] == Place.Operand and each[:2] not in forward
        ]
        self._bounds = [self._bound(code, kind) for kind, code in self.codes.items() if code is not None]

    # --- how much a frame takes -------------------------------------------------------------------

    def _bound(self, code: Code, kind: int) -> tuple[int, int, list[int]]:
        """Words that a frame takes at most: in any case, for a message, for a row of each space."""
        spaces = len(self.tiled.spaces)
        each = [0] * spaces
        for b in code.bases:
            each[b.space] += 1 + abi.row_stride(b.width)
        for space in code.int_spaces:
            each[space] += 2
        logged = self.tiled.log_ints if kind == BACKWARD else ()
        for slot in logged:
            each[code.int_spaces[slot]] += 2
        pieces = len(code.bases) + len(code.int_spaces) + len(logged)
        return abi.TABLES + spaces + pieces * (1 + APART) + SLACK + APART, spaces, each

    def words(self, messages: int, rows: Sequence[int]) -> int:
        """That any frame of so many takes at most. rows: by space."""
        return max(
            fixed + each * messages + sum(w * r for w, r in zip(by_space, rows, strict=True))
            for fixed, each, by_space in self._bounds
        )

    def needed(self, counts: Counts) -> tuple[int, int]:
        """Words of a frame of all firings of an instance, and of one of its firings."""
        spaces = self.tiled.spaces
        return self.words(counts.firings, counts.totals(spaces)), self.words(1, counts.most(spaces))

    # --- writing ----------------------------------------------------------------------------------

    def write(self, frame: PartFrame, take: Callable[[int], int], log: LogRows | None) -> Written:
        """Put a frame into the arena. take: gives room for so many words. log: where the rows of a backward
        frame belong, which are counted there; None: into the frame itself."""
        code = self.codes[frame.kind]
        assert code is not None
        counts = [frame.rows[s] for s in self.tiled.spaces]
        rows = [int(c.sum()) for c in counts]
        logged = self.tiled.log_ints if frame.kind == BACKWARD else ()
        own = LogRows([], [], list(rows)) if frame.kind == BACKWARD and log is None else None
        layout = _Layout(code, self.kept, frame, rows, len(logged), OWN if log else (*OWN, Place.Log))
        if own is not None:
            own.ints = [layout.add(2 * rows[code.int_spaces[s]]) for s in logged]
        origin = take(layout.end + SLACK)
        layout.move(origin)
        out = Written(frame, origin, layout.given, rows, slots=layout.slots, log=own)
        if not self.shared:
            out.fetched.append((layout.made, layout.rest - layout.made))
        words = self.view.words
        words[origin : origin + layout.header] = 0
        words[origin + abi.MESSAGES] = len(frame.slots)
        words[origin + abi.ROWS : origin + abi.ROWS + len(rows)] = rows
        for s, (place, count) in enumerate(zip(layout.starts, counts, strict=True)):
            words[origin + abi.STARTS + s] = place
            words[place] = 0
            np.cumsum(count, out=words[place + 1 : place + 1 + len(count)])
        located: dict[int, RowsOf] = {}
        for k, b in enumerate(code.bases):
            if not (table := layout.tables[k]):
                continue
            words[origin + abi.TABLES + k] = table
            to = words[table : table + rows[b.space]]
            if layout.places[k]:
                self._in_frame(out, b, layout.places[k], to)
            elif b.place == Place.Constant:
                to[:] = self.constants[b.index]
            elif b.place == Place.Log:
                assert log is not None
                _sequence(to, log.buffers[b.index] + log.rows[b.space] * abi.row_stride(b.width), b)
            else:
                if b.space not in located:
                    located[b.space] = self.kept.rows(frame.slots, frame.firings, b.space, counts[b.space])
                self._kept(out, b, located[b.space], to)
        for b in self._unread if frame.kind == FORWARD else ():
            at_rows = self.kept.rows(frame.slots, frame.firings, b.space, counts[b.space])
            self._kept(out, b, at_rows, np.empty(rows[b.space], np.int32))
        at = origin + abi.TABLES + len(code.bases)
        words[at : at + len(layout.slots)] = layout.slots
        for place, operand in zip(layout.slots, code.int_operands, strict=True):
            if operand >= 0:
                self.view.integers(place, len(frame.ints[operand]))[:] = frame.ints[operand]
        at += len(layout.slots)
        if own is not None:
            own.buffers = [0] * len(self.tiled.log_buffers)
            for k, b in enumerate(code.bases):
                if b.place == Place.Log:
                    own.buffers[b.index] = layout.places[k]
            own.ints = [origin + place for place in own.ints]
            words[at : at + len(logged)] = own.ints
        elif log is not None:
            firsts = (2 * log.rows[code.int_spaces[s]] for s in logged)
            words[at : at + len(logged)] = [p + first for p, first in zip(log.ints, firsts, strict=True)]
            log.rows = [used + new for used, new in zip(log.rows, rows, strict=True)]
        return out

    def _in_frame(self, out: Written, b: Base, place: int, table: np.ndarray) -> None:
        """Rows one behind the other in the frame's block."""
        _sequence(table, place, b)
        if b.place in GIVEN:
            given = out.frame.arrays[b.index]
            assert given is not None
            self.view.block(place, len(given), abi.row_stride(b.width))[:, : b.width] = given
        elif b.place in MADE:
            out.made[b.index] = b, place

    def _kept(self, out: Written, b: Base, at: RowsOf, table: np.ndarray) -> None:
        table[:] = self.kept.table(b, at)
        if out.frame.kind == BACKWARD:
            return
        if b.place == Place.Operand:
            given, stride = out.frame.arrays[b.index], abi.row_stride(b.width)
            self.view.rows(stride)[table // stride, : b.width] = given
            if not self.shared:
                out.sent += self.kept.spans(b, at)
        elif b.place == Place.Output:
            out.made[b.index] = b, table
            if not self.shared:
                out.fetched += self.kept.spans(b, at)

    # --- reading ----------------------------------------------------------------------------------

    def result(self, written: Written) -> PartResult:
        """What a frame that is done has made."""
        frame = written.frame
        if frame.kind == BACKWARD:
            return PartResult(
                frame.number, [self._gradient(written, k) for k in range(len(self.unit.operands))]
            )
        program, code = self.unit.behaviour.program, self.codes[frame.kind]
        assert program is not None and code is not None
        decided = []
        for _, k in self.unit.behaviour.decides:
            slot = code.int_outputs[k]
            counts = frame.rows[self.tiled.spaces[code.int_spaces[slot]]]
            values = self.view.integers(written.slots[slot], int(counts.sum()))
            decided.append(values[np.cumsum(counts) - counts])
        floats = [
            None if t.kind == "int" else self._made(written, k, int(frame.rows[t.space].sum()), t.width)
            for k, t in enumerate(program.outputs_types)
        ]
        return PartResult(frame.number, floats, decided)

    def _gradient(self, written: Written, operand: int) -> np.ndarray | None:
        o, frame = self.unit.operands[operand], written.frame
        if not o.needs_gradient:
            return None
        counts = frame.rows[o.space]
        if operand not in self.tiled.shared:
            return self._made(written, operand, int(counts.sum()), o.width)
        # All messages of a firing, of one row each, get the one row that there is for it.
        each = self._made(written, operand, written.rows[0], o.width)
        return np.repeat(each, counts, axis=0)

    def _made(self, written: Written, k: int, rows: int, width: int) -> np.ndarray:
        if k not in written.made:
            return np.zeros((rows, width), np.float32)  # without columns
        base, where = written.made[k]
        stride = abi.row_stride(base.width)
        if isinstance(where, np.ndarray):
            found = self.view.rows(stride)[where // stride]
            return np.ascontiguousarray(found[:, :width])
        return self.view.block(where, rows, stride)[:, :width].copy()


def _sequence(table: np.ndarray, first: int, base: Base) -> None:
    stride = abi.row_stride(base.width)
    table[:] = np.arange(first, first + len(table) * stride, stride, dtype=np.int32)


class _Layout:
    """Places in a frame's block, from its beginning until `move` says where that is.

    tables, places: by base; 0: none, in `places` because its rows lie elsewhere. given: words that the device
    is given; made, rest: from where to where it makes what the host reads.
    """

    def __init__(
        self,
        code: Code,
        kept: KeptRows,
        frame: PartFrame,
        rows: Sequence[int],
        logged: int,
        own: Sequence[Place],
    ):
        keeps = frame.kind != INFER
        slots = range(len(code.int_operands))
        self.header = self.end = abi.TABLES + len(code.bases) + len(slots) + logged
        self.starts = [self.add(len(frame.slots) + 1, 1) for _ in rows]
        self.tables, self.places, self.slots = [0] * len(code.bases), [0] * len(code.bases), [0] * len(slots)
        for k, b in enumerate(code.bases):
            if b.place not in (Place.Param, Place.ParamRow):
                self.tables[k] = self.add(rows[b.space], 1)

        def lay(places: Iterable[Place], given: bool) -> None:
            for s in slots:
                if (code.int_operands[s] >= 0) == given and not self.slots[s]:
                    self.slots[s] = self.add(2 * rows[code.int_spaces[s]], 2)
            for k, b in enumerate(code.bases):
                if b.place in places and not (keeps and kept.has(b)):
                    self.places[k] = self.add(rows[b.space] * abi.row_stride(b.width))

        lay(GIVEN, True)
        self.given = self.end
        self.made = abi.rounded(self.end, APART)
        lay(MADE, False)
        self.rest = self.end
        lay(own, False)

    def add(self, words: int, to: int = APART) -> int:
        at = abi.rounded(self.end, to)
        self.end = at + words
        return at

    def move(self, origin: int) -> None:
        self.made, self.rest = origin + self.made, origin + self.rest
        for places in (self.starts, self.tables, self.places, self.slots):
            places[:] = [origin + p if p else 0 for p in places]
