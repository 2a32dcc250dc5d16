"""Tile code in numpy, strictly: what the C++ engine does, and complaints about what it may not be asked.

Instructions run over all rows at once. That is the same as row by row, because an instruction may overlap its
operands exactly or not at all, which is checked; so are spaces, bounds and the arguments of each operation.
Scratch and whatever has not been written yet is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from amphw.engine.tiles.code import ATTENTION, Code, Instr, Phase, PhaseKind, Place, Ref
from amphw.engine.tiles.operations import (
    COLUMN_OPS,
    PRIMITIVE_OPERATIONS,
    SETS_INT,
    WITH_CONSTANT,
    Op,
    text_of,
)
from amphw.ir import rng
from amphw.ir.primitives import PRIMITIVES, RowContext
from amphw.ir.primitives.attention import OPERANDS
from amphw.ir.primitives.images import Windows

Rows = dict[tuple[Place, int], np.ndarray]
"""Operands, outputs, saved rows, gradients and log buffers by place and index: [rows, width]."""


def meaning(name: str) -> Callable[..., np.ndarray]:
    """A primitive's, of arrays."""
    evaluate = PRIMITIVES[name].evaluate
    return lambda *arrays: evaluate(RowContext(0, {}), {}, {}, list(arrays))


OF_PRIMITIVES = {
    Op[op]: meaning(name) for name, op in PRIMITIVE_OPERATIONS.items() if Op[op] not in WITH_CONSTANT
}
UNARY: dict[Op, Callable[..., np.ndarray]] = {Op.Mov: lambda a: a} | {
    op: f for op, f in OF_PRIMITIVES.items() if len(text_of(op).parameters) == 1
}
BINARY: dict[Op, Callable[..., np.ndarray]] = {
    Op.AddRelu: lambda a, b: np.maximum(a + b, 0),
    Op.MulStep: lambda a, b: np.where(b > 0, a, 0),
    Op.DSigmoid: lambda a, b: a * (b * (1 - b)),
    Op.DTanh: lambda a, b: a * (1 - b * b),
    Op.ExpSub: lambda a, b: np.exp(a - b),
    Op.ExpSubCol: lambda a, b: np.exp(a - b),
    Op.AddCol: np.add,
    Op.SubCol: np.subtract,
    Op.MulCol: np.multiply,
    Op.DivCol: np.divide,
} | {op: f for op, f in OF_PRIMITIVES.items() if len(text_of(op).parameters) == 2}
TERNARY: dict[Op, Callable[..., np.ndarray]] = {
    Op.Fma: lambda a, b, c: a * b + c,
    Op.MulDSigmoid: lambda a, b, c: a * b * (c * (1 - c)),
    Op.MulDTanh: lambda a, b, c: a * b * (1 - c * c),
}


