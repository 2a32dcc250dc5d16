"""Sums of the latest rounds: of exactly these, and as precise after many rounds as after a few."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from amphw.replicas.ako.latest import Latest


@given(length=st.integers(1, 7), made=st.integers(0, 30), data=st.data())
def test_the_sum_is_that_of_the_latest_rounds(length: int, made: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(made)
    latest, rounds = Latest(length, 5, np.dtype(np.int64)), []
    for _ in range(made):
        rounds.append(rng.integers(-9, 9, 5))
        latest.add(rounds[-1])
        wanted = data.draw(st.integers(0, min(length, len(rounds))))
        part = slice(*sorted(data.draw(st.tuples(st.integers(0, 5), st.integers(0, 5)))))
        expected = sum(rounds[len(rounds) - wanted :], np.zeros(5, np.int64))[part]
        np.testing.assert_array_equal(latest.total(wanted, part), expected)


def test_rounding_does_not_drift_in_100000_rounds() -> None:
    """Gradients of very different size; a sum from which rounds are subtracted ends far from theirs."""
    length, size, rounds = 5, 3, 100_000
    rng = np.random.default_rng(0)
    latest, last = Latest(length, size, np.dtype(np.float32)), np.zeros((length, size), np.float32)
    subtracting = np.zeros(size, np.float32)
    for k in range(rounds):
        values = (rng.normal(size=size) * 10.0 ** rng.integers(-4, 5)).astype(np.float32)
        subtracting += values - last[k % length]
        last[k % length] = values
        latest.add(values)
        if k >= length and (k % 997 == 0 or k > rounds - 100):
            exact, most = last.sum(0, np.float64), np.abs(last).sum(0, np.float64)
            error = np.abs(latest.total(length, slice(None)) - exact)
            assert (error <= length * np.finfo(np.float32).eps * most).all(), k
    tiny = np.full(size, 1e-4, np.float32)
    for _ in range(length):
        subtracting += tiny - last[_]
        latest.add(tiny)
    np.testing.assert_allclose(latest.total(length, slice(None)), length * 1e-4, rtol=1e-6)
    assert (np.abs(subtracting - length * 1e-4) > 1e-3).any()  # what this is for
