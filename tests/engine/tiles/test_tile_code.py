"""Tile code is what the engine reads, and the peepholes leave of it what they should."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import planes
from amphw.engine import native_headers
from amphw.engine.environment import ENGINE
from amphw.engine.lowering.lower import lower
from amphw.engine.tiles.code import MAX_INT_ARGS, Fold, PhaseKind, Place, Term, TiledUnit
from amphw.engine.tiles.fold import FOLD_ROWS
from amphw.engine.tiles.operations import Op
from amphw.engine.tiles.tiling import tile, tile_programs
from amphw.ir.derive import differentiate, inference
from amphw.ir.errors import AmphwError, ProgramError
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
from amphw.ir.passes import fuse
from amphw.ir.primitives import RowContext, ValueType
from amphw.ir.program import Params, Value, trace
from amphw.models.list_reduction import ListReductionConfig, ListReductionRNN
from tests.engine.tiles.tile_checks import Checked
from tests.graphs import tree

# --- the contract -------------------------------------------------------------------------------


def test_an_engine_of_other_definitions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planes, "fingerprint", lambda: "0123456789abcdef")
    monkeypatch.delenv(ENGINE, raising=False)
    assert not planes.built()
    with pytest.raises(AmphwError, match="built from other definitions .* install amphw again"):
        planes.chosen()
    monkeypatch.setenv(ENGINE, "numpy")
    assert planes.chosen()[0].name != "C++ data plane"


def test_headers_are_written_when_they_change_alone(tmp_path: Path) -> None:
    native_headers.write(tmp_path)
    path = tmp_path / "operations.hpp"
    for kind in (Place, Op, PhaseKind):
        assert (
            f"enum class {kind.__name__} : int32_t {{ {', '.join(e.name for e in kind)} }};"
            in path.read_text()
        )
    os.utime(path, (0, 0))
    native_headers.write(tmp_path)
    assert path.stat().st_mtime == 0
    path.write_text("stale")
    native_headers.write(tmp_path)
    assert native_headers.fingerprint() in path.read_text()


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
