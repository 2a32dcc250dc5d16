"""Native products of bfloat16 against their definition, in every form that this machine runs: what
`amphw.ir.precision` rounds, multiplied as `test_kernels.py` has it of float32."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.ir.precision import rounded
from tests.engine.test_kernels import (
    assert_guarded,
    assert_product,
    cases,
    guarded,
    kernels,
    layouts,
    normal,
    seeds,
    widths,
)

ISAS = kernels.isa_names(bf16=True)
isas = st.sampled_from(ISAS)
each = pytest.mark.parametrize("isa", ISAS)


@cases
@given(
    isas,
    st.integers(1, 40),
    st.lists(widths, min_size=1, max_size=3),
    widths,
    layouts,
    st.sampled_from(["", "bias", "start"]),
    st.booleans(),
    st.tuples(st.sampled_from([0, 1, 16, 19]), st.sampled_from([0, 5])),
    seeds,
)
def test_gemm(
    isa: str,
    rows: int,
    segments: list[int],
    cols: int,
    layout: str,
    begins: str,
    accumulate: bool,
    others: tuple[int, int],
    seed: int,
) -> None:
    """others: rows of b in front of those that are multiplied, and behind them, so that pairs begin at
    either."""
    rng = np.random.default_rng(seed)
    a = [normal(rng, rows, width + 2)[:, 1:-1] for width in segments]
    b, bias, start = (
        normal(rng, sum(segments) + sum(others), cols),
        normal(rng, cols),
        normal(rng, rows, cols),
    )
    whole, c = guarded(rows, cols)
    c[...] = normal(rng, rows, cols)
    before = c * np.float32(accumulate)
    given_bias, given_start = bias if begins == "bias" else None, start if begins == "start" else None
    kernels.gemm(
        isa, a, b, given_bias, c, accumulate, layout, first_row=others[0], start=given_start, bf16=True
    )
    first = {"": np.zeros(cols), "bias": bias, "start": start}[begins]
    part = rounded(b[others[0] : len(b) - others[1]])
    assert_product(c, rounded(np.concatenate(a, axis=1)), part, before, first)
    assert_guarded(whole, cols)


@cases
@given(
    isas,
    st.integers(1, 300),
    widths,
    widths,
    layouts,
    st.tuples(st.integers(0, 20), st.integers(0, 20)),
    seeds,
)
def test_gradient(
    isa: str, rows: int, x_cols: int, d_cols: int, layout: str, others: tuple[int, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x, d = normal(rng, rows, x_cols + 3)[:, 1:-2], normal(rng, rows, d_cols + 3)[:, 1:-2]
    g = normal(rng, sum(others) + x_cols, d_cols)
    before = g.copy()
    kernels.gradient(isa, x, d, g, layout, first_row=others[0], bf16=True)
    part = slice(others[0], others[0] + x_cols)
    assert_product(g[part], rounded(x).T, rounded(d), before[part])
    before[part] = g[part]
    np.testing.assert_array_equal(g, before)


@each
@given(values=st.lists(st.floats(width=32, allow_subnormal=False), min_size=1, max_size=40))
def test_what_is_packed_is_rounded_to_the_bit(isa: str, values: list[float]) -> None:
    """A column by one, and one by a row: either side, at every place of a vector."""
    x = np.array(values, np.float32)
    wanted = np.where(np.abs(rounded(x)) < 2.0**-126, 0, rounded(x))
    one = np.ones((1, 1), np.float32)
    for a, b in ((x[:, None].copy(), one), (one, x[None, :].copy())):
        c = np.zeros((a.shape[0], b.shape[1]), np.float32)
        kernels.gemm(isa, [a], b, None, c, False, "panel", bf16=True)
        np.testing.assert_array_equal(c.ravel(), wanted)
        if not np.isfinite(wanted).all():
            continue  # where a gradient is not finite there is no update, and its padding does not matter
        g = np.zeros_like(c)
        kernels.gradient(isa, a.T.copy(), b, g, "panel", bf16=True)
        np.testing.assert_array_equal(g.ravel(), wanted)


@each
@pytest.mark.parametrize("depth", [783, 2048])
def test_gemm_of_many_terms(isa: str, depth: int) -> None:
    rng = np.random.default_rng(7)
    a, b, c = normal(rng, 131, depth), normal(rng, depth, 100), np.zeros((131, 100), np.float32)
    kernels.gemm(isa, [a], b, None, c, False, "panel", bf16=True)
    assert_product(c, rounded(a), rounded(b))


@each
def test_a_row_does_not_depend_on_the_others(isa: str) -> None:
    rng = np.random.default_rng(9)
    a, b, c = normal(rng, 23, 37), normal(rng, 37, 61), np.zeros((23, 61), np.float32)
    kernels.gemm(isa, [a], b, None, c, False, "panel", bf16=True)
    for r in range(23):
        alone = np.zeros((1, 61), np.float32)
        kernels.gemm(isa, [a[r : r + 1]], b, None, alone, False, "panel", bf16=True)
        np.testing.assert_array_equal(alone[0], c[r])


@each
def test_gemm_keeps_rows_and_columns_apart(isa: str) -> None:
    """A NaN or an infinity reaches its own row or column and no other."""
    rng = np.random.default_rng(8)
    a, b, c = normal(rng, 13, 31), normal(rng, 31, 53), np.zeros((13, 53), np.float32)
    a[4, 7], a[9, 30], b[0, 52] = math.nan, math.inf, math.nan
    kernels.gemm(isa, [a], b, None, c, False, "panel", bf16=True)
    odd = ~np.isfinite(c)
    assert odd[4].all() and odd[9].all() and odd[:, 52].all()
    odd[[4, 9]], odd[:, 52] = False, False
    assert not odd.any()


def test_which_form_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMPHW_ISA", raising=False)
    monkeypatch.delenv("AMPHW_BF16", raising=False)
    assert kernels.has_bf16() == ("avx512bf16" in ISAS)
    assert kernels.bf16() == ("avx512bf16" if kernels.has_bf16() else "")
    monkeypatch.setenv("AMPHW_ISA", "generic")
    assert kernels.bf16() == ""
    monkeypatch.setenv("AMPHW_BF16", "portable")
    for isa in kernels.isa_names():
        monkeypatch.setenv("AMPHW_ISA", isa)
        assert kernels.bf16() == "portable"
    with pytest.raises(ValueError, match="does not run products of bfloat16 with 'abacus'"):
        kernels.gemm(
            "abacus",
            [np.zeros((1, 1), np.float32)],
            np.zeros((1, 1), np.float32),
            None,
            np.zeros((1, 1), np.float32),
            False,
            "panel",
            bf16=True,
        )
