"""Whether tile code computes what its program says: in numpy, on rows made up for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import amphw.engine.tiles.code as tile_code
from amphw.engine.tiles.code import Place, TiledUnit
from amphw.ir.derive import Derivative, accumulate, inference
from amphw.ir.primitives import PRIMITIVES, RowContext
from amphw.ir.program import Program
from tests.engine.tiles.tile_interpreter import Rows, run_code

CLOSE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9}


def run(
    program: Program,
    context: RowContext,
    inputs: Sequence[np.ndarray],
    ints: Sequence[np.ndarray],
    params: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """As `Program.run`, in float64 throughout: some primitives make float32 values of their own."""
    named = {p.name: v for p, v in zip(program.params, params, strict=True)}
    values = [*inputs, *ints]
    for instr in program.instrs:
        args = [values[a] for a in instr.args]
        y = PRIMITIVES[instr.op].evaluate(context, instr.attr(), named, args)
        values.append(y.astype(np.float64) if y.dtype == np.float32 else y)
    return [values[o] for o in program.outputs]


class Checked:
    """Both ways of running a unit, side by side, over one frame."""

    def __init__(
        self,
        program: Program,
        derivative: Derivative,
        tiled: TiledUnit,
        context: RowContext,
        inputs: Sequence[np.ndarray],
        ints: Sequence[np.ndarray],
        params: Sequence[np.ndarray],
    ):
        self.program, self.derivative, self.tiled, self.context = program, derivative, tiled, context
        self.inputs, self.ints, self.params = inputs, ints, params
        self.operands: Rows = {(Place.Operand, k): x for k, x in enumerate(inputs)}

    def inference(self) -> None:
        expected = run(inference(self.program), self.context, self.inputs, self.ints, self.params)
        self._forward(self.tiled.inference, expected)

    def training(self, seed: int = 0) -> None:
        """Forward, then backward with other parameters than forward."""
        rng = np.random.default_rng(seed)
        d = self.derivative
        got = run(d.forward, self.context, self.inputs, self.ints, self.params)
        n = len(self.program.outputs)
        rows = self._forward(self.tiled.forward, got[:n])
        for k, (width, space) in enumerate(self.tiled.saved):
            assert rows[Place.Saved, k].shape == (self.context.total(self.tiled.spaces[space]), width)
        if self.tiled.backward is None:
            assert not d.backward.outputs
            return
        kept = {"input": self.inputs, "output": got[:n], "value": got[n:]}
        residuals = [kept[kind][i] for kind, i in d.residuals]
        dy = [rng.normal(size=got[k].shape) for k in d.float_outputs]
        # A folded product's gradient is made with the table as it is then.
        folded = {f.table for f in self.tiled.folds}
        newer = [p + rng.normal(size=p.shape) * (k not in folded) for k, p in enumerate(self.params)]
        by_key = dict(zip(self.program.ints, self.ints, strict=True))
        ints = [by_key[key] for key in d.backward.ints]
        expected = run(d.backward, self.context, [*dy, *residuals], ints, newer)
        gradients: Rows = {(Place.OutputGradient, k): g for k, g in zip(d.float_outputs, dy, strict=True)}
        start = {k: v for k, v in rows.items() if k[0] != Place.Scratch}
        rows, slots = run_code(
            self.tiled.backward,
            self.context,
            self.tiled.spaces,
            {**start, **gradients},
            self.ints,
            self._with_folded(newer),
        )
        for g, i in zip(expected, d.wrt, strict=False):
            if g.shape[1]:
                np.testing.assert_allclose(rows[Place.InputGradient, i], g, **CLOSE)
        if not self.tiled.folds:
            self._terms(rows, slots, expected)
        self._gradients(rows, slots, expected, newer)

    def _with_folded(self, params: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The parameters, and the folded tables behind them."""
        tables = []
        for f in self.tiled.folds:
            table = params[f.table] @ params[f.weight][f.first_row : f.first_row + f.width]
            tables.append(table + params[f.bias] if f.bias >= 0 else table)
        return [*params, *tables]

    def _forward(self, code: tile_code.Code, expected: Sequence[np.ndarray]) -> Rows:
        params = self._with_folded(self.params)
        rows, slots = run_code(code, self.context, self.tiled.spaces, self.operands, self.ints, params)
        assert len(code.int_outputs) == len(expected)
        for k, (slot, y) in enumerate(zip(code.int_outputs, expected, strict=True)):
            if slot >= 0:
                np.testing.assert_array_equal(slots[slot], y)
            elif y.shape[1]:
                np.testing.assert_allclose(rows[Place.Output, k], y, **CLOSE)
        for place, _ in rows:
            assert place in (Place.Operand, Place.Output, Place.Saved)
        return rows

    def _gradients(
        self,
        rows: Rows,
        slots: list[np.ndarray],
        expected: Sequence[np.ndarray],
        newer: Sequence[np.ndarray],
    ) -> None:
        """What the terms and the folds add up to."""
        tiled, numbers = self.tiled, {p.name: k for k, p in enumerate(self.program.params)}
        wanted = [np.zeros(p.shape) for p in newer]
        for term in self.derivative.terms:
            a = None if term.a is None else expected[term.a]
            accumulate(term.kind, wanted[numbers[term.param]], a, expected[term.dz])
        found = [np.zeros(p.shape) for p in self._with_folded(newer)]
        for mine in tiled.terms:
            dz = rows[Place.Log, mine.d]
            if mine.kind == "matmul":
                a = rows[Place.Log, mine.x]
                accumulate("matmul", found[mine.param][mine.first_row : mine.first_row + a.shape[1]], a, dz)
            else:
                assert mine.first_row == 0
                accumulate(mine.kind, found[mine.param], slots[mine.ints] if mine.ints >= 0 else None, dz)
        for f, table in zip(tiled.folds, found[len(newer) :], strict=True):
            part = slice(f.first_row, f.first_row + f.width)
            found[f.table] += table @ newer[f.weight][part].T
            found[f.weight][part] += newer[f.table].T @ table
            if f.bias >= 0:
                found[f.bias] += table.sum(axis=0)
        for one, other in zip(found, wanted, strict=False):
            np.testing.assert_allclose(one, other, **CLOSE)

    def _terms(self, rows: Rows, slots: list[np.ndarray], expected: Sequence[np.ndarray]) -> None:
        d, tiled = self.derivative, self.tiled
        assert len(tiled.terms) == len(d.terms)
        for k, (width, space) in enumerate(tiled.log_buffers):
            assert rows[Place.Log, k].shape == (self.context.total(tiled.spaces[space]), width)
        used = {t.x for t in tiled.terms} | {t.d for t in tiled.terms}
        assert used - {-1} == set(range(len(tiled.log_buffers)))
        for mine, term in zip(tiled.terms, d.terms, strict=True):
            assert self.program.params[mine.param].name == term.param and mine.kind == term.kind
            assert mine.first_row == 0
            dz = rows[Place.Log, mine.d]
            np.testing.assert_allclose(dz, expected[term.dz], **CLOSE)
            a = None
            assert (mine.x >= 0) == (term.kind == "matmul") and (mine.ints >= 0) == (term.kind == "take")
            if mine.x >= 0:
                assert term.a is not None
                a = rows[Place.Log, mine.x]
                np.testing.assert_allclose(a, expected[term.a], **CLOSE)
            if mine.ints >= 0:
                assert term.a is not None and mine.ints in tiled.log_ints
                a = slots[mine.ints]
                np.testing.assert_array_equal(a, expected[term.a])
            shape = self.params[mine.param].shape
            found, wanted = np.zeros(shape), np.zeros(shape)
            accumulate(mine.kind, found, a, dz)
            accumulate(term.kind, wanted, None if term.a is None else expected[term.a], expected[term.dz])
            np.testing.assert_allclose(found, wanted, **CLOSE)
