"""Tile code run by the native kernels against numpy, for every instruction set that this machine runs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amphw.ir import rng as counter_rng
from amphw.ir.errors import ProgramError
from amphw.ir.primitives import PRIMITIVES, RowContext
from amphw.ir.primitives.images import Windows

native = pytest.importorskip("amphw.engine._native", reason="the native data plane is not built")
kernels = native.kernels

ISAS = kernels.isa_names()
WIDTHS = [1, 3, 15, 16, 17, 31, 48, 150, 750]
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.0]
GUARD = np.float32(7.5)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def guarded(rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """A matrix inside a larger one, which `assert_guarded` finds untouched around it."""
    whole = np.full((rows, width + 7), GUARD)
    return whole, whole[:, 3 : 3 + width]


def assert_guarded(whole: np.ndarray, width: int) -> None:
    assert (whole[:, :3] == GUARD).all() and (whole[:, 3 + width :] == GUARD).all()


def instruction(
    op: str, n: int, operands: int, f: float = 0.0, ints: tuple[int, ...] = (), seed: int = 0
) -> tuple:
    """`op` on whole rows: the result is base 0, the operands are bases 1, 2, ..."""
    return (op, n, [(i, 0) for i in range(operands + 1)], f, list(ints), seed)


NO_INTS = np.zeros((0, 0), np.int64)


def run(
    isa: str, op: str, operands: list[np.ndarray], f: float = 0.0, width: int | None = None
) -> np.ndarray:
    """One instruction over all rows of its operands; columns beside the result must not change."""
    rows, n = operands[0].shape
    whole, result = guarded(rows, n if width is None else width)
    line = instruction(op, n, len(operands), f)
    kernels.rows(isa, [line], [result, *operands], NO_INTS, 0, rows)
    assert_guarded(whole, result.shape[1])
    return result.copy()


# Operations of one rounding give numpy's bits.
EXACT: dict[str, tuple[int, Callable[..., np.ndarray]]] = {
    "Mov": (1, lambda a: a),
    "Add": (2, np.add),
    "Sub": (2, np.subtract),
    "Mul": (2, np.multiply),
    "Div": (2, np.divide),
    "Scale": (1, lambda a: a * np.float32(0.3)),
    "Shift": (1, lambda a: a + np.float32(0.3)),
    "Fill": (1, lambda a: np.full_like(a, 0.3)),
    "Relu": (1, lambda a: np.maximum(a, 0)),
    "Step": (1, lambda a: (a > 0).astype(np.float32)),
    "Sqrt": (1, np.sqrt),
    "Abs": (1, np.abs),
    "Sign": (1, np.sign),
    "Equal": (2, lambda a, b: (a == b).astype(np.float32)),
    "Maximum": (2, np.maximum),
    "AddRelu": (2, lambda a, b: np.maximum(a + b, 0)),
    "MulStep": (2, lambda a, b: np.where(b > 0, a, np.float32(0))),
}
# Operations of several roundings may differ in the last bits.
CLOSE: dict[str, tuple[int, Callable[..., np.ndarray]]] = {
    "Sigmoid": (1, lambda a: 1 / (1 + np.exp(-a))),
    "Tanh": (1, np.tanh),
    "Exp": (1, np.exp),
    "ExpSub": (2, lambda a, b: np.exp(a - b)),
    "Log": (1, np.log),
    "NormalCdf": (1, np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2.0)))),
    "Softplus": (1, lambda a: np.logaddexp(a, 0)),
    "Fma": (3, lambda a, b, c: a * b + c),
    "DSigmoid": (2, lambda a, b: a * (b * (1 - b))),
    "DTanh": (2, lambda a, b: a * (1 - b * b)),
    "MulDSigmoid": (3, lambda a, b, c: a * b * (c * (1 - c))),
    "MulDTanh": (3, lambda a, b, c: a * b * (1 - c * c)),
}
ROUGHER = {"NormalCdf": 1e-6, "ExpSub": 1e-6}
"""Relative errors: exp(-x^2 / 2) makes x^2 times one of the rounding of x^2, exp(x) x times that of x."""

BY_COLUMN = {"AddCol": np.add, "SubCol": np.subtract, "MulCol": np.multiply, "DivCol": np.divide}
CLOSE_BY_COLUMN = {"ExpSubCol": lambda a, b: np.exp(a - b)}
WITH_INTEGERS = {
    "Pick", "Place", "AddAt", "Dropout", "Uniform", "Argmax", "Above", "ToInt", "ToFloat", "SameInt",
    "SaveInt", "LoadInt",
}  # fmt: skip
REDUCING = {"SumCols", "MaxCols", "SpreadCols"}


def test_every_operation_is_tested() -> None:
    by_column = {*BY_COLUMN, *CLOSE_BY_COLUMN}
    assert {*EXACT, *CLOSE} | by_column | WITH_INTEGERS | REDUCING == set(kernels.op_names())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("op", [*EXACT, *CLOSE])
def test_elementwise(isa: str, op: str) -> None:
    count, expected = {**EXACT, **CLOSE}[op]
    rng = np.random.default_rng(1)
    for width in WIDTHS:
        operands = [normal(rng, 5, width) for _ in range(count)]
        if op in ("Sqrt", "Log"):
            operands = [np.abs(a) for a in operands]
        if op == "Equal":
            operands[1][:, ::2] = operands[0][:, ::2]
        found = run(isa, op, operands, 0.3)
        if op in EXACT:
            np.testing.assert_array_equal(found, expected(*operands))
        else:
            wanted = expected(*(a.astype(np.float64) for a in operands))
            np.testing.assert_allclose(
                found, wanted, rtol=ROUGHER.get(op, 2e-7), atol=2e-6 if count > 1 else 0
            )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("op", [*EXACT, *CLOSE])
def test_nan_and_infinity_go_where_they_go_in_numpy(isa: str, op: str) -> None:
    count, expected = {**EXACT, **CLOSE}[op]
    grid = np.meshgrid(*[np.array(SPECIAL, np.float32)] * count)
    operands = [np.ascontiguousarray(a.reshape(1, -1)) for a in grid]
    with np.errstate(all="ignore"):
        wanted = expected(*operands)
    np.testing.assert_allclose(run(isa, op, operands, 0.3), wanted, rtol=1e-6, equal_nan=True)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("op", ["Exp", "Sigmoid", "Tanh", "Log"])
def test_transcendental_functions_over_all_magnitudes(isa: str, op: str) -> None:
    """Every 4001st float there is. Relative errors, so the smallest results count like the largest."""
    x = np.arange(0, 2**32, 4001, dtype=np.uint64).astype(np.uint32).view(np.float32)
    edges = np.array([88.72283, 88.7229, -87.33655, -103.9, -104.1, 9.01, 9.02, 1.0], np.float32)
    x = np.resize(np.concatenate([edges, x]), (4, len(x) // 4))
    with np.errstate(all="ignore"):
        wanted = CLOSE[op][1](x.astype(np.float64))
        rounded = wanted.astype(np.float32)
    found = run(isa, op, [x])
    least = np.finfo(np.float32).tiny
    ordinary = np.isfinite(rounded) & (np.abs(wanted) >= least)
    np.testing.assert_allclose(found[ordinary], wanted[ordinary], rtol=2e-7)
    beyond = ~np.isfinite(rounded)
    np.testing.assert_array_equal(found[beyond], rounded[beyond])
    vanishing = np.abs(wanted) < least
    assert (np.abs(found[vanishing]) <= least).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", WIDTHS)
def test_operations_with_a_column(isa: str, width: int) -> None:
    rng = np.random.default_rng(2)
    a, b = normal(rng, 4, width), normal(rng, 4, 1)
    for op, expected in BY_COLUMN.items():
        np.testing.assert_array_equal(run(isa, op, [a, b]), expected(a, b))
    for op, expected in CLOSE_BY_COLUMN.items():
        np.testing.assert_allclose(run(isa, op, [a, b]), expected(a, b), rtol=1e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", WIDTHS)
def test_reductions_of_columns(isa: str, width: int) -> None:
    a = normal(np.random.default_rng(3), 6, width)
    exact = a.astype(np.float64).sum(axis=1)
    assert (np.abs(run(isa, "SumCols", [a], width=1)[:, 0] - exact) <= 1e-6 * np.abs(a).sum(axis=1)).all()
    a[1, width // 2] = math.nan
    a[2, width - 1] = math.nan
    a[3] = -math.inf
    np.testing.assert_array_equal(run(isa, "MaxCols", [a], width=1)[:, 0], a.max(axis=1))
    whole, spread = guarded(6, width)
    kernels.rows(isa, [instruction("SpreadCols", width, 1)], [spread, a], NO_INTS, 0, 6)
    np.testing.assert_array_equal(spread, np.repeat(a[:, :1], width, axis=1))
    assert_guarded(whole, width)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", WIDTHS)
def test_integers_read_off_rows(isa: str, width: int) -> None:
    rng = np.random.default_rng(4)
    a = rng.integers(-3, 3, (20, width)).astype(np.float32)  # many equal maxima
    a[1, width // 2 :] = math.nan
    a[2, 0] = a[2, width - 1] = math.nan
    found = np.zeros((1, 20), np.int64)
    kernels.rows(isa, [("Argmax", width, [(-1, 0), (0, 0)], 0.0, [0], 0)], [a], found, 0, 20)
    np.testing.assert_array_equal(found[0], a.argmax(axis=1))
    kernels.rows(isa, [("Above", 1, [(-1, 0), (0, 0)], 0.5, [0], 0)], [a], found, 0, 20)
    np.testing.assert_array_equal(found[0], a[:, 0] > np.float32(0.5))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", WIDTHS)
def test_columns_chosen_by_integers(isa: str, width: int) -> None:
    rng = np.random.default_rng(5)
    a = normal(rng, 9, width)
    ints = rng.integers(0, width, (1, 9))
    picked = np.zeros((9, 1), np.float32)
    pick, place = instruction("Pick", width, 1, ints=(0,)), instruction("Place", width, 1, ints=(0,))
    kernels.rows(isa, [pick], [picked, a], ints, 0, 9)
    np.testing.assert_array_equal(picked, np.take_along_axis(a, ints.T, axis=1))
    whole, placed = guarded(9, width)
    kernels.rows(isa, [place], [placed, picked], ints, 0, 9)
    wanted = np.zeros_like(a)
    np.put_along_axis(wanted, ints.T, picked, axis=1)
    np.testing.assert_array_equal(placed, wanted)
    assert_guarded(whole, width)
    for wrong in (-1, width, 2**40):
        ints[0, 4] = wrong
        with pytest.raises(ValueError, match="pick: a column number is outside its operand"):
            kernels.rows(isa, [pick], [picked, a], ints, 0, 9)
        with pytest.raises(ValueError, match="place: a column number is outside the result"):
            kernels.rows(isa, [place], [placed, picked], ints, 0, 9)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_number_is_added_in_a_column(isa: str, width: int) -> None:
    """In a row of its own, or over the one that it is added to."""
    rng = np.random.default_rng(6)
    a, b = normal(rng, 9, width), normal(rng, 9, 1)
    ints = rng.integers(0, width, (1, 9))
    wanted = a.copy()
    wanted[np.arange(9), ints[0]] += b[:, 0]
    whole, out = guarded(9, width)
    kernels.rows(isa, [instruction("AddAt", width, 2, ints=(0,))], [out, a, b], ints, 0, 9)
    np.testing.assert_array_equal(out, wanted)
    assert_guarded(whole, width)
    out[:] = a
    inside = ("AddAt", width, [(0, 0), (0, 0), (1, 0)], 0.0, [0], 0)
    kernels.rows(isa, [inside], [out, b], ints, 0, 9)
    np.testing.assert_array_equal(out, wanted)
    assert_guarded(whole, width)
    ints[0, 4] = width
    with pytest.raises(ValueError, match="place: a column number is outside the result"):
        kernels.rows(isa, [inside], [out, b], ints, 0, 9)


@pytest.mark.parametrize("isa", ISAS)
def test_integers_and_floats(isa: str) -> None:
    ints = np.array([[0, -5, 2**62 + 1, -(2**63), 7], [0, 5, 2**62 + 1, 2**63 - 1, 7]])
    out = np.zeros((5, 2), np.float32)
    kernels.rows(isa, [("ToFloat", 1, [(0, 0)], 0.0, [0], 0)], [out], ints, 0, 5)
    np.testing.assert_array_equal(out[:, 0], ints[0].astype(np.float32))
    kernels.rows(isa, [("SameInt", 1, [(0, 0)], 0.0, [0, 1], 0)], [out], ints, 0, 5)
    np.testing.assert_array_equal(out[:, 0], (ints[0] == ints[1]).astype(np.float32))
    kernels.rows(isa, [("SaveInt", 2, [(0, 0)], 0.0, [0], 0)], [out], ints, 0, 5)
    back = np.zeros((1, 5), np.int64)
    kernels.rows(isa, [("LoadInt", 2, [(-1, 0), (0, 0)], 0.0, [0], 0)], [out], back, 0, 5)
    np.testing.assert_array_equal(back[0], ints[0])


@pytest.mark.parametrize("isa", ISAS)
def test_whole_numbers_are_integers(isa: str) -> None:
    numbers = np.array([[0.0], [-0.0], [-7.0], [19_999.0], [2.0**24]], np.float32)
    found = np.zeros((1, 5), np.int64)
    to_int = ("ToInt", 1, [(-1, 0), (0, 0)], 0.0, [0], 0)
    kernels.rows(isa, [to_int], [numbers], found, 0, 5)
    np.testing.assert_array_equal(found[0], numbers[:, 0])
    for wrong in (0.5, 3.9999998, 2.0**24 + 2, 1e30, math.inf, -math.inf, math.nan):
        numbers[3] = wrong
        with pytest.raises(ValueError, match="to_int: an index is no whole number"):
            kernels.rows(isa, [to_int], [numbers], found, 0, 5)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", WIDTHS)
def test_uniform_numbers_are_those_of_the_definition(isa: str, width: int) -> None:
    ints = np.random.default_rng(5).integers(-(2**63), 2**63 - 1, (3, 6))
    whole, found = guarded(6, width)
    kernels.rows(isa, [("Uniform", width, [(0, 0)], 0.0, [0, 1, 2], 2**33 + 9)], [found], ints, 0, 6)
    np.testing.assert_array_equal(found, counter_rng.uniform(list(ints), 2**33 + 9, 6, width))
    assert_guarded(whole, width)


@settings(max_examples=60)
@given(
    st.sampled_from(ISAS),
    st.sampled_from(WIDTHS),
    st.integers(0, 2**32 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 4),
    st.floats(0, 0.99),
)
def test_dropout_draws_the_same_mask(
    isa: str, width: int, values: int, seed: int, words: int, rate: float
) -> None:
    rng = np.random.default_rng(values)
    ints = rng.integers(-(2**63), 2**63 - 1, (words, 6))
    a = normal(rng, 6, width)
    whole, found = guarded(6, width)
    kernels.rows(
        isa, [instruction("Dropout", width, 1, rate, tuple(range(words)), seed)], [found, a], ints, 0, 6
    )
    keep = counter_rng.uniform(list(ints), seed, 6, width) >= np.float32(rate)
    np.testing.assert_array_equal(found != 0, keep & (a != 0))
    # An instruction holds the rate as a float, so that 1 / (1 - rate) may differ from the exact one's.
    wanted = a * keep * np.float32(1 / (1 - rate))
    np.testing.assert_allclose(found, wanted, rtol=(4 + 1 / (1 - rate)) * 2.0**-24)
    assert_guarded(whole, width)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", [1, 17, 150, 2000])
def test_code_of_several_instructions_on_some_rows(isa: str, width: int) -> None:
    """Offsets, rows that are left out, operands that are results, and rows that several rows share."""
    rows, first, count = 40, 3, 30
    rng = np.random.default_rng(6)
    a, b = normal(rng, rows, width + 5), normal(rng, rows, 2 * width)
    d = np.full((rows, width + 5), GUARD)
    shared = np.zeros((1, width), np.float32)
    code: list[tuple] = [
        ("Mul", width, [(2, 5), (0, 5), (1, width)], 0.0, [], 0),
        ("Tanh", width, [(2, 5), (2, 5)], 0.0, [], 0),
        ("Fma", width, [(2, 5), (2, 5), (1, 0), (0, 5)], 0.0, [], 0),
        ("Add", width, [(3, 0), (3, 0), (2, 5)], 0.0, [], 0),
    ]
    same_row = np.lib.stride_tricks.as_strided(shared, (rows, width), (0, 4))
    kernels.rows(isa, code, [a, b, d, same_row], NO_INTS, first, count)
    wanted = np.tanh(a[:, 5:].astype(np.float64) * b[:, width:]) * b[:, :width] + a[:, 5:]
    some = slice(first, first + count)
    np.testing.assert_allclose(d[some, 5:], wanted[some], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(shared[0], wanted[some].sum(axis=0), rtol=1e-5, atol=1e-4)
    assert (d[:, :5] == GUARD).all() and (d[:first] == GUARD).all() and (d[first + count :] == GUARD).all()


# --- windows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=60)
@given(
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 19)),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(0, 2**32 - 1),
)
def test_windows(
    isa: str, image: tuple[int, int, int], size: tuple[int, int], stride: int, padding: int, seed: int
) -> None:
    try:
        windows = Windows(image, size, stride, padding)
    except ProgramError:
        return
    rng = np.random.default_rng(seed)
    geometry = [*image, *size, stride, padding]
    attrs = {**windows.attrs, "space": "windows", "source": "rows"}
    context = RowContext(1, {"rows": 1, "windows": windows.count})

    x = normal(rng, 1, windows.columns)
    whole, found = guarded(windows.count, windows.width)
    kernels.patches(isa, geometry, x[0], found)
    assert_guarded(whole, windows.width)
    np.testing.assert_array_equal(found, PRIMITIVES["patches"].evaluate(context, attrs, {}, [x]))

    rows = normal(rng, windows.count, windows.width)
    whole, found = guarded(1, windows.columns)
    kernels.unpatch(isa, geometry, rows, found[0])
    assert_guarded(whole, windows.columns)
    expected = PRIMITIVES["unpatch"].evaluate(context, attrs, {}, [rows])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
