"""The sequencer under Verilator: random microprograms, between a controller and engines of any pace."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from amphw.rtl.gateware.controller.memory import ControlShape
from amphw.rtl.gateware.controller.ports import FrameKind
from amphw.rtl.gateware.controller.sequencer import Sequencer
from amphw.rtl.gateware.lanes.shape import LaneShape, command_layout
from amphw.rtl.gateware.vector.command import VectorShape
from sim.coverage import assert_covered
from sim.models.microprograms import random_program
from sim.runner import run_bench

UNITS = 16
CONTROL = ControlShape(
    firings=64, places=64, table=64, slots=8, units=UNITS, outputs=1, state_bits=8, decisions=1, loops=1,
    reads=1, by_rows=False, paths=1,
)  # fmt: skip
VECTOR = {"address_bits": 12, "count_bits": 15}
LANES = {"lanes": 4, "beats": 64, "widest_blocks": 4, "address_bits": 12}


def run(firings: int, resets: int) -> None:
    rng = np.random.default_rng(7)
    programs = [random_program(rng, int(rng.integers(0, 40))) for _ in range(3 * UNITS)]
    microcode, entries = [], {}
    for number, program in enumerate(programs):
        entries[number // 3, FrameKind(number % 3)] = len(microcode)
        microcode += program
    settings = {
        "control": asdict(CONTROL), "vector": VECTOR, "lanes": LANES, "programs": programs,
        "firings": firings, "resets": resets,
    }  # fmt: skip

    def make() -> Sequencer:
        lanes = command_layout(LaneShape(**LANES))
        return Sequencer(CONTROL, VectorShape(**VECTOR), lanes, microcode, entries)

    result = run_bench(make, "sequencer_bench", name="sequencer", settings=settings)
    counts = assert_covered("sequencer (it has no state machine)", result)
    assert counts["commands"] > 2 * firings


@pytest.mark.thorough
def test_sequencer() -> None:
    run(firings=80, resets=10)


@pytest.mark.hardware
def test_sequencer_at_length() -> None:
    run(firings=700, resets=100)
