"""Native products, updates and sums against numpy, for every instruction set that this machine runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amphw.ir.optimizers import OPTIMIZERS
from amphw.ir.update import UpdateRule

native = pytest.importorskip("amphw.engine._native", reason="the native data plane is not built")
kernels = native.kernels

ISAS = kernels.isa_names()
WIDTHS = [1, 3, 15, 16, 17, 31, 48, 150, 750]
FLOAT_EPS = 2.0**-24  # half a unit in the last place, relative to a float of any size
GUARD = np.float32(7.5)

isas = st.sampled_from(ISAS)
widths = st.sampled_from(WIDTHS)
seeds = st.integers(0, 2**32 - 1)
layouts = st.sampled_from(["panel", "flat"])
cases = settings(max_examples=60)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def guarded(rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """A matrix inside a larger one, which `assert_guarded` finds untouched around it."""
    whole = np.full((rows, width + 7), GUARD)
    return whole, whole[:, 3 : 3 + width]


def assert_guarded(whole: np.ndarray, width: int) -> None:
    assert (whole[:, :3] == GUARD).all() and (whole[:, 3 + width :] == GUARD).all()


def assert_product(found: np.ndarray, a: np.ndarray, b: np.ndarray, *terms: np.ndarray) -> None:
    """found = a @ b + the terms, up to what rounding each of the additions can cost."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    zero = np.zeros((a.shape[0], b.shape[1]))
    wanted = a @ b + sum(terms, zero)
    magnitude = np.abs(a) @ np.abs(b) + sum((np.abs(term) for term in terms), zero)
    assert (np.abs(found - wanted) <= (a.shape[1] + 4) * FLOAT_EPS * magnitude).all()


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
    """others: rows of b in front of those that are multiplied, and behind them."""
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
    kernels.gemm(
        isa,
        a,
        b,
        bias if begins == "bias" else None,
        c,
        accumulate,
        layout,
        first_row=others[0],
        start=start if begins == "start" else None,
    )
    first = {"": np.zeros(cols), "bias": bias, "start": start}[begins]
    assert_product(c, np.concatenate(a, axis=1), b[others[0] : len(b) - others[1]], before, first)
    assert_guarded(whole, cols)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("depth", [784, 2048])
def test_gemm_of_many_terms(isa: str, depth: int) -> None:
    rng = np.random.default_rng(7)
    a, b, c = normal(rng, 131, depth), normal(rng, depth, 100), np.zeros((131, 100), np.float32)
    kernels.gemm(isa, [a], b, None, c, False, "panel")
    assert_product(c, a, b)


@pytest.mark.parametrize("isa", ISAS)
def test_gemm_keeps_rows_and_columns_apart(isa: str) -> None:
    """A NaN or an infinity reaches its own row or column and no other."""
    rng = np.random.default_rng(8)
    a, b, c = normal(rng, 13, 31), normal(rng, 31, 53), np.zeros((13, 53), np.float32)
    a[4, 7], a[9, 30], b[0, 52] = math.nan, math.inf, math.nan
    kernels.gemm(isa, [a], b, None, c, False, "panel")
    odd = ~np.isfinite(c)
    assert odd[4].all() and odd[9].all() and odd[:, 52].all()
    odd[[4, 9]], odd[:, 52] = False, False
    assert not odd.any()


@cases
@given(isas, st.integers(1, 9), st.integers(1, 120), st.integers(1, 700), layouts, st.booleans(), seeds)
def test_a_row_does_not_depend_on_how_many_come_with_it(
    isa: str, rows: int, depth: int, cols: int, layout: str, accumulate: bool, seed: int
) -> None:
    """Few rows are computed in wider tiles; to the bit it is the same."""
    rng = np.random.default_rng(seed)
    a, b, bias = normal(rng, rows, depth), normal(rng, depth, cols), normal(rng, cols)
    together = np.ones((rows, cols), np.float32)
    alone = together.copy()
    kernels.gemm(isa, [a], b, bias, together, accumulate, layout)
    for r in range(rows):
        whole, one = guarded(1, cols)
        one[:] = alone[r]
        kernels.gemm(isa, [a[r : r + 1]], b, bias, one, accumulate, layout)
        np.testing.assert_array_equal(one[0], together[r])
        assert_guarded(whole, cols)


@pytest.mark.parametrize("isa", ISAS)
def test_a_product_of_no_rows(isa: str) -> None:
    kernels.gemm(
        isa,
        [np.zeros((0, 5), np.float32)],
        np.zeros((5, 3), np.float32),
        None,
        np.zeros((0, 3), "f"),
        False,
        "panel",
    )


@cases
@given(isas, st.integers(1, 300), widths, st.integers(1, 400), layouts, seeds)
def test_parts_of_a_matrix_are_the_whole(
    isa: str, rows: int, x_cols: int, d_cols: int, layout: str, seed: int
) -> None:
    """To the bit: who takes a part of a reduction or of an update must not be seen in it."""
    rng = np.random.default_rng(seed)
    x, d, g = normal(rng, rows, x_cols), normal(rng, rows, d_cols), normal(rng, x_cols, d_cols)
    in_parts = g.copy()
    kernels.gradient(isa, x, d, g, layout)
    kernels.gradient(isa, x, d, in_parts, layout, in_parts=True)
    np.testing.assert_array_equal(in_parts, g)
    found = np.zeros((d_cols, x_cols), np.float32)
    kernels.transpose(isa, g, found, layout, "panel", in_parts=True)
    np.testing.assert_array_equal(found, g.T)


