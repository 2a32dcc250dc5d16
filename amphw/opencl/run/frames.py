"""Frames that a part of a run is handed, as they lie in its arena: header, tables and rows (`abi.py`).

Here a frame's block holds, in this order, what the device is given (header, tables, integers, operands or
gradients of outputs), what it gives back (integers, outputs or gradients of operands), and what nobody else
reads (scratch, saved rows). The rows that a backward frame reads again are their instance's (`KeptRows`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from amphw.engine.lowering.lower import Unit
from amphw.engine.parts.part import PartFrame, PartResult
from amphw.engine.policy import BACKWARD, FORWARD, INFER
from amphw.engine.tiles.code import Base, Code, Place, TiledUnit
from amphw.opencl import abi
from amphw.opencl.run.log import LogRows
from amphw.opencl.run.memory import Arena
from amphw.opencl.run.rows import APART, Counts, KeptRows, RowsOf

SLACK = 64
"""Words behind the last row, which kernels read in whole vectors."""

GIVEN = (Place.Operand, Place.OutputGradient)
MADE = (Place.Output, Place.InputGradient)


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
class Written:
    """A frame in the arena. words: that the device must be given from `place` on; sent, fetched: (place,
    words) besides, and that come back. rows: by space. log: where it logs, if that is a piece of its own."""

    frame: PartFrame
    place: int
    words: int
    rows: Sequence[int]
    sent: list[tuple[int, int]] = field(default_factory=list)
    fetched: list[tuple[int, int]] = field(default_factory=list)
    log: LogRows | None = None
    made: dict[int, tuple[Base, int | np.ndarray]] = field(default_factory=dict)
    """By output or operand, where its rows are: the place of the first one, or a table."""
    slots: list[int] = field(default_factory=list)
    """The place of each integer slot."""


class _Form:
    """What frames of one code have in common. keeps: whether an instance's rows are its own.

    Tables of one space lie one behind the other: first those of rows at equal distances (`even`), then those
    of the rows that instances keep.
    """

    def __init__(self, code: Code, kept: KeptRows, spaces: int, logged: Sequence[int], keeps: bool):
        self.code, self.logged = code, logged
        tabled = [(k, b) for k, b in enumerate(code.bases) if b.place not in (Place.Param, Place.ParamRow)]
        of_instances = [(k, b) for k, b in tabled if keeps and kept.has(b)]
        here = [each for each in tabled if each not in of_instances]
        self.given = [(k, b, abi.row_stride(b.width)) for k, b in here if b.place in GIVEN]
        self.made = [(k, b, abi.row_stride(b.width)) for k, b in here if b.place in MADE]
        self.own = [
            (k, b, abi.row_stride(b.width)) for k, b in here if b.place in (Place.Saved, Place.Scratch)
        ]
        self.log = [(k, b, abi.row_stride(b.width)) for k, b in here if b.place == Place.Log]
        self.constant = [(k, b) for k, b in here if b.place == Place.Constant]
        self.even = [[(k, b) for k, b in here if b.space == s] for s in range(spaces)]
        self.kept = [[(k, b) for k, b in of_instances if b.space == s] for s in range(spaces)]
        self.header = abi.TABLES + len(code.bases) + len(code.int_spaces) + len(logged)
        self.tables = [even + keep for even, keep in zip(self.even, self.kept, strict=True)]
        self._strides = [
            np.array([0 if b.place == Place.Constant else abi.row_stride(b.width) for _, b in even], np.int32)
            for even in self.even
        ]
        self._steps: list[np.ndarray] = [np.zeros((len(each), 0), np.int32) for each in self._strides]

    def steps(self, space: int, rows: int) -> np.ndarray:
        """From the first to each row of the even bases: int32 [bases, rows]."""
        if self._steps[space].shape[1] < rows:
            self._steps[space] = self._strides[space][:, None] * np.arange(2 * rows, dtype=np.int32)
        return self._steps[space][:, :rows]


class UnitFrames:
    """One unit's. zeros, ones: places of rows of them. shared: whether the arena is the device's own."""

    def __init__(self, unit: Unit, tiled: TiledUnit, view: View, zeros: int, ones: int, shared: bool):
        self.unit, self.tiled, self.view, self.shared = unit, tiled, view, shared
        self.constants = zeros, ones
        self.codes = {FORWARD: tiled.forward, INFER: tiled.inference, BACKWARD: tiled.backward}
        self.kept = KeptRows(tiled)
        self._forms = {
            kind: _Form(
                code, self.kept, len(tiled.spaces), tiled.log_ints if kind == BACKWARD else (), kind != INFER
            )
            for kind, code in self.codes.items()
            if code is not None
        }
        forward = {(b.place, b.index) for b in tiled.forward.bases}
        # What the backward direction alone reads is kept all the same.
        unread = [
            Base(*each) for each in self.kept.bases if each[0] == Place.Operand and each[:2] not in forward
        ]
        self._unread = [[b for b in unread if b.space == s] for s in range(len(tiled.spaces))]
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

    def blank(self, kind: int) -> PartFrame:
        """One firing, of slot 0, with a row of zeros in every space."""
        program, one = self.unit.behaviour.program, np.ones(1, np.int32)
        assert program is not None
        if kind == BACKWARD:
            widths = [None if t.kind == "int" else t.width for t in program.outputs_types]
        else:
            widths = [o.width for o in self.unit.operands]
        arrays = [None if w is None else np.zeros((1, w), np.float32) for w in widths]
        rows = dict.fromkeys(self.tiled.spaces, one)
        ints = [np.zeros(1, np.int64) for _ in program.ints]
        return PartFrame(0, self.unit.index, kind, one - 1, one - 1, rows, arrays, ints)

    # --- writing ----------------------------------------------------------------------------------

    def write(
        self, frame: PartFrame, rows: Sequence[int], take: Callable[[int], int], log: LogRows | None
    ) -> Written:
        """Put a frame into the arena. rows: by space, in all. take: gives room for so many words. log: where
        the rows of a backward frame belong, which are counted there; None: into the frame itself."""
        form, words = self._forms[frame.kind], self.view.words
        code, n = form.code, len(frame.slots)
        firsts, slots = [0] * len(code.bases), [0] * len(code.int_spaces)
        starts, tables, at = [], [], form.header
        for s, count in enumerate(rows):
            starts.append(at)
            tables.append(at + n + 1)
            at += n + 1 + len(form.tables[s]) * count

        def lay(bases: Sequence[tuple[int, Base, int]], given: bool) -> int:
            nonlocal at
            at += at % 2
            for s, operand in enumerate(code.int_operands):
                if (operand >= 0) == given:
                    slots[s], at = at, at + 2 * rows[code.int_spaces[s]]
            for k, b, stride in bases:
                firsts[k] = at = at + -at % APART
                at += rows[b.space] * stride
            return at

        upload = lay(form.given, True)
        made = at + at % 2
        fetched = lay(form.made, False) - made
        for k, b, stride in form.own if log is not None else (*form.own, *form.log):
            firsts[k] = at = at + -at % APART
            at += rows[b.space] * stride
        own = frame.kind == BACKWARD and log is None
        at += at % 2
        logged = []
        for s in form.logged if own else ():
            logged.append(at)
            at += 2 * rows[code.int_spaces[s]]
        origin = take(at + SLACK)
        firsts, slots, logged = ([origin + p for p in each] for each in (firsts, slots, logged))
        out = Written(frame, origin, upload, rows, slots=slots)
        if own:
            out.log = log = LogRows([0] * len(self.tiled.log_buffers), logged, list(rows))
            for k, b, _ in form.log:
                log.buffers[b.index] = firsts[k]
        elif log is not None:
            for k, b, stride in form.log:
                firsts[k] = log.buffers[b.index] + log.rows[b.space] * stride
            logged = [
                p + 2 * log.rows[code.int_spaces[s]] for p, s in zip(log.ints, form.logged, strict=True)
            ]
            log.rows = [used + new for used, new in zip(log.rows, rows, strict=True)]
        for k, b in form.constant:
            firsts[k] = self.constants[b.index]
        if not self.shared:
            out.fetched.append((origin + made, fetched))
        head = [0] * form.header
        head[abi.MESSAGES] = n
        head[abi.ROWS : abi.ROWS + len(rows)] = rows
        head[abi.STARTS : abi.STARTS + len(rows)] = [origin + place for place in starts]
        for of_space, place, count in zip(form.tables, tables, rows, strict=True):
            for j, (k, _) in enumerate(of_space):
                head[abi.TABLES + k] = origin + place + j * count
        head[abi.TABLES + len(code.bases) :] = slots + logged
        words[origin : origin + form.header] = head
        for s, place in enumerate(starts):
            self._tables(out, form, s, origin + place, firsts)
        self._rows(out, form, firsts)
        return out

    def _tables(self, out: Written, form: _Form, space: int, starts: int, firsts: list[int]) -> None:
        """Those of the bases of one space, behind the first row of each message."""
        words, frame, rows = self.view.words, out.frame, out.rows[space]
        counts = frame.rows[self.tiled.spaces[space]]
        words[starts] = 0
        tables = starts + 1 + len(counts)
        np.cumsum(counts, out=words[starts + 1 : tables])
        even, kept, both = form.even[space], form.kept[space], len(form.tables[space])
        block = words[tables : tables + both * rows].reshape(both, rows)
        if even:
            first = np.array([firsts[k] for k, _ in even], np.int32)
            np.add(first[:, None], form.steps(space, rows), out=block[: len(even)])
        unread = self._unread[space] if frame.kind == FORWARD else ()
        if not kept and not unread:
            return
        at = self.kept.rows(frame.slots, frame.firings, space, counts)
        self.kept.tables([b for _, b in kept], at, block[len(even) :])
        if frame.kind == FORWARD:
            for (_, b), table in zip(kept, block[len(even) :], strict=True):
                self._kept(out, b, at, table)
            for b in unread:
                self._kept(out, b, at, self.kept.table(b, at))

    def _rows(self, out: Written, form: _Form, firsts: list[int]) -> None:
        """What is given of the frame itself, and where what it makes will be."""
        frame = out.frame
        for place, operand in zip(out.slots, form.code.int_operands, strict=True):
            if operand >= 0:
                self.view.integers(place, len(frame.ints[operand]))[:] = frame.ints[operand]
        for k, b, stride in form.given:
            given = frame.arrays[b.index]
            assert given is not None
            self.view.block(firsts[k], len(given), stride)[:, : b.width] = given
        for k, b, _ in form.made:
            out.made[b.index] = b, firsts[k]

    def _kept(self, out: Written, b: Base, at: RowsOf, table: np.ndarray) -> None:
        """Rows that instances keep: of operands what is in them, and of outputs where they will be."""
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
            None if t.kind == "int" else self._made(written, k, frame.totals[t.space], t.width)
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
