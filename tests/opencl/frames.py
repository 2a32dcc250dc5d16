"""Frames on an OpenCL device, from the rows that the tile interpreter takes.

Rows of a base lie shuffled and apart from each other, and what nobody has written yet is NaN.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

from amphw.engine.tiles.code import Base, Code, Place
from amphw.ir.primitives import RowContext
from amphw.opencl import abi
from amphw.opencl.abi import Kernel
from amphw.opencl.codegen.forms import Form
from amphw.opencl.layout import Layouts, copy_layout
from amphw.opencl.platform import platforms
from tests.engine.tiles.tile_interpreter import Rows
from tests.opencl.devices import BASIC

SLACK = 64
"""Words behind an arena or a parameter that may be read."""

WRITTEN = (Place.Output, Place.Saved, Place.InputGradient, Place.Log)


@cache
def device() -> tuple[Any, Any]:
    """pyopencl's module and a queue on PoCL; skips the test where there is none."""
    cl = pytest.importorskip("pyopencl")
    (found,) = platforms.choose(BASIC)
    return cl, cl.CommandQueue(cl.Context([found.handle]))


def build(text: str) -> Any:
    """A program; the options are those of the device."""
    cl, queue = device()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # compilers talk on success, too
        return cl.Program(queue.context, text).build(["-cl-mad-enable"])


@dataclass
class Frame:
    """One code's frame in an arena. log_ints: slots that the code logs."""

    spaces: Sequence[str]
    code: Code
    context: RowContext
    rows: Rows
    ints: Sequence[np.ndarray]
    log_ints: Sequence[int] = ()
    words: list[np.ndarray] = field(default_factory=list)
    end: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(5)
        spaces, code = self.spaces, self.code
        self.counts = [self.context.total(s) for s in spaces]
        self._put(np.zeros(16, np.int32))  # no table begins at 0
        starts = [self._put(self._starts(s)) for s in spaces]
        tables = [self._base(b) for b in code.bases]
        self.slots = []
        for operand, space in zip(code.int_operands, code.int_spaces, strict=True):
            values = self.ints[operand] if operand >= 0 else np.full(self.counts[space], -1)
            self.slots.append(self._put(values.astype(np.int64)))
        self.logs = [self._put(np.full(self.counts[code.int_spaces[s]], -1, np.int64)) for s in self.log_ints]
        head = np.zeros(abi.TABLES, np.int32)
        head[abi.MESSAGES] = self.context.n
        head[abi.ROWS : abi.ROWS + len(spaces)] = self.counts
        head[abi.STARTS : abi.STARTS + len(spaces)] = starts
        self.header = self._put(np.array([*head, *tables, *self.slots, *self.logs], np.int32))
        self._put(np.full(SLACK, np.nan, np.float32))

    def _starts(self, space: str) -> np.ndarray:
        counts = np.broadcast_to(self.context.counts[space], (self.context.n,))
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

    def _put(self, array: np.ndarray) -> int:
        """The place of an array in the arena, even."""
        words = np.ascontiguousarray(array).view(np.float32).ravel()
        if len(words) % 2:
            words = np.append(words, np.float32(0))
        place, self.end = self.end, self.end + len(words)
        self.words.append(words)
        return place

    def _base(self, b: Base) -> int:
        """The table of a base, whose rows are put into the arena."""
        if b.place in (Place.Param, Place.ParamRow):
            return 0
        n, step = self.counts[b.space], abi.row_stride(b.width)
        if b.place == Place.Constant:
            return self._put(np.full(n, self._put(np.full(step, b.index, np.float32)), np.int32))
        values = np.full((n, step), np.nan, np.float32)
        if (b.place, b.index) in self.rows and b.place != Place.Scratch:
            values[:, : b.width] = self.rows[b.place, b.index]
        order = self.random.permutation(n)
        return self._put((self._put(values[np.argsort(order)]) + order * step).astype(np.int32))

    def run(
        self,
        kernels: Sequence[Kernel],
        program: Any,
        params: Sequence[np.ndarray],
        laid: Layouts,
        form: Form,
    ) -> Ran:
        """Run kernels in order. params: by number, the folded tables behind them; laid: how they lie."""
        cl, queue = device()
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        arena = np.concatenate(self.words)
        faults = np.zeros(abi.BAD_GRADIENT + 32, np.int32)
        on_device = {"arena": arena, "faults": faults}
        names = {name for k in kernels for name in k.buffers}
        on_device |= {name: self._param(name, params, laid, form) for name in names}
        held = {k: cl.Buffer(queue.context, flags, hostbuf=v) for k, v in on_device.items()}
        for k in kernels:
            size = k.global_size(self.counts, self.context.n)
            if 0 in size:
                continue
            kernel = cl.Kernel(program, k.name)
            kernel(
                queue,
                size,
                k.local_size,
                held["arena"],
                np.int32(self.header),
                held["faults"],
                *(held[name] for name in k.buffers),
            )
        for name in ("arena", "faults"):
            cl.enqueue_copy(queue, on_device[name], held[name])
        queue.finish()
        return self._read(arena, faults)

    def _param(self, name: str, params: Sequence[np.ndarray], laid: Layouts, form: Form) -> np.ndarray:
        """A parameter's buffer, or that of its transposed copy, padded with zeros."""
        number = int(name.strip("pt"))
        value, layout = np.atleast_2d(params[number]), laid[number]
        if name.endswith("t"):
            (first, width), *others = {
                (p.first_row, p.width) for p in self.code.phases if p.param == number and p.transposed
            }
            assert not others, "one copy for all products"
            value = (value[first : first + width] if first >= 0 else value).T
            layout = copy_layout(*value.shape, form)
        return np.concatenate([layout.packed(value).ravel(), np.full(SLACK, np.nan, np.float32)])

    def _read(self, arena: np.ndarray, faults: np.ndarray) -> Ran:
        words, before = arena.view(np.int32), np.concatenate(self.words).view(np.int32)
        rows: Rows = dict(self.rows)
        untouched = np.ones(len(words), bool)
        for k, b in enumerate(self.code.bases):
            if b.place in (*WRITTEN, Place.Scratch):
                table = before[self.header + abi.TABLES + k]
                where = before[table : table + self.counts[b.space]][:, None] + np.arange(b.width)
                untouched[where] = False
                if b.place != Place.Scratch:
                    rows[b.place, b.index] = arena[where]
        spaces = self.code.int_spaces

        def integers(place: int, space: int) -> np.ndarray:
            untouched[place : place + 2 * self.counts[space]] = False
            return arena[place : place + 2 * self.counts[space]].view(np.int64)

        slots = [integers(place, space) for place, space in zip(self.slots, spaces, strict=True)]
        logs = [integers(p, spaces[s]) for p, s in zip(self.logs, self.log_ints, strict=True)]
        np.testing.assert_array_equal(words[untouched], before[untouched], "written beside its rows")
        return Ran(rows, slots, logs, (int(faults[abi.FAULT]), int(faults[abi.FAULT_ROW])))


@dataclass
class Ran:
    """What kernels left behind: rows, integers by slot, logged integers, (fault, its row)."""

    rows: Rows
    slots: list[np.ndarray]
    logs: list[np.ndarray]
    fault: tuple[int, int]