@cases
@given(isas, st.integers(1, 300), widths, widths, layouts, seeds)
def test_gradient(isa: str, rows: int, x_cols: int, d_cols: int, layout: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, d = normal(rng, rows, x_cols + 3)[:, 1:-2], normal(rng, rows, d_cols + 3)[:, 1:-2]
    g = normal(rng, x_cols, d_cols)
    before = g.copy()
    kernels.gradient(isa, x, d, g, layout)
    assert_product(g, x.T, d, before)


@cases
@given(isas, widths, widths, layouts, st.tuples(st.integers(0, 20), st.integers(0, 20)), seeds)
def test_gradient_of_some_rows(
    isa: str, x_cols: int, d_cols: int, layout: str, others: tuple[int, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x, d, g = normal(rng, 30, x_cols), normal(rng, 30, d_cols), normal(rng, sum(others) + x_cols, d_cols)
    before = g.copy()
    kernels.gradient(isa, x, d, g, layout, first_row=others[0])
    part = slice(others[0], others[0] + x_cols)
    assert_product(g[part], x.T, d, before[part])
    before[part] = g[part]
    np.testing.assert_array_equal(g, before)


@cases
@given(isas, widths, widths, layouts, layouts, st.tuples(st.integers(0, 20), st.integers(0, 20)), seeds)
def test_transpose(
    isa: str, rows: int, cols: int, source: str, target: str, others: tuple[int, int], seed: int
) -> None:
    a = normal(np.random.default_rng(seed), sum(others) + rows, cols)
    found = np.zeros((cols, rows), np.float32)
    kernels.transpose(isa, a, found, source, target, first_row=others[0])
    np.testing.assert_array_equal(found, a[others[0] : others[0] + rows].T)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_update_is_the_rule(isa: str, optimizer: str, weight_decay: float) -> None:
    rng = np.random.default_rng(9)
    rule = UpdateRule(optimizer=optimizer, lr=0.05, weight_decay=weight_decay, schedule="exponential")
    for n in WIDTHS:
        wanted, found = normal(rng, n), np.zeros(n, np.float32)
        current = wanted.copy()
        expected_slots = [np.zeros(n, np.float32) for _ in range(rule.slots())]
        slots = [a.copy() for a in expected_slots]
        state = dict(rule.row.state)
        for updates in range(4):
            g = normal(rng, n)
            scalars = rule.scalars(updates, state)
            wanted = rule.step(wanted, g, expected_slots, 25, scalars)
            out = found if updates < 2 else current  # a new version, or in place
            numbers = [scalars[name] for name in rule.row.numbers]
            kernels.update(isa, optimizer, current, out, g, slots, 1 / 25, weight_decay, numbers)
            current = out
            assert not g.any()
            np.testing.assert_allclose(current, wanted, rtol=3e-6, atol=1e-6)
            for a, b in zip(slots, expected_slots, strict=True):
                np.testing.assert_allclose(a, b, rtol=3e-6, atol=1e-6 * np.abs(b).max())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n", WIDTHS)
def test_sums(isa: str, n: int) -> None:
    rng = np.random.default_rng(10)
    a, b = normal(rng, n), normal(rng, n)
    total = a.copy()
    kernels.add(isa, total, b)
    np.testing.assert_array_equal(total, a + b)
    assert kernels.sum_squares(isa, a * np.float32(1e25)) == pytest.approx(
        np.square(a * np.float32(1e25), dtype=np.float64).sum(), rel=1e-12
    )
    rows = normal(rng, 37, n + 2)[:, 1:-1]
    total = a.copy()
    kernels.add_columns(isa, rows, total)
    np.testing.assert_allclose(total, a + rows.sum(axis=0, dtype=np.float64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n", WIDTHS)
def test_finite_finds_every_kind_everywhere(isa: str, n: int) -> None:
    a = np.full(n, np.finfo(np.float32).max)
    a[::2] *= -1
    assert kernels.finite(isa, a)
    for odd in (math.nan, math.inf, -math.inf):
        for i in range(n):
            kept, a[i] = a[i], odd
            assert not kernels.finite(isa, a)
            a[i] = kept


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n", WIDTHS)
def test_largest_is_the_largest_magnitude(isa: str, n: int) -> None:
    rng = np.random.default_rng(n)
    a = normal(rng, n)
    for i in range(n):
        a[i] = -1000.0 - i
        assert kernels.largest(isa, a) == 1000.0 + i
        a[i] = math.nan
        assert math.isnan(kernels.largest(isa, a))
        a[i] = 0.0
    assert kernels.largest(isa, a) == 0.0


def test_choice_of_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMPHW_ISA", raising=False)
    assert kernels.chosen() == ISAS[0]
    for isa in ISAS:
        monkeypatch.setenv("AMPHW_ISA", isa)
        assert kernels.chosen() == isa
    monkeypatch.setenv("AMPHW_ISA", "abacus")
    assert kernels.chosen() == ""
    with pytest.raises(ValueError, match="this machine does not run the kernels 'abacus'"):
        kernels.panel("abacus")
