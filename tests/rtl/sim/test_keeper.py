"""The keeper under Verilator: rows, updates and requests, in any order and at any pace."""

from __future__ import annotations

import pytest

from sim import setups
from sim.coverage import assert_covered


def run(momentum: bool, clips: bool, runs: int, resets: int) -> None:
    setup = setups.keeper(momentum, clips, runs, resets)
    counts = assert_covered(setup.name.replace("-", ", "), setup.run())
    assert counts["updates"] > runs / 3


@pytest.mark.thorough
def test_keeper() -> None:
    run(False, True, runs=100, resets=4)


@pytest.mark.hardware
@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("clips", [False, True])
def test_keeper_at_length(momentum: bool, clips: bool) -> None:
    run(momentum, clips, runs=1000, resets=60)
