"""The device's counters under Verilator, beside a count of what was told them."""

from __future__ import annotations

import pytest

from sim import setups


@pytest.mark.thorough
@pytest.mark.parametrize("bits", [9, 32])
def test_counters(bits: int) -> None:
    """With fewer bits they wrap many times."""
    result = setups.activity(bits, rounds=200, cycles=40).run()
    assert result.counts["counters looked at"] == 400
