"""The sequencer under Verilator: random microprograms, between a controller and engines of any pace."""

from __future__ import annotations

import pytest

from sim import setups
from sim.coverage import assert_covered


def run(firings: int, resets: int) -> None:
    result = setups.sequencer(firings, resets).run()
    counts = assert_covered("sequencer (it has no state machine)", result)
    assert counts["commands"] > 2 * firings


@pytest.mark.thorough
def test_sequencer() -> None:
    run(firings=80, resets=10)


@pytest.mark.hardware
def test_sequencer_at_length() -> None:
    run(firings=700, resets=100)
