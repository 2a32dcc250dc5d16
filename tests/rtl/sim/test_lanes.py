"""The lane engine under Verilator: thousands of random commands, at any pace."""

from __future__ import annotations

from typing import Any

import pytest

from amphw.rtl.gateware.lanes.engine import LaneEngine
from amphw.rtl.gateware.lanes.shape import LaneShape
from amphw.rtl.numbers.formats import Formats
from sim.coverage import assert_covered
from sim.runner import BenchResult, run_bench


def run(name: str, rows: int, resets: int, formats: str = "q4.12", **shape: Any) -> BenchResult:
    given = {"lanes": 4, "beats": 32, "widest_blocks": 4, "address_bits": 8, **shape}
    built = LaneShape(**given, formats=Formats.parse(formats))
    settings = {"shape": given, "formats": formats, "rows": rows, "resets": resets}
    return run_bench(lambda: LaneEngine(built), "lanes_bench", name=name, settings=settings)


MOMENTUM = {"momentum": True, "mu": 29491, "s1": 24, "s2": 20}


@pytest.mark.thorough
def test_lane_engine() -> None:
    counts = assert_covered("lane engine", run("lanes", 20, 2, clips=True, **MOMENTUM))
    assert counts["random commands"] > 2000


@pytest.mark.hardware
@pytest.mark.parametrize(
    ("lanes", "formats", "fields"),
    [
        (4, "q4.12", MOMENTUM),
        (8, "q6.10,w=q3.13,round=stochastic", {}),
        (2, "q2.14,w=q8.8,sum=32", {"clips": True}),
    ],
)
def test_lane_engines(lanes: int, formats: str, fields: dict[str, Any]) -> None:
    result = run(f"lanes-{lanes}", 100, 20, formats, lanes=lanes, **fields)
    counts = assert_covered(f"lane engine of {lanes} lanes, {formats}", result)
    assert counts["random commands"] > 5000
