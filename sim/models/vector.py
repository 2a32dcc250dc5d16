"""What a vector unit's commands do to the memory, written down a second time, in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from amphw.rtl.fixed.curves import Curve
from amphw.rtl.isa.commands import REDUCTIONS, IndexMode, VectorOp
from amphw.rtl.numbers.arithmetic import narrow, saturate


@dataclass(frozen=True)
class Walk:
    base: int = 0
    outer: int = 0
    inner: int = 0


@dataclass(frozen=True)
class Command:
    op: VectorOp
    outer: int = 1
    inner: int = 1
    a: Walk = field(default_factory=Walk)
    b: Walk = field(default_factory=Walk)
    d: Walk = field(default_factory=Walk)
    constant: int = 0
    shift: int = 0
    mode: IndexMode = IndexMode.NONE
    index: int = 0
    scale: int = 0
    table: int = 0
    overlap: bool = False

    def fields(self) -> dict[str, object]:
        plain = ("op", "outer", "inner", "constant", "shift", "mode", "table", "overlap")
        values: dict[str, object] = {name: getattr(self, name) for name in plain}
        values |= {name: vars(getattr(self, name)) for name in "abd"}
        return values | {"index": {"base": self.index, "scale": self.scale}}


def element(command: Command, a: int, b: int, curves: Sequence[Curve]) -> int:
    """The result of an operation that is no reduction."""
    c, shift = command.constant, command.shift

    def fit(x: int) -> int:
        return int(saturate(np.int64(x), 16, np.where))

    def fit_shifted(x: int) -> int:
        return int(narrow(np.int64(x), shift, 16, np.where))

    match command.op:
        case VectorOp.FILL:
            return fit(c)
        case VectorOp.COPY:
            return a
        case VectorOp.CONVERT:
            return fit_shifted(a)
        case VectorOp.LIFT:
            return fit(a << shift)
        case VectorOp.ADD:
            return fit(a + b)
        case VectorOp.SUB:
            return fit(a - b)
        case VectorOp.MUL:
            return fit_shifted(a * b)
        case VectorOp.SCALE:
            return fit_shifted(a * c)
        case VectorOp.SHIFT:
            return fit(a + c)
        case VectorOp.RELU:
            return max(a, 0)
        case VectorOp.GATE:
            return a if b > 0 else 0
        case VectorOp.MAX:
            return max(a, b)
        case VectorOp.ABS:
            return fit(abs(a))
        case VectorOp.SIGN:
            return fit(c * (a > 0) - c * (a < 0))
        case VectorOp.STEP:
            return fit(c) if a > 0 else 0
        case VectorOp.EQUAL:
            return fit(c) if a == b else 0
        case VectorOp.ABOVE:
            return int(a > c)
        case VectorOp.LINES:
            return int(curves[command.table].evaluate(np.array(a)))
    raise AssertionError(command.op)


def reduce(op: VectorOp, row: list[int]) -> int:
    if not row:
        return 0
    if op is VectorOp.SUM:
        return int(saturate(np.int64(sum(row)), 16, np.where))
    return max(row) if op is VectorOp.LARGEST else row.index(max(row))


@dataclass
class Traffic:
    """Addresses that a command read and wrote. circular: an element needs what another one of it wrote."""

    reads: set[int] = field(default_factory=set)
    writes: list[int] = field(default_factory=list)
    circular: bool = False


def execute(command: Command, mem: list[int], pointers: Sequence[int], curves: Sequence[Curve]) -> Traffic:
    """Do what the command says, one element after another, to `mem`, whose length is a power of two."""
    size = len(mem)
    traffic = Traffic()

    def read(address: int) -> int:
        traffic.circular |= address % size in traffic.writes
        traffic.reads.add(address % size)
        return mem[address % size]

    def write(address: int, word: int) -> None:
        traffic.writes.append(address % size)
        mem[address % size] = word

    for o in range(command.outer):
        offset_a = offset_d = 0
        reducing = command.op in REDUCTIONS
        if command.mode in (IndexMode.A, IndexMode.D, IndexMode.ADD_D) and (command.inner or reducing):
            offset = (read(command.index + o) & 0xFFFF) * command.scale
            offset_a, offset_d = (offset, 0) if command.mode is IndexMode.A else (0, offset)
        row = []
        for i in range(command.inner):
            at_a, at_b, at_d = (
                walk.base + o * walk.outer + i * walk.inner for walk in (command.a, command.b, command.d)
            )
            at_a += pointers[i] if command.mode is IndexMode.POINTERS else offset_a
            at_d += offset_d
            row.append(read(at_a))
            if command.mode is IndexMode.ADD_D:
                traffic.reads.add(at_d % size)
                b = mem[at_d % size]
            else:
                b = read(at_b)
            if not reducing:
                write(at_d, element(command, row[-1], b, curves))
        if reducing:
            write(command.d.base + o * command.d.outer + offset_d, reduce(command.op, row))
    return traffic
