"""Copies of a node meet at their mean."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.ir.meeting import mean, moves_to_mean


@pytest.mark.parametrize("n", [2, 3, 7])
def test_the_mean_of_equal_copies_is_the_copy(n: int) -> None:
    value = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    assert (mean([value.copy() for _ in range(n)]) == value).all()
    assert not np.any(moves_to_mean([value.copy() for _ in range(n)]))


@pytest.mark.parametrize("n", [2, 3, 7])
def test_moves_lead_to_the_mean_and_keep_it_whatever_happens_meanwhile(n: int) -> None:
    rng = np.random.default_rng(n)
    copies = [rng.normal(size=50).astype(np.float32) for _ in range(n)]
    moves = moves_to_mean(copies)
    for copy, move in zip(copies, moves, strict=True):
        np.testing.assert_allclose(copy + move, mean(copies), rtol=0, atol=1e-6)
    learnt = [rng.normal(size=50).astype(np.float32) for _ in range(n)]
    after = [c + x + m for c, x, m in zip(copies, learnt, moves, strict=True)]
    expected = np.mean(copies, axis=0) + np.mean(learnt, axis=0)
    np.testing.assert_allclose(np.mean(after, axis=0), expected, rtol=0, atol=1e-6)
