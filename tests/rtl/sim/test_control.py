"""Controller, sequencer, keeper and link under Verilator, between the real driver and engines of any pace."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from amphw.ir.update import UpdateRule
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.plan.hardware import Sizes, hardware_plan
from sim.coverage import assert_covered
from sim.parts import ControlPart
from sim.runner import BenchResult, run_bench
from tests.rtl.cases import SMALL, case

FORMATS = "q6.10,g=q4.12"
KEYS = 4


def run(
    name: str, optimizer: str, paces: Sequence[Sequence[str]], instances: int, resets: int
) -> BenchResult:
    rules = {"*": UpdateRule(interval=5, lr=0.05, optimizer=optimizer)}
    sizes = Sizes(**SMALL, slots=KEYS)
    plan = hardware_plan(case(name).build(), rules, Formats.parse(FORMATS), sizes)
    settings = {
        "case": name, "formats": FORMATS, "optimizer": optimizer, "sizes": SMALL, "keys": KEYS,
        "paces": paces, "instances": instances, "resets": resets,
    }  # fmt: skip
    return run_bench(lambda: ControlPart(plan), "control_bench", name=f"control-{name}", settings=settings)


PACES = [("always", "half", "half"), ("bursts", "rarely", "bursts"), ("half", "bursts", "rarely")]
"""Of the link, of the engines, and of the payload memory."""


@pytest.mark.thorough
def test_control() -> None:
    result = run("message-passing", "sgd", PACES[:1], instances=3, resets=1)
    counts = assert_covered("controller and its neighbours", result)
    assert counts["messages"] > 60


@pytest.mark.hardware
@pytest.mark.parametrize(
    ("name", "optimizer", "instances"), [("message-passing", "momentum", 16), ("fe-ponder", "sgd", 5)]
)
def test_control_at_length(name: str, optimizer: str, instances: int) -> None:
    result = run(name, optimizer, PACES, instances, resets=2)
    counts = assert_covered(f"controller and its neighbours, {name}", result)
    assert counts["messages"] > 500
