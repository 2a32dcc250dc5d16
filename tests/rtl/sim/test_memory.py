"""The payload memory's ports under Verilator: who comes first, and what everyone reads."""

from __future__ import annotations

import pytest

from amphw.rtl.gateware.payload_memory import PayloadMemory
from sim.coverage import assert_covered
from sim.runner import run_bench


def run(cycles: int) -> None:
    settings = {"words": 64, "cycles": cycles}
    result = run_bench(lambda: PayloadMemory(6, 64), "memory_bench", name="memory", settings=settings)
    counts = assert_covered("payload memory (it has no state machine)", result)
    assert counts["requests served"] > cycles


def test_payload_memory() -> None:
    run(cycles=700)


@pytest.mark.hardware
def test_payload_memory_at_length() -> None:
    run(cycles=15_000)
