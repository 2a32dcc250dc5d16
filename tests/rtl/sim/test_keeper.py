"""The keeper under Verilator: rows, updates and requests, in any order and at any pace."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from amphw.rtl.gateware.controller.keeper import Keeper
from amphw.rtl.gateware.controller.memory import ControlShape
from amphw.rtl.gateware.lanes.shape import LaneShape, command_layout
from sim.coverage import assert_covered
from sim.models.keeper import UNITS, owners
from sim.runner import run_bench

CONTROL = ControlShape(
    firings=64, places=64, table=64, slots=8, units=UNITS, outputs=1, state_bits=8, decisions=1, loops=1,
    reads=1, by_rows=False, paths=1,
)  # fmt: skip
LANES = {"lanes": 4, "beats": 64, "widest_blocks": 4, "address_bits": 12}


def run(momentum: bool, clips: bool, runs: int, resets: int) -> None:
    settings = {
        "control": asdict(CONTROL), "lanes": LANES, "momentum": momentum, "clips": clips, "runs": runs,
        "resets": resets,
    }  # fmt: skip
    name = "keeper" + ", momentum" * momentum + ", clips" * clips
    result = run_bench(
        lambda: Keeper(CONTROL, owners(momentum, clips), command_layout(LaneShape(**LANES))),
        "keeper_bench", name=name.replace(", ", "-"), settings=settings,
    )  # fmt: skip
    counts = assert_covered(name, result)
    assert counts["updates"] > runs / 3


@pytest.mark.thorough
def test_keeper() -> None:
    run(False, True, runs=100, resets=4)


@pytest.mark.hardware
@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("clips", [False, True])
def test_keeper_at_length(momentum: bool, clips: bool) -> None:
    run(momentum, clips, runs=1000, resets=60)
