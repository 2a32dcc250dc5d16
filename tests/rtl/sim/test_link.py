"""The link's ends and the payload memory under Verilator: any messages, in any state of the memory."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from amphw.rtl.gateware.controller.memory import ControlShape
from sim.coverage import assert_covered
from sim.parts import LinkPart
from sim.runner import run_bench

SHAPE = ControlShape(
    firings=64, places=32, table=128, slots=9, units=5, outputs=2, state_bits=8, decisions=1, loops=1,
    reads=1, by_rows=False, paths=2,
)  # fmt: skip


def run(messages: int, cuts: int) -> None:
    settings = {"shape": asdict(SHAPE), "payload": 512, "own": 64, "messages": messages, "cuts": cuts}
    result = run_bench(lambda: LinkPart(SHAPE, 512), "link_bench", name="link", settings=settings)
    counts = assert_covered("link and payload memory", result)
    assert counts["messages in"] == 6 * messages
    assert counts["faults"] > messages / 2


@pytest.mark.thorough
def test_link() -> None:
    run(messages=60, cuts=2)


@pytest.mark.hardware
def test_link_at_length() -> None:
    run(messages=700, cuts=30)
