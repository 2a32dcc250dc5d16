"""Kernels give the bits of the programs that they are made from."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.engine.lowering.lower import lower
from amphw.engine.numpy_plane.kernel import Kernel
from amphw.ir.functions import columns, concat, exp, linear, row_param, stop_gradient, tanh
from amphw.ir.passes import fuse
from amphw.ir.primitives import RowContext
from amphw.ir.primitives.images import Windows
from amphw.ir.program import Params, ParamSpec, Program, Value, trace
from tests.graphs.cases import Case, each_case

ROWS = 6


def rows_of(program: Program) -> dict[str, int]:
    """One row a message in every space but those of windows."""
    rows = dict.fromkeys({t.space for t in program.types} | {"rows"}, 1)
    for instr in program.instrs:
        attrs = instr.attr()
        if instr.op in ("patches", "unpatch"):
            image, window = (attrs["source"], attrs["space"])[:: 1 if instr.op == "patches" else -1]
            rows[window] = rows[image] * Windows.of(attrs).count
    return rows


def operands(
    program: Program, context: RowContext, rng: np.random.Generator
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Operands; integers are those that every table, column and row number admits. Numbers are whole where
    the network computes such an integer."""
    inputs, whole = [], any(instr.op == "to_int" for instr in program.instrs)
    for _, t in program.inputs:
        n = context.total(t.space)
        float_rows = rng.uniform(0.1, 1.0, (n, t.width)).astype(np.float32)
        float_rows = np.round(float_rows) if whole else float_rows
        inputs.append(float_rows if t.kind == "float" else np.zeros(n, np.int64))
    return inputs, [np.zeros(context.total(space), np.int64) for _, space in program.ints]


def assert_same_bits(program: Program) -> None:
    rng = np.random.default_rng(1)
    context = RowContext(ROWS, rows_of(program))
    params = {p.name: rng.normal(size=p.shape).astype(np.float32) for p in program.params}
    floats, ints = operands(program, context, rng)
    before = [a.copy() for a in floats]
    with np.errstate(all="ignore"):
        expected = program.run(context, floats, ints, params)
        found = Kernel(program).run(context, floats, ints, params)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype
    for a, b in zip(floats, before, strict=True):
        np.testing.assert_array_equal(a, b)  # operands belong to others


@each_case()
def test_every_program_of_the_graphs(case: Case) -> None:
    for unit in lower(fuse(case.build())).units:
        if unit.derivative is not None and unit.inference is not None:
            for program in (unit.derivative.forward, unit.derivative.backward, unit.inference):
                assert_same_bits(program)


def _viewed(p: Params, x: Value) -> Value:
    y = x @ p.W  # read through a view after the only sum that could overwrite it
    return concat(tanh(y), columns(y, 0, 2))


def _stopped(p: Params, x: Value) -> Value:
    y = x @ p.W
    kept = stop_gradient(y)
    return exp(y) + kept


def _twice(p: Params, x: Value) -> list[Value]:
    y = x @ p.W
    return [y, y + y, tanh(y + row_param(p.b))]


def _bias_alone(p: Params, x: Value) -> list[Value]:
    bias = row_param(p.b)
    return [bias, linear(x, p.W) + bias, bias + x @ p.W, bias * 2.0, bias + bias]


@pytest.mark.parametrize("function", [_viewed, _stopped, _twice, _bias_alone])
def test_nothing_is_overwritten_that_is_still_read(function: object) -> None:
    params: dict[str, tuple[int, ...] | ParamSpec] = {"W": (3, 4)}
    if function in (_twice, _bias_alone):
        params["b"] = (4,)
    assert_same_bits(trace(function, {"x": 3}, params))  # type: ignore[arg-type]
