"""Tile code computes what the programs say, and the peepholes leave what they should."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import amphw.cpu_runtime.tile_code as tile_code
from amphw.cpu_runtime.lower import lower
from amphw.cpu_runtime.tile_code import MAX_INT_ARGS, Fold, Op, PhaseKind, Place, Term, TiledUnit
from amphw.cpu_runtime.tile_fold import FOLD_ROWS
from amphw.cpu_runtime.tiling import tile, tile_programs
from amphw.ir.derive import Derivative, accumulate, differentiate, inference
from amphw.ir.errors import ProgramError
from amphw.ir.expr import Expr, Field
from amphw.ir.functions import (
    argmax,
    columns,
    concat,
    dropout,
    exp,
    linear,
    lstm,
    pick,
    relu,
    row_param,
    sigmoid,
    split,
    spread_rows,
    stop_gradient,
    sum_cols,
    take,
    tanh,
    zeros,
)
from amphw.ir.graph import Graph
from amphw.ir.passes import fuse
from amphw.ir.primitives import PRIMITIVES, RowContext, ValueType
from amphw.ir.program import Params, Program, Value, trace
from amphw.models.list_reduction import ListReductionConfig, ListReductionRNN
from amphw.models.mnist import MnistConfig, MnistMLP
from tests.cpu_runtime.tile_interpreter import Rows, run_code
from tests.cpu_runtime.tile_programs import SPACES, counts, operands, programs
from tests.graphs import tree
from tests.graphs.cases import CASES

HEADER = Path(tile_code.__file__).parent / "native" / "code.hpp"

MODELS: dict[str, Callable[[], Graph]] = {
    **{case.name: case.build for case in CASES},
    "list-reduction": lambda: ListReductionRNN().graph(ListReductionConfig(hidden=6, embedding=4, batch=5)),
    "mnist": lambda: MnistMLP().graph(MnistConfig(width=7, batch=3)),
}

CLOSE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9}


# --- the contract -------------------------------------------------------------------------------


@pytest.mark.parametrize("enum", [Place, Op, PhaseKind])
def test_enumerators_are_those_of_the_header(enum: type[IntEnum]) -> None:
    found = re.search(rf"enum class {enum.__name__} : int32_t {{(.*?)}};", HEADER.read_text(), re.DOTALL)
    assert found is not None
    names = [re.sub(r"//.*", "", line).strip(" ,") for line in found[1].splitlines()]
    assert [n for n in names if n] == [e.name for e in enum]
    assert [e.value for e in enum] == list(range(len(enum)))


def test_the_number_of_integer_arguments_is_that_of_the_header() -> None:
    assert f"MAX_INT_ARGS = {MAX_INT_ARGS};" in HEADER.read_text()


# --- the mathematics ----------------------------------------------------------------------------


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


@pytest.mark.parametrize("fused", [False, True], ids=["fine", "fused"])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_unit_of_the_graphs(name: str, fused: bool) -> None:
    graph = MODELS[name]()
    rng = np.random.default_rng(3)
    for unit in lower(fuse(graph) if fused else graph).units:
        program, derivative = unit.behaviour.program, unit.derivative
        if program is None or derivative is None:
            continue
        # One row a message, but for windows: index 0 is then right for every table, column and row.
        unit_tiled, spaces = tile(unit), [space for space, _ in unit.behaviour.spaces]
        factors = unit_tiled.forward.factors or (1,) * len(spaces)
        context = RowContext(5, dict(zip(spaces, factors, strict=True)))
        inputs = [rng.normal(size=(5, t.width)) for _, t in program.inputs]
        ints = [np.full(5, _divided_by(program, k)) for k in range(len(program.ints))]
        params = [rng.normal(size=p.shape) for p in program.params]
        checked = Checked(program, derivative, unit_tiled, context, inputs, ints, params)
        checked.inference()
        checked.training()


def _divided_by(program: Program, k: int) -> int:
    """1 for an integer operand that is only read as a number, by which a mean divides; else 0."""
    readers = {i.op for i in program.instrs if len(program.inputs) + k in i.args}
    return int(readers == {"to_float"})


def _with_wanted(program: Program) -> st.SearchStrategy[tuple[Program, list[int]]]:
    wanted = st.lists(st.sampled_from(range(len(program.inputs))), unique=True).map(sorted)
    return st.tuples(st.just(program), wanted)


@settings(max_examples=300, deadline=None)
@given(programs().flatmap(_with_wanted), counts, st.integers(0, 2**32 - 1))
def test_random_programs(drawn: tuple[Program, list[int]], counts: list[tuple[int, int]], seed: int) -> None:
    program, wanted = drawn
    frame = operands(program, counts, seed)
    derivative = differentiate(program, wanted)
    tiled = tile_programs(program, derivative, inference(program), SPACES)
    checked = Checked(program, derivative, tiled, frame.context, frame.inputs, frame.ints, frame.params)
    checked.inference()
    checked.training(seed)


# --- the peepholes ------------------------------------------------------------------------------


def tiled(
    function: Callable[..., Value | Sequence[Value]],
    inputs: Mapping[str, int | ValueType],
    params: Mapping[str, tuple[int, ...]] | None = None,
    wrt: Sequence[int] | None = None,
) -> TiledUnit:
    """A traced program as tile code, checked on a frame of 4 rows in one-row messages."""
    program = trace(function, inputs, params)
    derivative = differentiate(program, wrt)
    spaces = sorted({t.space for t in program.types})
    unit = tile_programs(program, derivative, inference(program), spaces)
    rng = np.random.default_rng(1)
    context = RowContext(4, dict.fromkeys(spaces, 1))
    operands = [rng.uniform(0.1, 1.0, (4, t.width)) for _, t in program.inputs]
    weights = [rng.normal(size=p.shape) for p in program.params]
    ints = [np.zeros(4, np.int64) for _ in program.ints]
    checked = Checked(program, derivative, unit, context, operands, ints, weights)
    checked.inference()
    checked.training()
    return unit


def forward(function: Any, inputs: Any, params: Any = None) -> list[str]:
    """The lines of the inference code."""
    return str(tiled(function, inputs, params).inference).splitlines()


def backward(function: Any, inputs: Any, params: Any = None, wrt: Sequence[int] | None = None) -> list[str]:
    code = tiled(function, inputs, params, wrt).backward
    assert code is not None
    return str(code).splitlines()


def op_names(lines: Sequence[str]) -> list[str]:
    """What the lines do: operations and kinds of phases that are not rows."""
    return [re.sub(r"^.* = (\w+)\(.*$", r"\1", x) for x in lines if not x.startswith("rows")]


def test_slices_and_concatenations_are_references() -> None:
    def function(p: Params, x: Value, y: Value) -> Value:
        a, b = split(concat(x, y), 2)
        return concat(stop_gradient(b), zeros(x, 2), columns(a, 1, 2)) @ p.W

    lines = forward(function, {"x": 2, "y": 6}, {"W": (8, 3)})
    assert lines == ["gemm: y0 = [x1[2:6], zero, x0[1:2], x1[0:1]] @ p0"]


def test_parts_are_computed_where_they_are_wanted() -> None:
    def function(p: Params, x: Value, y: Value) -> Value:
        return concat(tanh(x), y, x @ p.W)

    assert forward(function, {"x": 2, "y": 3}, {"W": (2, 4)}) == [
        "gemm: y0[5:9] = [x0] @ p0",
        "rows:",
        "  y0[0:2] = Tanh(x0)",
        "  y0[2:5] = Mov(x1)",
    ]


def test_a_value_that_is_wanted_twice_is_copied_once() -> None:
    def function(x: Value) -> list[Value]:
        y = tanh(x)
        return [y, concat(y, y)]

    assert forward(function, {"x": 2}) == [
        "rows:",
        "  y0 = Tanh(x0)",
        "  y1[0:2] = Mov(y0)",
        "  y1[2:4] = Mov(y0)",
    ]


def test_a_row_that_lies_side_by_side_anyway_is_read_there() -> None:
    """The sum reads what lies in the output already, and is itself a part of that output."""

    def function(x: Value) -> Value:
        both = concat(tanh(x), exp(x))
        return concat(both, sum_cols(both))

    assert forward(function, {"x": 3}) == [
        "rows:",
        "  y0[0:3] = Tanh(x0)",
        "  y0[3:6] = Exp(x0)",
        "  y0[6:7] = SumCols(y0[0:6])",
    ]


def test_the_gradients_of_slices_are_put_together_without_sums() -> None:
    def function(x: Value) -> list[Value]:
        return [tanh(columns(x, 4, 2)), exp(columns(x, 1, 2))]

    assert backward(function, {"x": 7}) == [
        "rows:",
        "  dx0[1:3] = Mul(dy1, y1)",
        "  dx0[4:6] = DTanh(dy0, y0)",
        "  dx0[0:1] = Fill(0)",
        "  dx0[3:4] = Fill(0)",
        "  dx0[6:7] = Fill(0)",
    ]


def test_only_what_overlaps_is_added() -> None:
    def function(x: Value) -> list[Value]:
        return [columns(x, 0, 4), columns(x, 2, 4), x * 2.0]

    assert backward(function, {"x": 6}) == [
        "rows:",
        "  dx0 = Scale(dy2, 2)",
        "  dx0[2:4] = Add(dx0[2:4], dy1[0:2])",
        "  dx0[4:6] = Add(dx0[4:6], dy1[2:4])",
        "  dx0[0:2] = Add(dx0[0:2], dy0[0:2])",
        "  dx0[2:4] = Add(dx0[2:4], dy0[2:4])",
    ]


LSTM: dict[str, Any] = {"inputs": {"x": 5, "h": 4, "c": 4}, "params": {"W": (9, 16), "b": (16,)}}


def lstm_cell(p: Params, x: Value, h: Value, c: Value) -> list[Value]:
    return list(lstm(linear(concat(x, h), p.W, p.b), c))


def test_equal_operations_on_neighbours_are_one() -> None:
    assert str(tiled(lstm_cell, **LSTM).forward).splitlines() == [
        "gemm: s0[0:16] = [x0, x1] @ p0 + p1",
        "rows:",
        "  s0[0:12] = Sigmoid(s0[0:12])",
        "  s0[12:16] = Tanh(s0[12:16])",
        "  y1 = Mul(s0[0:4], s0[12:16])",
        "  y1 = Fma(s0[4:8], x2, y1)",
        "  s0[16:20] = Tanh(y1)",
        "  y0 = Mul(s0[8:12], s0[16:20])",
    ]


def test_the_gradient_of_an_lstm_has_no_pads() -> None:
    unit = tiled(lstm_cell, **LSTM)
    assert unit.saved == ((20, 0),)
    assert [(t.kind, t.x, t.d) for t in unit.terms] == [("sum", -1, 0), ("matmul", 1, 0)]
    assert str(unit.backward).splitlines() == [
        "rows:",
        "  t0[0:4] = MulDTanh(dy0, s0[8:12], s0[16:20])",
        "  t0[0:4] = Add(dy1, t0[0:4])",
        "  log0[8:12] = MulDSigmoid(dy0, s0[16:20], s0[8:12])",
        "  dx2 = Mul(t0[0:4], s0[4:8])",
        "  log0[4:8] = MulDSigmoid(t0[0:4], x2, s0[4:8])",
        "  log0[12:16] = MulDTanh(t0[0:4], s0[0:4], s0[12:16])",
        "  log0[0:4] = MulDSigmoid(t0[0:4], s0[12:16], s0[0:4])",
        "  log1[0:5] = Mov(x0)",
        "  log1[5:9] = Mov(x1)",
        "gemm: t0 = [log0] @ p0'",
        "rows:",
        "  dx0 = Mov(t0[0:5])",
        "  dx1 = Mov(t0[5:9])",
    ]


def test_the_branch_cell_of_a_tree_stays_short() -> None:
    """Everything at once; a peephole that stops working shows here."""
    units = {u.name: u for u in lower(fuse(tree.build(hidden=4))).units}
    unit = tile(units["branch"])
    assert str(unit.forward).splitlines() == [
        "gemm: s0[0:20] = [x0[0:4], x1[0:4]] @ p0 + p1",
        "rows:",
        "  s0[0:8] = Sigmoid(s0[0:8])",
        "  s0[8:12] = Tanh(s0[8:12])",
        "  y0[4:8] = Mul(s0[0:4], s0[8:12])",
        "  s0[12:20] = Sigmoid(s0[12:20])",
        "  y0[4:8] = Fma(s0[12:16], x0[4:8], y0[4:8])",
        "  y0[4:8] = Fma(s0[16:20], x1[4:8], y0[4:8])",
        "  s0[20:24] = Tanh(y0[4:8])",
        "  y0[0:4] = Mul(s0[4:8], s0[20:24])",
    ]
    assert unit.backward is not None
    assert Counter(op_names(str(unit.backward).splitlines())) == {
        "MulDTanh": 2,
        "MulDSigmoid": 4,
        "Mul": 2,
        "Add": 1,
        "Mov": 4,
        "gemm: t0 = [log0] @ p0'": 1,
    }


def test_the_cell_of_list_reduction_stays_short() -> None:
    graph = ListReductionRNN().graph(ListReductionConfig(hidden=6, embedding=4, batch=5))
    unit = tile({u.name: u for u in lower(fuse(graph)).units}["cell"])
    assert unit.saved == ()  # operands and output are all that the way back needs
    assert str(unit.forward).splitlines() == [
        "gemm: y0 = [x0] @ p1[4:10] + p3[i0]",
        "rows:",
        "  y0 = Relu(y0)",
    ]
    assert str(unit.backward).splitlines() == [
        "rows:",
        "  log0 = MulStep(dy0, y0)",
        "  log1 = Mov(x0)",
        "gemm: dx0 = [log0] @ p1[4:10]'",
    ]
    assert unit.folds == (Fold(table=0, weight=1, first_row=0, width=4, bias=2),)
    assert unit.terms == (Term("take", 3, -1, 0, 0), Term("matmul", 1, 1, 0, first_row=4))


def test_a_folded_embedding_behind_the_rest() -> None:
    lines = forward(
        lambda p, h: tanh(concat(h, take(p.E, Field("i"))) @ p.W), {"h": 3}, {"E": (6, 2), "W": (5, 4)}
    )
    assert lines == ["gemm: y0 = [x0] @ p1[0:3] + p2[i0]", "rows:", "  y0 = Tanh(y0)"]


def test_a_folded_embedding_alone_is_a_row_of_a_table() -> None:
    shapes = {"E": (6, 2), "W": (2, 4), "b": (4,)}

    def function(p: Params, h: Value) -> Value:
        return tanh(linear(take(p.E, Field("i")), p.W, p.b) + h)

    assert forward(function, {"h": 4}, shapes) == ["rows:", "  y0 = Add(p3[i0], x0)", "  y0 = Tanh(y0)"]
    assert backward(function, {"h": 4}, shapes) == ["rows:", "  log0 = DTanh(dy0, y0)", "  dx0 = Mov(log0)"]


def test_two_folded_embeddings_of_a_sum_are_added() -> None:
    shapes = {"E": (6, 2), "F": (3, 2), "W": (2, 4), "U": (5, 4), "b": (4,)}

    def function(p: Params, h: Value) -> Value:
        return take(p.E, Field("i")) @ p.W + concat(take(p.F, Field("j")), h) @ p.U + row_param(p.b)

    assert forward(function, {"h": 3}, shapes) == [
        "gemm: y0 = [x0] @ p3[2:5] + p5[i0]",
        "rows:",
        "  y0 = Add(y0, p6[i1])",
    ]


def test_a_row_of_a_folded_table_is_chosen_before_the_product_begins() -> None:
    def function(p: Params, h: Value) -> Value:
        return concat(take(p.E, argmax(h)), h) @ p.W

    assert forward(function, {"h": 3}, {"E": (3, 2), "W": (5, 4)}) == [
        "rows:",
        "  i0 = Argmax(x0)",
        "gemm: y0 = [x0] @ p1[2:5] + p2[i0]",
    ]


Binary = Callable[[Value, Value], Value]

FUSED: dict[str, tuple[Binary, list[str]]] = {
    "fma": (lambda x, y: x * y + x, ["Fma"]),
    "fma-left": (lambda x, y: x + y * y, ["Fma"]),
    "two products": (lambda x, y: x * y + x * x, ["Mul", "Fma"]),
    "add-relu": (lambda x, y: relu(x + y), ["AddRelu"]),
    "negated": (lambda x, y: x + -y, ["Sub"]),
    "negated twice": (lambda x, y: x - -y, ["Add"]),
    "scales": (lambda x, y: x * 2.0 * 3.0 + y, ["Scale", "Add"]),
    "shifts": (lambda x, y: (x + 2.0 - 2.0) * y, ["Mul"]),
    "step": (lambda x, y: x * x.builder.emit("step", [y]), ["MulStep"]),
    "d-sigmoid": (lambda x, y: x * (y * (1.0 - y)), ["DSigmoid"]),
    "d-tanh": (lambda x, y: x * (1.0 - y * y), ["DTanh"]),
    "product d-sigmoid": (lambda x, y: x * x * (y * (1.0 - y)), ["MulDSigmoid"]),
    "product d-tanh": (lambda x, y: x * y * (1.0 - y * y), ["MulDTanh"]),
    "add a column": (lambda x, y: x + columns(y, 1, 1), ["AddCol"]),
    "subtract a column": (lambda x, y: x - columns(y, 1, 1), ["SubCol"]),
    "multiply by a column": (lambda x, y: columns(y, 1, 1) * x, ["MulCol"]),
    "divide by a column": (lambda x, y: x / columns(y, 1, 1), ["DivCol"]),
    "sum of a column": (lambda x, y: sum_cols(x * 2.0), ["SumCols", "Scale"]),
    "read twice": (lambda x, y: concat(x * y, x * y + x), ["Mul", "Add"]),
    "rest read twice": (lambda x, y: concat(x * (y * (1.0 - y)), 1.0 - y), ["Scale", "Shift", "Mul", "Mul"]),
}


@pytest.mark.parametrize("name", sorted(FUSED))
def test_operations_fuse_unless_somebody_else_reads(name: str) -> None:
    function, expected = FUSED[name]
    assert op_names(forward(function, {"x": 3, "y": 3})) == expected


def test_sums_of_products_accumulate() -> None:
    def function(p: Params, x: Value, h: Value) -> Value:
        return linear(x, p.W, p.b) + h @ p.U + x

    assert forward(function, {"x": 3, "h": 2}, {"W": (3, 3), "b": (3,), "U": (2, 3)}) == [
        "gemm: y0 = [x0] @ p0 + p1",
        "gemm: y0 += [x1] @ p2",
        "rows:",
        "  y0 = Add(y0, x0)",
    ]


def test_a_product_that_somebody_else_reads_is_no_accumulator() -> None:
    def function(p: Params, x: Value) -> list[Value]:
        y = x @ p.W
        return [y, y + row_param(p.b)]

    assert op_names(forward(function, {"x": 3}, {"W": (3, 3), "b": (3,)})) == ["gemm: y0 = [x0] @ p0", "Add"]


def test_a_bias_that_is_added_twice_counts_twice() -> None:
    def function(p: Params, x: Value) -> Value:
        return x @ p.W + row_param(p.b) + row_param(p.b)

    assert forward(function, {"x": 3}, {"W": (3, 3), "b": (3,)}) == [
        "gemm: y0 = [x0] @ p0 + p1",
        "rows:",
        "  y0 = Add(y0, p1)",
    ]


def test_what_nobody_reads_is_not_computed() -> None:
    def function(p: Params, x: Value) -> Value:
        return tanh(x @ p.W)

    assert op_names(backward(function, {"x": 3}, {"W": (3, 2)}, wrt=[])) == ["DTanh", "Mov"]


def test_nothing_to_compute_is_no_code() -> None:
    assert tiled(lambda x: tanh(x), {"x": 3}, wrt=[]).backward is None


def test_an_operand_without_gradient_gets_zeros() -> None:
    assert backward(lambda x, y: x * 2.0, {"x": 2, "y": 3}) == [
        "rows:",
        "  dx0 = Scale(dy0, 2)",
        "  dx1 = Fill(0)",
    ]


def test_chains_work_in_place_and_scratch_is_used_again() -> None:
    def function(x: Value, y: Value) -> Value:
        a = sum_cols(exp(sigmoid(tanh(x))))
        b = sum_cols(exp(sigmoid(tanh(y))))
        return a + b

    assert forward(function, {"x": 30, "y": 30}) == [
        "rows:",
        "  t0[0:30] = Tanh(x0)",
        "  t0[0:30] = Sigmoid(t0[0:30])",
        "  t0[0:30] = Exp(t0[0:30])",
        "  t0[32:33] = SumCols(t0[0:30])",
        "  t0[0:30] = Tanh(x1)",
        "  t0[0:30] = Sigmoid(t0[0:30])",
        "  t0[0:30] = Exp(t0[0:30])",
        "  y0 = SumCols(t0[0:30])",
        "  y0 = Add(t0[32:33], y0)",
    ]


def test_tables_are_read_where_they_are() -> None:
    def function(p: Params, x: Value) -> Value:
        return tanh(concat(take(p.E, Field("t")), x) @ p.W)

    unit = tiled(function, {"x": 2}, {"E": (FOLD_ROWS + 1, 3), "W": (5, 4)})
    assert str(unit.forward).splitlines() == [
        "gemm: y0 = [p0[i0], x0] @ p1",
        "rows:",
        "  y0 = Tanh(y0)",
        "  s0 = Mov(p0[i0])",  # the table may be updated before the way back
    ]


def test_a_row_that_the_code_chooses_is_read_in_a_later_phase() -> None:
    def function(p: Params, x: Value) -> Value:
        return take(p.E, argmax(x)) * x

    assert forward(function, {"x": 3}, {"E": (3, 3)}) == [
        "rows:",
        "  i0 = Argmax(x0)",
        "rows:",
        "  y0 = Mul(p0[i0], x0)",
    ]


def test_integers_that_the_way_back_reads_are_saved() -> None:
    unit = tiled(lambda x: pick(x, argmax(x)), {"x": 3})
    assert unit.saved == ((2, 0),)
    assert "  s0 = SaveInt(i0)" in str(unit.forward).splitlines()
    assert unit.backward is not None and str(unit.backward).splitlines() == [
        "rows:",
        "  i0 = LoadInt(s0)",
        "  dx0 = Place(dy0, i0)",
    ]


def test_terms_of_one_operand_share_log_buffers() -> None:
    def function(p: Params, x: Value) -> Value:
        y = linear(x, p.W, p.b)
        return y + take(p.E, Field("t"))

    unit = tiled(function, {"x": 3}, {"W": (3, 2), "b": (2,), "E": (5, 2)})
    assert unit.log_buffers == ((2, 0), (3, 0)) and unit.log_ints == (0,)
    assert {(t.kind, t.param, t.x, t.d, t.ints) for t in unit.terms} == {
        ("take", 2, -1, 0, 0),
        ("sum", 1, -1, 0, -1),
        ("matmul", 0, 1, 0, -1),
    }


def test_phases_are_few_and_spaces_are_told_apart() -> None:
    def function(p: Params, x: Value, y: Value) -> Value:
        a = spread_rows(tanh(y), "rows")
        return exp(x) @ p.W + a

    inputs = {"x": ValueType("float", "rows", 2), "y": ValueType("float", "one", 3)}
    code = tiled(function, inputs, {"W": (2, 3)}).inference
    assert code.factors == ()
    assert str(code).splitlines() == [
        "rows of space 0:",
        "  t0 = Tanh(x1)",
        "move: t1[0:3] = SpreadRows(t0) (space 0 to 1)",
        "rows of space 1:",
        "  t1[16:18] = Exp(x0)",
        "gemm: y0 = [t1[16:18]] @ p0",
        "rows of space 1:",
        "  y0 = Add(y0, t1[0:3])",
    ]
    assert tiled(lambda x: tanh(x), {"x": 3}).forward.factors == (1,)


def test_dropout_with_too_many_keys_is_refused() -> None:
    keys: list[Expr] = [Field(f"k{i}") for i in range(MAX_INT_ARGS)]
    with pytest.raises(ProgramError) as caught:
        tiled(lambda x: dropout(x, 0.5, keys), {"x": 3})
    assert str(caught.value) == (
        "dropout: 9 keys, of which the CPU's tile code takes 8; mix some of them into one expression"
    )
