"""Bytes beside their formulas."""

from __future__ import annotations

from dataclasses import replace

from amphw.bench.replicas.byte_counts import Counted, record


def test_a_byte_that_does_not_fit_is_told() -> None:
    right = Counted("sgd", "hybrid", 2, 0, "a.W", 10, None, 10.0, 10.0, 10.0, True)
    assert record([right])["bytes_exact"] is True
    for wrong in (replace(right, sent=11.0), replace(right, received=9.0)):
        assert record([right, wrong])["bytes_exact"] is False
    near = replace(right, sent=10.1)
    assert (
        record([near])["bytes_exact"] is False and record([replace(near, exact=False)])["bytes_exact"] is True
    )