class Interpreter:
    """Runs one code over the rows of a frame. ints: the unit's integer operands; params: by number, and the
    folded tables behind them.

    What the code writes is put into `rows`; `slots` are the integers by slot.
    """

    def __init__(
        self,
        code: Code,
        context: RowContext,
        spaces: Sequence[str],
        rows: Rows,
        ints: Sequence[np.ndarray],
        params: Sequence[np.ndarray],
    ):
        self.code, self.context, self.spaces, self.params = code, context, spaces, params
        self.rows = rows
        self.slots = [
            ints[operand] if operand >= 0 else np.full(context.total(spaces[space]), -1)
            for operand, space in zip(code.int_operands, code.int_spaces, strict=True)
        ]
        for base in code.bases:
            key = (base.place, base.index)
            assert 0 <= base.space < len(spaces) and base.width > 0
            assert (base.ints >= 0) == (base.place == Place.ParamRow)
            count = context.total(spaces[base.space])
            if base.place in (Place.Output, Place.Saved, Place.InputGradient, Place.Log):
                rows.setdefault(key, np.full((count, base.width), np.nan))
            if key in rows:
                assert rows[key].shape == (count, base.width), (base, rows[key].shape)
        self.scratch = {
            (b.index, b.space): np.full((context.total(spaces[b.space]), b.width), np.nan)
            for b in code.bases
            if b.place == Place.Scratch
        }

    def run(self) -> None:
        for phase in self.code.phases:
            self.made = set[int]()  # integers of this phase
            if phase.kind == PhaseKind.Rows:
                assert phase.code, "a phase without code"
                for instr in phase.code:
                    self._instr(phase, instr)
            elif phase.kind == PhaseKind.Gemm:
                self._gemm(phase)
            else:
                (self._attend if phase.kind in ATTENTION else self._move)(phase)

    def _array(self, ref: Ref, width: int, space: int, write: bool = False) -> np.ndarray:
        base = self.code.bases[ref.base]
        assert base.space == space, f"{base} is in space {base.space}, not {space}"
        assert ref.offset >= 0 and ref.offset + width <= base.width, f"{base}[{ref.offset}:+{width}]"
        writable = (Place.Output, Place.Saved, Place.InputGradient, Place.Log, Place.Scratch)
        assert not write or base.place in writable, f"{base} is written"
        count = self.context.total(self.spaces[space])
        if base.place == Place.Constant:
            whole = np.full((count, base.width), float(base.index))
        elif base.place == Place.Param:
            whole = np.broadcast_to(self.params[base.index], (count, base.width))
        elif base.place == Place.ParamRow:
            assert base.ints not in self.made, "the row is chosen in the same phase"
            whole = self.params[base.index][self.slots[base.ints]]
        elif base.place == Place.Scratch:
            whole = self.scratch[base.index, base.space]
        else:
            whole = self.rows[base.place, base.index]
        return whole[:, ref.offset : ref.offset + width]

    def _instr(self, phase: Phase, i: Instr) -> None:
        assert i.n > 0
        space = phase.space
        operands = []
        for ref, width in i.reads():
            if i.op not in SETS_INT and ref.base == i.d.base:
                apart = ref.offset + width <= i.d.offset or i.d.offset + i.written <= ref.offset
                assert apart or (ref == i.d and width == i.written), f"partial overlap in {i}"
            operands.append(self._array(ref, width, space))
            if self.code.bases[ref.base].place == Place.InputGradient:
                assert ref == i.d and width == i.written, "a gradient row is read for something else"
        ints = [self.slots[s] for s in i.ints]
        for s in i.ints:
            assert self.code.int_spaces[s] == space
        if i.op in SETS_INT:
            assert self.code.int_operands[i.ints[0]] == -1
            self.made.add(i.ints[0])
            self._integer(i, operands, ints)
            return
        d = self._array(i.d, i.written, space, write=True)
        d[:] = self._value(i, operands, ints)

    def _integer(self, i: Instr, operands: list[np.ndarray], ints: list[np.ndarray]) -> None:
        (a,) = operands
        if i.op == Op.Argmax:
            ints[0][:] = a.argmax(axis=1)
        elif i.op == Op.Above:
            ints[0][:] = a[:, 0] > i.f
        elif i.op == Op.ToInt:
            ints[0][:] = a[:, 0]
            assert (ints[0] == a[:, 0]).all()
        else:
            assert i.op == Op.LoadInt
            ints[0][:] = a[:, 0].astype(np.int64) * 2**24 + a[:, 1].astype(np.int64)

    def _value(self, i: Instr, operands: list[np.ndarray], ints: list[np.ndarray]) -> np.ndarray:
        if i.op in UNARY:
            (a,) = operands
            return UNARY[i.op](a)
        if i.op in BINARY or i.op in COLUMN_OPS:
            a, b = operands
            return BINARY[i.op](a, b)
        if i.op in TERNARY:
            a, b, c = operands
            return TERNARY[i.op](a, b, c)
        return self._special(i, operands, ints)

    def _special(self, i: Instr, operands: list[np.ndarray], ints: list[np.ndarray]) -> np.ndarray:
        if i.op == Op.Fill:
            return np.array([[i.f]])
        if i.op == Op.ToFloat:
            return ints[0][:, None].astype(float)
        if i.op == Op.SameInt:
            return (ints[0] == ints[1])[:, None].astype(float)
        if i.op == Op.SaveInt:
            return np.stack([ints[0] // 2**24, ints[0] % 2**24], axis=1).astype(float)
        if i.op == Op.Uniform:
            return rng.uniform(ints, i.seed, len(ints[0]), i.n)
        every = np.arange(len(operands[0]))
        if i.op == Op.AddAt:
            a, b = operands
            out = a.copy()
            out[every, ints[0]] += b[:, 0]
            return out
        (a,) = operands
        if i.op == Op.Scale:
            return a * i.f
        if i.op == Op.Shift:
            return a + i.f
        if i.op == Op.SumCols:
            return a.sum(axis=1, keepdims=True)
        if i.op == Op.MaxCols:
            return a.max(axis=1, keepdims=True)
        if i.op == Op.SpreadCols:
            return np.repeat(a, i.n, axis=1)
        if i.op == Op.Pick:
            return a[every, ints[0]][:, None]
        if i.op == Op.Place:
            out = np.zeros((len(a), i.n))
            out[every, ints[0]] = a[:, 0]
            return out
        assert i.op == Op.Dropout, i.op
        keep = rng.uniform(ints, i.seed, len(a), i.n) >= i.f
        return a * keep / (1 - i.f)

    def _gemm(self, p: Phase) -> None:
        left = np.concatenate([self._array(s.at, s.width, p.space) for s in p.a], axis=1)
        w = self.params[p.param]
        if p.first_row >= 0:
            end = p.first_row + (p.width if p.transposed else left.shape[1])
            assert end <= len(w) and (p.first_row == 0) != (end == len(w)), (
                "neither the first rows nor the last"
            )
            w = w[p.first_row : end]
        w = w.T if p.transposed else w
        assert p.a and p.width == w.shape[1] and left.shape[1] == len(w)
        for s in p.a:
            assert self.code.bases[s.at.base].place != Place.InputGradient
            apart = s.at.offset + s.width <= p.d.offset or p.d.offset + p.width <= s.at.offset
            assert s.at.base != p.d.base or apart, "a product over its own operand"
        y = left @ w
        if p.bias >= 0:
            y = y + self.params[p.bias]
        if p.start >= 0:
            assert p.bias < 0 and self.code.bases[p.start].place == Place.ParamRow
            y = y + self._array(Ref(p.start), p.width, p.space)
        d = self._array(p.d, p.width, p.space, write=True)
        d[:] = d + y if p.accumulate else y

    def _attend(self, p: Phase) -> None:
        op = ATTENTION[p.kind]
        attrs = {"space": self.spaces[p.space], "source": self.spaces[p.source], "heads": p.heads}
        args = []
        for s, here in zip(p.a, OPERANDS[op], strict=True):
            assert self.code.bases[s.at.base].place != Place.InputGradient
            apart = s.at.offset + s.width <= p.d.offset or p.d.offset + p.width <= s.at.offset
            assert s.at.base != p.d.base or apart, "attention over its own operand"
            args.append(self._array(s.at, s.width, p.space if here else p.source).copy())
        if p.ints >= 0:
            args.append(self.slots[p.ints])
        d = self._array(p.d, p.width, p.space, write=True)
        d[:] = PRIMITIVES[op].evaluate(self.context, attrs, {}, args)

    def _move(self, p: Phase) -> None:
        names = {
            PhaseKind.SumRows: "sum_rows",
            PhaseKind.MaxRows: "max_rows",
            PhaseKind.SpreadRows: "spread_rows",
            PhaseKind.GatherRows: "gather_rows",
            PhaseKind.ScatterRows: "scatter_rows",
            PhaseKind.Patches: "patches",
            PhaseKind.Unpatch: "unpatch",
        }
        attrs = {"space": self.spaces[p.space], "source": self.spaces[p.source]}
        width = p.width
        if p.kind in (PhaseKind.Patches, PhaseKind.Unpatch):
            windows = Windows(p.windows[:3], p.windows[3:5], *p.windows[5:])
            width = windows.columns if p.kind == PhaseKind.Patches else windows.width
            attrs |= windows.attrs
        assert self.code.bases[p.from_.base].place != Place.InputGradient
        apart = p.from_.offset + width <= p.d.offset or p.d.offset + p.width <= p.from_.offset
        assert p.from_.base != p.d.base or apart, "rows are moved over themselves"
        args = [self._array(p.from_, width, p.source).copy()]
        if p.kind in (PhaseKind.GatherRows, PhaseKind.ScatterRows):
            args.append(self.slots[p.ints])
        else:
            assert p.ints == -1
        d = self._array(p.d, p.width, p.space, write=True)
        d[:] = PRIMITIVES[names[p.kind]].evaluate(self.context, attrs, {}, args)


def run_code(
    code: Code,
    context: RowContext,
    spaces: Sequence[str],
    rows: Mapping[tuple[Place, int], np.ndarray],
    ints: Sequence[np.ndarray],
    params: Sequence[np.ndarray],
) -> tuple[Rows, list[np.ndarray]]:
    """Run a code -> (`rows` with what it wrote, integers by slot)."""
    interpreter = Interpreter(code, context, spaces, dict(rows), ints, params)
    interpreter.run()
    return interpreter.rows, interpreter.slots
