"""A partition's sequencer and units in numpy, command by command: what microprograms mean, bit for bit.

Units run on their own, so an order that a program leaves open must not matter. The emulator takes the order
that is worst for a program that should have waited: one unit, `late`, does nothing before it must; what
vector commands write is not seen by commands that overlap them, and what the lane engine writes by none
before a WAIT.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from amphw.rtl.fixed.curves import curve
from amphw.rtl.isa.commands import (
    BINARY,
    INITIAL,
    POINTERS,
    REDUCTIONS,
    Code,
    Field,
    IndexMode,
    Instruction,
    LaneOp,
    Unit,
    VectorOp,
    decode,
)
from amphw.rtl.numbers.arithmetic import narrow, saturate
from amphw.rtl.numbers.formats import BITS, Formats

Fields = dict[Field, int]


def _narrow(x: Any, shift: int = 0) -> Any:
    return narrow(x, shift, BITS, np.where)


class Emulator:
    """memory: int64 [words], values of int16. weights, sums: int64 [beats, lanes], visible and gradients.

    curves: the vector unit's tables by name. late: the unit that lags behind.
    """

    def __init__(
        self,
        formats: Formats,
        memory: np.ndarray,
        weights: np.ndarray,
        sums: np.ndarray,
        curves: Sequence[str] = ("sigmoid", "tanh"),
        late: Unit = Unit.LANES,
    ):
        self.formats, self.memory, self.weights, self.sums = formats, memory, weights, sums
        self.curves = [curve(name, formats.value.frac) for name in curves]
        self.late = late
        self._waiting: deque[tuple[Instruction, Fields]] = deque()
        self._unwritten: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {u: [] for u in Unit}

    def run(self, words: Sequence[int], rows: Sequence[int], pointers: Sequence[int]) -> None:
        """Run a microprogram with ROWS and the first PTR registers loaded."""
        fields: Fields = dict(INITIAL)
        ptr = [*pointers, *[0] * (POINTERS - len(pointers))]
        for i in decode(words):
            if i.code == Code.SETC:
                fields[Field(i["field"])] = i["imm"]
            elif i.code == Code.SETP:
                fields[Field(i["field"])] = ptr[i["p"]] + i["imm"]
            elif i.code == Code.SETR:
                fields[Field(i["field"])] = rows[i["r"]] * i["imm"]
            elif i.code == Code.PTR:
                ptr[i["d"]] = ptr[i["p"]] + rows[i["r"]] * i["imm"]
            elif i.code == Code.ISSUE:
                self._issue(i, dict(fields))
            else:
                self._finish()
                if i.code == Code.END:
                    return
        raise ValueError("a microprogram ends without END")

    def _issue(self, i: Instruction, fields: Fields) -> None:
        if i["unit"] == self.late:
            self._waiting.append((i, fields))
        else:
            self._execute(i, fields)

    def _finish(self) -> None:
        """Until both units are idle."""
        while self._waiting:
            self._execute(*self._waiting.popleft())
        for unit in Unit:
            self._write_back(unit)

    def _execute(self, i: Instruction, fields: Fields) -> None:
        if i["unit"] == Unit.VECTOR:
            if not i["overlap"]:
                self._write_back(Unit.VECTOR)
            self._vector(i, fields)
        else:
            self._lanes(i, fields)

    def _write(self, unit: Unit, address: np.ndarray, value: np.ndarray) -> None:
        self._unwritten[unit].append((address, value))

    def _write_back(self, unit: Unit) -> None:
        for address, value in self._unwritten[unit]:
            self.memory[address] = value
        self._unwritten[unit] = []

    # --- the vector unit --------------------------------------------------------------------------

    def _vector(self, i: Instruction, f: Fields) -> None:
        op, mode = VectorOp(i["op"]), IndexMode(i["mode"])
        outer, inner = f[Field.V_OUTER], f[Field.V_INNER]
        o, n = np.arange(outer)[:, None], np.arange(inner)[None, :]

        def addresses(base: Field) -> np.ndarray:
            return f[base] + o * f[Field(base + 1)] + n * f[Field(base + 2)]

        a, b, d = (addresses(base) for base in (Field.V_A, Field.V_B, Field.V_D))
        if mode != IndexMode.NONE:
            moved = (self.memory[f[Field.V_INDEX] + o] & 0xFFFF) * f[Field.V_SCALE]
            if mode == IndexMode.A:
                a = a + moved
            else:
                d = d + moved
        if mode == IndexMode.ADD_D:
            self._scatter(op, a, d)
            return
        x = self.memory[a] if op != VectorOp.FILL else np.zeros(a.shape, np.int64)
        y = self.memory[b] if op in BINARY else x
        if op in REDUCTIONS:
            d, result = f[Field.V_D] + o * f[Field.V_D_OUTER], _reduce(op, x)
        elif op == VectorOp.LINES:
            result = self.curves[i["table"]].evaluate(x)
        else:
            result = _element(op, x, y, f[Field.V_CONSTANT], i["shift"])
        self._write(Unit.VECTOR, d, result)

    def _scatter(self, op: VectorOp, a: np.ndarray, d: np.ndarray) -> None:
        """In order, as an element may be added to more than once; what is found is what was written last."""
        assert op == VectorOp.ADD
        found = {int(to): int(self.memory[to]) for to in d.ravel()}
        for to, value in zip(d.ravel().tolist(), self.memory[a].ravel().tolist(), strict=True):
            found[to] = int(_narrow(found[to] + value))
        self._write(Unit.VECTOR, np.array([*found], np.int64), np.array([*found.values()], np.int64))

    # --- the lane engine --------------------------------------------------------------------------

    def _lanes(self, i: Instruction, f: Fields) -> None:
        rows, n, nb = f[Field.L_ROWS], f[Field.L_N], f[Field.L_BLOCKS]
        base, fv, fw = f[Field.L_BASE], self.formats.value.frac, self.formats.weight.frac
        k = f[Field.L_K]
        op, bias = LaneOp(i["op"]), i["bias"]
        x, y, dz = f[Field.L_X], f[Field.L_Y], f[Field.L_DZ]
        if op in (LaneOp.TAKE, LaneOp.TAKE_GRADIENT):
            for r in range(rows):
                beat = base + (int(self.memory[x + r]) & 0xFFFF) * nb
                if op == LaneOp.TAKE:
                    row = self.weights[beat : beat + nb].ravel()[:n]
                    self._put(y, r, _narrow(row, fw - fv))
                else:
                    self._add(beat, nb, self._row(dz, r, n) << fv)
            return
        matrix = self.weights[base : base + (k + bias) * nb].reshape(k + bias, -1)[:, :n]
        if op == LaneOp.FORWARD:
            for r in range(rows):
                total = self._row(x, r, k) @ matrix[:k] + (matrix[k] << fv if bias else 0)
                self._put(y, r, _narrow(total, fw))
        elif op == LaneOp.BACKWARD:
            for r in range(rows):
                given = self._row(dz, r, n)
                if i["want_dw"]:
                    operand = self._row(x, r, k)
                    for number in range(k):
                        self._add(base + number * nb, nb, operand[number] * given)
                    if bias:
                        self._add(base + k * nb, nb, given << fv)
                if i["want_dx"]:
                    self._put(y, r, _narrow(matrix[:k] @ given, fw))
        else:
            raise ValueError(f"{op.name} is no command of a microprogram")

    def _row(self, base: int, r: int, width: int) -> np.ndarray:
        return self.memory[base + r * width : base + (r + 1) * width]

    def _put(self, base: int, r: int, row: np.ndarray) -> None:
        self._write(Unit.LANES, base + r * len(row) + np.arange(len(row)), row)

    def _add(self, base: int, blocks: int, row: np.ndarray) -> None:
        """Add to the sums of one row of a parameter."""
        sums = self.sums[base : base + blocks].reshape(-1)
        sums[: len(row)] = saturate(sums[: len(row)] + row, self.formats.sums, np.where)


def _element(op: VectorOp, a: np.ndarray, b: np.ndarray, constant: int, shift: int) -> np.ndarray:
    return np.asarray(
        {
            VectorOp.FILL: lambda: np.full(a.shape, constant, np.int64),
            VectorOp.COPY: lambda: a,
            VectorOp.CONVERT: lambda: _narrow(a, shift),
            VectorOp.LIFT: lambda: _narrow(a << shift),
            VectorOp.ADD: lambda: _narrow(a + b),
            VectorOp.SUB: lambda: _narrow(a - b),
            VectorOp.MUL: lambda: _narrow(a * b, shift),
            VectorOp.SCALE: lambda: _narrow(a * constant, shift),
            VectorOp.SHIFT: lambda: _narrow(a + constant),
            VectorOp.RELU: lambda: np.maximum(a, 0),
            VectorOp.GATE: lambda: np.where(b > 0, a, 0),
            VectorOp.MAX: lambda: np.maximum(a, b),
            VectorOp.ABS: lambda: _narrow(np.abs(a)),
            VectorOp.SIGN: lambda: np.sign(a) * constant,
            VectorOp.STEP: lambda: np.where(a > 0, constant, 0),
            VectorOp.EQUAL: lambda: np.where(a == b, constant, 0),
            VectorOp.ABOVE: lambda: (a > constant).astype(np.int64),
        }[op]()
    )


def _reduce(op: VectorOp, a: np.ndarray) -> np.ndarray:
    """Over the inner loop -> [outer, 1]."""
    if a.shape[1] == 0:
        return np.zeros((len(a), 1), np.int64)
    if op == VectorOp.SUM:
        return np.asarray(_narrow(a.sum(axis=1, keepdims=True)))
    if op == VectorOp.LARGEST:
        return a.max(axis=1, keepdims=True)
    return a.argmax(axis=1)[:, None]
