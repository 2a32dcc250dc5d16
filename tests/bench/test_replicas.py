"""The formulas for bytes, and what does not fit them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amphw.bench.replicas.byte_counts import Counted, formula, record


@pytest.mark.parametrize(
    ("strategy", "alpha", "ranks", "servers", "expected"),
    [
        ("hybrid", None, 4, 0, 1500.0),
        ("hybrid", 0.1, 4, 0, 150.0),
        ("hybrid", 0.1, 4, 1, 100.0),
        ("allreduce", None, 4, 0, 1500.0),
        ("allreduce", 0.1, 4, 0, 300.0),
        ("servers", None, 4, 0, 1500.0),
        ("servers", None, 4, 1, 1000.0),
        ("servers", 0.1, 4, 1, 100.0),
    ],
)
def test_bytes_each_way(
    strategy: str, alpha: float | None, ranks: int, servers: int, expected: float
) -> None:
    """Of a parameter with 1,000 bytes."""
    assert formula(strategy, 1000.0, alpha, ranks, servers) == pytest.approx(expected)


def test_a_byte_that_does_not_fit_is_told() -> None:
    right = Counted("sgd", "hybrid", 2, 0, "a.W", 10.0, 10.0, 10.0, True)
    assert record([right])["bytes_exact"] is True
    for wrong in (replace(right, sent=11.0), replace(right, received=9.0)):
        assert record([right, wrong])["bytes_exact"] is False
    near = replace(right, sent=10.1)
    assert (
        record([near])["bytes_exact"] is False and record([replace(near, exact=False)])["bytes_exact"] is True
    )
