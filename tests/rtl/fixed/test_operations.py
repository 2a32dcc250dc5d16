"""Operations in numpy against the definition that gates share, evaluated on Python's integers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from amphw.ir.primitives import RowContext
from amphw.rtl.fixed.operations import OPERATIONS, plain, rounded
from amphw.rtl.numbers.arithmetic import narrow, round_shift, saturate
from amphw.rtl.numbers.formats import Format

WORD = st.integers(-(1 << 15), (1 << 15) - 1)
WIDE = st.integers(-(1 << 46), (1 << 46) - 1)


def dot(a: np.ndarray, b: np.ndarray) -> int:
    return sum(int(x) * int(y) for x, y in zip(a, b, strict=True))


def choose(condition: bool, a: int, b: int) -> int:
    return a if condition else b


@given(WIDE, st.integers(0, 31))
def test_rounding_takes_the_nearest_and_of_two_the_even_one(x: int, shift: int) -> None:
    assert round_shift(x, shift) == round(Fraction(x, 1 << shift))


@given(WIDE, st.integers(2, 40))
def test_saturation_takes_the_nearest_number_there_is(x: int, bits: int) -> None:
    assert saturate(x, bits, choose) == min(max(x, -(1 << (bits - 1))), (1 << (bits - 1)) - 1)


@given(st.lists(WIDE, min_size=1, max_size=20), st.integers(-8, 31), st.sampled_from([np.int64, np.float64]))
def test_narrowing_in_numpy_is_the_definition(xs: list[int], shift: int, kind: type) -> None:
    expected = [narrow(x, shift, 16, choose) for x in xs]
    found = plain(np.array(xs, kind), shift)
    assert found.dtype == np.int64
    assert found.tolist() == expected


@given(st.integers(1 << 53, (1 << 62) - 1), st.integers(0, 31), st.sampled_from([1, -1]))
def test_what_doubles_do_not_hold_saturates_all_the_same(x: int, shift: int, sign: int) -> None:
    assert plain(np.array([sign * x]), shift).tolist() == [narrow(sign * x, shift, 16, choose)]


def test_rounding_keeps_the_operand() -> None:
    x = np.array([5, -5])
    rounded(x, 1)
    plain(x, 0)
    assert x.tolist() == [5, -5]


rows = st.integers(1, 5)
matrices = st.tuples(rows, st.integers(1, 6), st.integers(1, 4)).flatmap(
    lambda s: st.tuples(
        arrays.arrays(np.int64, (s[0], s[1]), elements=WORD),
        arrays.arrays(np.int64, (s[1], s[2]), elements=WORD),
        arrays.arrays(np.int64, (s[2],), elements=WORD),
    )
)


@given(matrices, st.integers(0, 15), st.integers(0, 15), st.sampled_from([np.int64, np.float64]))
def test_a_product_and_its_bias_are_rounded_once(
    drawn: tuple[np.ndarray, np.ndarray, np.ndarray], shift: int, lift: int, weights: type
) -> None:
    x, w, b = drawn
    at = {"param": "W", "bias": "b", "shift": shift, "lift": lift, "space": "rows"}
    params = {"W": w.astype(weights), "b": b.astype(weights)}
    found = OPERATIONS["affine"](RowContext(len(x), {"rows": 1}), at, params, [x], plain)
    expected = [
        [
            narrow(dot(row, column) + (int(z) << lift), shift, 16, choose)
            for column, z in zip(w.T, b, strict=True)
        ]
        for row in x
    ]
    assert found.tolist() == expected
    back = OPERATIONS["affine_t"](RowContext(len(x), {"rows": 1}), at, params, [found], plain)
    assert back.tolist() == [[narrow(dot(row, r), shift, 16, choose) for r in w] for row in found]


def test_a_bias_alone_is_as_high_as_the_frame() -> None:
    at = {"param": None, "bias": "b", "shift": 4, "lift": 2, "space": "rows"}
    found = OPERATIONS["affine"](RowContext(2, {"rows": 2}), at, {"b": np.array([8, 6])}, [], plain)
    assert found.tolist() == [[2, 2]] * 4


@given(st.lists(st.tuples(st.integers(0, 2), WORD), min_size=1, max_size=12))
def test_rows_are_added_one_by_one_and_each_sum_saturates(drawn: list[tuple[int, int]]) -> None:
    to, values = np.array([t for t, _ in drawn]), np.array([[v] for _, v in drawn])
    expected = [0, 0, 0]
    for t, v in drawn:
        expected[t] = saturate(expected[t] + v, 16, choose)
    ctx = RowContext(1, {"rows": len(drawn), "out": 3})
    at = {"space": "out", "source": "rows"}
    assert OPERATIONS["scatter_rows"](ctx, at, {}, [values, to], plain).ravel().tolist() == expected


@pytest.mark.parametrize(
    "op, attrs, operands, expected",
    [
        ("add", {}, [30000, 5000], 32767),
        ("sub", {}, [-30000, 5000], -32768),
        ("mul", {"shift": 12}, [-4096, 12345], -12345),
        ("scale", {"constant": 3, "shift": 1}, [5], 8),
        ("shift", {"constant": -7}, [-32767], -32768),
        ("abs", {}, [-32768], 32767),
        ("relu", {}, [-1], 0),
        ("gate", {}, [77, 0], 0),
        ("gate", {}, [77, 1], 77),
        ("step", {"constant": 4096}, [1], 4096),
        ("sign", {"constant": 4096}, [-3], -4096),
        ("equal", {"constant": 4096}, [9, 9], 4096),
        ("above", {"constant": 5}, [6], 1),
        ("maximum", {}, [-5, 3], 3),
    ],
)
def test_operations_on_one_number(op: str, attrs: dict[str, int], operands: list[int], expected: int) -> None:
    found = OPERATIONS[op](RowContext(1, {"rows": 1}), attrs, {}, [np.array([[x]]) for x in operands], plain)
    assert found.ravel().tolist() == [expected]


@given(st.floats(-20, 20))
def test_a_format_takes_the_nearest_number_that_it_has(x: float) -> None:
    f = Format(12)
    (found,) = f.real(f.quantise(np.array([x])))
    assert abs(found - min(max(x, -8.0), 8 - 2**-12)) <= 2**-13
