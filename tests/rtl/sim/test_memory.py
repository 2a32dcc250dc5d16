"""The payload memory's ports under Verilator: who comes first, and what everyone reads."""

from __future__ import annotations

import pytest

from sim import setups
from sim.coverage import assert_covered


def run(cycles: int) -> None:
    counts = assert_covered("payload memory (it has no state machine)", setups.memory(cycles).run())
    assert counts["requests served"] > cycles


def test_payload_memory() -> None:
    run(cycles=700)


@pytest.mark.hardware
def test_payload_memory_at_length() -> None:
    run(cycles=15_000)
