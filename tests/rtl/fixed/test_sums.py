"""Summed gradients against plain Python, row by row, where sums saturate and where they do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from amphw.rtl.fixed.sums import Term, accumulate, total
from amphw.rtl.numbers.formats import Formats

FORMATS = replace(Formats.parse("q4.12,g=q2.14"), sums=32)
LIMIT = 1 << 31


def in_python(sums: np.ndarray, terms: list[Term]) -> tuple[list, list]:
    """Every row after the one before it."""
    out, saturated = sums.astype(object), []
    for kind, a, dz in terms:
        for r in range(len(dz)):
            for at in np.ndindex(out.shape):
                z = int(dz[r, at[-1]])
                if kind == "matmul":
                    more = int(a[r, at[0]]) * z
                elif kind == "take":
                    more = (z << FORMATS.value.frac) if a[r] == at[0] else 0
                else:
                    more = z << FORMATS.value.frac
                exact = out[at] + more
                out[at] = min(max(exact, -LIMIT), LIMIT - 1)
                saturated += [exact] if out[at] != exact else []
    return out.tolist(), saturated


def words(rng: np.random.Generator, *shape: int, most: int = 1 << 15) -> np.ndarray:
    return rng.integers(-most, most, shape)


def drawn(rng: np.random.Generator, kind: str, rows: int, most: int) -> Term:
    dz = words(rng, rows, 3, most=most)
    if kind == "matmul":
        return kind, words(rng, rows, 4, most=most), dz
    return kind, rng.integers(0, 4, rows) if kind == "take" else None, dz


@pytest.mark.parametrize("kind", ["matmul", "take", "sum"])
@pytest.mark.parametrize("most", [100, 1 << 15])
@pytest.mark.parametrize("seed", range(5))
def test_the_sums_are_those_of_one_row_after_another(kind: str, most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = rng.choice([-LIMIT, LIMIT - 1], (3,) if kind == "sum" else (4, 3)) // (
        1 if most > 100 else 1 << 12
    )
    terms = [drawn(rng, kind, 40, most), drawn(rng, kind, 7, most)]
    kept = start.copy()
    found, saturated = accumulate(start, terms, FORMATS)
    assert (found.tolist(), saturated.tolist()) == in_python(start, terms)
    assert (saturated.size > 0) == (most > 100)
    assert (start == kept).all() and found.dtype == np.int64


@pytest.mark.parametrize("kind", ["matmul", "take", "sum"])
@pytest.mark.parametrize("end", [LIMIT - 1, LIMIT, LIMIT + 1, -LIMIT, -LIMIT - 1])
@pytest.mark.parametrize("rows", [1, 4])
def test_sums_that_end_at_the_limit_or_one_beyond(kind: str, end: int, rows: int) -> None:
    """rows: all but the first add nothing, and still make the largest possible sum larger."""
    sign = 1 if end > 0 else -1
    dz, more = (sign * 5, 15) if kind == "matmul" else (sign, 1 << FORMATS.value.frac)
    a = {"matmul": np.full((rows, 1), 3), "take": np.zeros(rows, int), "sum": None}[kind]
    start = np.array([end - sign * more] if kind == "sum" else [[end - sign * more]])
    terms: list[Term] = [(kind, a, np.array([[dz]] + [[0]] * (rows - 1)))]
    found, saturated = accumulate(start, terms, FORMATS)
    assert (found.tolist(), saturated.tolist()) == in_python(start, terms)
    assert saturated.tolist() == ([] if -LIMIT <= end < LIMIT else [end])


def test_a_large_table_is_added_to_where_its_rows_are_named() -> None:
    rng = np.random.default_rng(0)
    a, dz = rng.integers(0, 300, 50), words(rng, 50, 2, most=100)
    found, _ = accumulate(np.zeros((300, 2), np.int64), [("take", a, dz)], FORMATS)
    expected = np.zeros((300, 2), np.int64)
    np.add.at(expected, a, dz << 12)
    assert (found == expected).all()


def test_no_rows_change_nothing() -> None:
    sums = np.array([[5]])
    found, saturated = accumulate(sums, [("matmul", np.zeros((0, 1), int), np.zeros((0, 1), int))], FORMATS)
    assert found.tolist() == [[5]] and saturated.size == 0


def test_what_comes_back_is_added_up_and_a_row_belongs_to_its_row() -> None:
    whole, row = np.array([[1, 2], [3, 4]]), np.array([[30000, -30000]])
    assert total([(whole, -1), (row, 1), (row, 1)], 2, 2).tolist() == [[1, 2], [60003, -59996]]
    assert total([], 1, 3).tolist() == [[0, 0, 0]]
