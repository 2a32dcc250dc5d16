"""The link's ends and the payload memory under Verilator: any messages, in any state of the memory."""

from __future__ import annotations

import pytest

from sim import setups
from sim.coverage import assert_covered


def run(messages: int, cuts: int) -> None:
    counts = assert_covered("link and payload memory", setups.link(messages, cuts).run())
    assert counts["messages in"] == 6 * messages
    assert counts["faults"] > messages / 2


@pytest.mark.thorough
def test_link() -> None:
    run(messages=60, cuts=2)


@pytest.mark.hardware
def test_link_at_length() -> None:
    run(messages=700, cuts=30)
