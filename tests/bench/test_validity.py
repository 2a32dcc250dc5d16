"""Why figures do not count, told apart."""

from __future__ import annotations

import pytest

from amphw.bench.load import Usage
from amphw.bench.validity import load_reasons, round_reasons


@pytest.mark.parametrize(
    ("busy", "reasons"),
    [
        (2.08, []),
        (2.4, ["other processes used 20% of the processors, allowed are 5%"]),
        (None, ["the load by other processes cannot be told on this system"]),
    ],
)
def test_load_by_others(busy, reasons) -> None:
    assert load_reasons(Usage(1.0, busy, 2.0, 2)) == reasons


def test_a_median_needs_three() -> None:
    assert round_reasons(3) == []
    assert round_reasons(2) == ["there were 2 rounds, at least 3 make a median"]
