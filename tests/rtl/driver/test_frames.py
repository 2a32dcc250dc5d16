"""Frames of a part that joins for itself: some messages are brought and some results leave, others do not."""

from __future__ import annotations

import numpy as np

from amphw.engine.lowering.lower import Unit, lower
from amphw.engine.lowering.plan import build_plan
from amphw.engine.parts.part import PartFrame
from amphw.engine.policy import BACKWARD, FORWARD
from amphw.rtl.driver.frames import Brought, together
from amphw.rtl.driver.layout import Layout
from tests.rtl.cases import problem

graph, instances = problem("tree-leaves")
lowered = lower(graph)


def frame(
    unit: Unit, kind: int, firings: list[int], arrays: list[np.ndarray], brought: list[list[int]]
) -> PartFrame:
    n = len(firings)
    rows = {space: np.ones(n, np.int32) for space, _ in unit.behaviour.spaces}
    flags = [np.array(each, np.uint8) for each in brought]
    return PartFrame(
        7, unit.index, kind, np.zeros(n, np.int32), np.array(firings, np.int32), rows, arrays, [], flags
    )


def test_messages_that_are_brought_are_told_from_those_that_the_part_has() -> None:
    unit = lowered.units[lowered.by_name["branch"]]
    layout = Layout(build_plan(lowered, instances[0]))
    width, each = unit.operands[0].width, [positions_of(layout, unit, at) for at in (0, 1)]
    count = sum(len(e) for e in each)
    rows = np.arange(count * width, dtype=np.float32).reshape(count, width)
    flags = [k % 2 for k in range(count)]
    brought = Brought(
        frame(unit, FORWARD, [0, 1], [rows[: sum(flags)], *[rows[:0]] * 9], [flags, *[[0] * count] * 9])
    )
    found = [
        (p, list(r.reshape(-1)))
        for at in (0, 1)
        for k, p, r in brought.messages(layout, unit.index, at)
        if k == 0
    ]
    wanted = [p for p, flag in zip([p for e in each for p in e], flags, strict=True) if flag]
    assert found == [(p, list(rows[i])) for i, p in enumerate(wanted)]


def positions_of(layout: Layout, unit: Unit, at: int) -> list[int]:
    members = layout.plan.units[unit.index].members[0]
    return [at] if members is None else list(range(int(members[at]), int(members[at + 1])))


def test_firings_of_which_nothing_leaves_are_zeros_beside_one_of_which_something_does() -> None:
    unit = lowered.units[lowered.by_name["leaf"]]
    assert unit.behaviour.program is not None
    types = unit.behaviour.program.outputs_types
    made: list[np.ndarray | None] = [np.full((1, t.width), 3.0, np.float32) for t in types]
    nothing: list[np.ndarray | None] = [None] * len(types)
    result = together(unit, frame(unit, FORWARD, [0, 1], [], []), {1: made, 0: nothing})
    assert result.number == 7
    for array, t in zip(result.arrays, types, strict=True):
        assert array is not None and array.tolist() == [[0.0] * t.width, [3.0] * t.width]
    assert together(unit, frame(unit, FORWARD, [0], [], []), {0: nothing}).arrays == nothing
    back: list[np.ndarray | None] = [None] * len(unit.operands)
    assert together(unit, frame(unit, BACKWARD, [0], [], []), {0: back}).arrays == back
