"""What a part owes, and what it may give back."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from amphw.engine.lowering.lower import lower
from amphw.engine.parts.driver import PartDriver
from amphw.engine.parts.part import PartFrame, PartResult
from amphw.engine.policy import FORWARD
from amphw.ir.errors import DeviceLostError
from tests.rtl.cases import problem

lowered = lower(problem("tree-leaves")[0])
LEAF = lowered.units[lowered.by_name["leaf"]]


class Busy:
    """Takes a frame, and is at work on it as long as `heard` is."""

    depth, joins = 1, True

    def __init__(self) -> None:
        self.heard = 0.0

    def start(self, frame: PartFrame) -> None:
        self.heard = time.perf_counter()


def owing(part: Any, leaves: list[int]) -> PartDriver:
    plane = SimpleNamespace(instance=lambda slot: None, engine=SimpleNamespace(), failed=False)
    driver = PartDriver(plane, lowered, 1, part, "one", 10.0)
    one = np.zeros(1, np.int32)
    rows = {space: one + 1 for space, _ in LEAF.behaviour.spaces}
    driver.give(PartFrame(3, LEAF.index, FORWARD, one, one, rows, [], [], [], leaves))
    return driver


def test_a_part_that_shows_that_it_is_at_work_is_not_overdue() -> None:
    part = Busy()
    driver = owing(part, [0])
    time.sleep(0.06)
    assert driver.overdue(0.05).startswith("has given nothing back for ")
    part.heard = time.perf_counter() + 60.0  # however busy the machine is
    assert driver.overdue(0.05) == ""


def test_a_part_that_joins_gives_back_all_that_leaves_it() -> None:
    assert LEAF.behaviour.program is not None
    outputs = len(LEAF.behaviour.program.outputs_types)
    with pytest.raises(DeviceLostError, match="which is not what the node makes"):
        owing(Busy(), [1] * outputs).bring_back(PartResult(3, [None] * outputs))
