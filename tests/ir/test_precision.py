"""What products are taken of: rounding to bfloat16, and the reference with it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amphw.ir.derive import accumulate
from amphw.ir.device import DeviceOptions
from amphw.ir.errors import AmphwError
from amphw.ir.functions import linear
from amphw.ir.precision import PRECISIONS, only_float32, precision_of, rounded, rounded_product
from amphw.ir.primitives import RowContext
from amphw.ir.program import trace
from amphw.ir.reference import ReferenceDevice, gradients_of
from amphw.ir.update import UpdateRule
from tests.graphs import rnn

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
SMALLEST = 2.0**-126
LARGEST = 2.0**127 * (2 - 2.0**-7)


def one(x: float, dtype: type) -> float:
    return float(rounded(np.array([x], dtype))[0])


@given(floats)
@example(1.00390625)
@example(1.01171875)
@example(-LARGEST)
@example(3.4e38)
def test_the_nearest_number_and_the_even_one_of_two(x: float) -> None:
    found = one(x, np.float32)
    assert math.copysign(1, found) == math.copysign(1, x)
    if math.isinf(found):
        assert abs(x) >= LARGEST + 2.0**119  # half way to 2^128
        return
    bits = int(np.float32(found).view(np.uint32))
    assert bits & 0xFFFF == 0
    # Neighbours by magnitude, in float64, where their distances are exact.
    around = [np.uint32(bits + step).view(np.float32) for step in (-0x10000, 0x10000) if bits + step >= 0]
    for other in (float(n) for n in around if np.isfinite(n) and (n < 0) == (found < 0)):
        mine, theirs = abs(x - found), abs(x - other)
        assert mine < theirs or (mine == theirs and bits & 0x10000 == 0)


@given(floats)
def test_both_types_of_number_round_alike(x: float) -> None:
    if abs(x) >= SMALLEST:
        assert one(x, np.float64) == one(x, np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_no_ordinary_number(dtype: type) -> None:
    odd = np.array([np.inf, -np.inf, 0.0, -0.0, np.nan, -np.nan, 3.4e38, -3.4e38], dtype)
    found = rounded(odd)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, [np.inf, -np.inf, 0, 0, np.nan, np.nan, np.inf, -np.inf])
    assert np.signbit(found[3]) and not np.signbit(found[2])
    # Every bit of the mantissa, and a single one that is dropped: it must not become infinite.
    for word in (0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001):
        assert np.isnan(rounded(np.array([word], np.uint32).view(np.float32))).all()


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 99))
def test_any_shape_and_order_in_memory(m: int, k: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(k, m)).T, rng.normal(size=(n, k)).T[:, ::-1]
    assert rounded(a).shape == (m, k)
    np.testing.assert_array_equal(rounded(a), [[one(x, np.float64) for x in row] for row in a] or a)
    np.testing.assert_allclose(rounded_product(a, b), rounded(a) @ rounded(b), rtol=1e-14, atol=1e-14)


def test_a_program_rounds_for_products_and_nothing_else() -> None:
    rng = np.random.default_rng(1)
    w, b, x = rng.normal(size=(3, 2)), rng.normal(size=2), rng.normal(size=(4, 3))
    program = trace(lambda p, x: linear(x, p.W, p.b), {"x": 3}, {"W": (3, 2), "b": (2,)})
    context = RowContext(4, {"rows": 1}, np.float64, PRECISIONS["bf16"])
    (found,) = program.run(context, [x], [], {"W": w, "b": b})
    np.testing.assert_allclose(found, rounded(x) @ rounded(w) + b, rtol=1e-15)
    gradient = np.zeros((3, 2))
    accumulate("matmul", gradient, x, found, PRECISIONS["bf16"])
    np.testing.assert_allclose(gradient, rounded(x).T @ rounded(found), rtol=1e-15)
    for kind, a, shape in (("sum", None, 2), ("take", np.array([0, 1, 1, 0]), (2, 2))):
        plain, there = np.zeros(shape), np.zeros(shape)
        accumulate(kind, plain, a, found)
        accumulate(kind, there, a, found, PRECISIONS["bf16"])
        np.testing.assert_array_equal(plain, there)


def test_the_reference_takes_the_setting() -> None:
    graph, instance = rnn.build(), rnn.instance(np.random.default_rng(2), length=3, batch=2)
    found = {}
    for precision in PRECISIONS:
        device = ReferenceDevice(dtype=np.float64)
        device.load(
            graph, {"*": UpdateRule()}, DeviceOptions(1, 1, "off", 3, settings={"precision": precision})
        )
        found[precision] = gradients_of(device, instance)
    apart = [
        np.abs(found["bf16"][node][name] - g).max() / np.abs(g).max()
        for node, each in found["float32"].items()
        for name, g in each.items()
        if g.any()
    ]
    assert 1e-5 < max(apart) < 0.05


def test_other_settings_are_refused() -> None:
    with pytest.raises(AmphwError, match="^device.precision = 'fp8', allowed is float32, bf16$"):
        precision_of({"precision": "fp8"})
    only_float32({}, "opencl:0")
    with pytest.raises(AmphwError, match="'bf16' is for a run on the CPU alone, and opencl:0 is none"):
        only_float32({"precision": "bf16"}, "opencl:0")
