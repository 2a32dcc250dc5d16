"""Frames of a part that joins for itself: which messages one brings, and the result that its firings make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from amphw.engine.lowering.lower import Unit
from amphw.engine.parts.part import PartFrame, PartResult
from amphw.engine.policy import BACKWARD
from amphw.rtl.driver.layout import Layout, rows_of


class Brought:
    """The messages that a forward frame brings, of each operand one after another."""

    def __init__(self, frame: PartFrame):
        self.frame = frame
        self._message = [0] * len(frame.arrays)
        self._row = [0] * len(frame.arrays)

    def messages(self, layout: Layout, u: int, at: int) -> Iterator[tuple[int, int, np.ndarray]]:
        """(operand, position, rows) of each message for the frame's next firing, which is number `at` of unit
        u; without those that the part has from nodes of its own."""
        for k, rows in enumerate(layout.plan.units[u].rows):
            first, count = positions(layout, u, k, at)
            for position in range(first, first + count):
                if self.frame.brought[k][self._message[k]]:
                    begin = self._row[k]
                    self._row[k] += rows_of(rows, at)
                    array = self.frame.arrays[k]
                    assert array is not None
                    yield k, position, array[begin : self._row[k]]
                self._message[k] += 1


def positions(layout: Layout, u: int, k: int, at: int) -> tuple[int, int]:
    """A firing's messages of an operand: the first one's position, and how many."""
    members = layout.plan.units[u].members[k]
    return (at, 1) if members is None else (int(members[at]), int(members[at + 1] - members[at]))


def together(unit: Unit, frame: PartFrame, results: Mapping[int, Sequence[np.ndarray | None]]) -> PartResult:
    """A frame's result from those of its firings, by their numbers; None: nothing of it leaves the part.

    Where another firing sends something there are zeros, which nobody reads.
    """
    program = unit.behaviour.program
    assert program is not None
    shapes = [(o.space, o.width) for o in unit.operands]
    if frame.kind != BACKWARD:
        shapes = [(t.space, t.width) for t in program.outputs_types]
    arrays: list[np.ndarray | None] = []
    for k, (space, width) in enumerate(shapes):
        parts = [results[n][k] for n in range(len(frame.slots))]
        if all(p is None for p in parts):
            arrays.append(None)
            continue
        empty = [np.zeros((n, width), np.float32) for n in frame.rows[space].tolist()]
        filled = [e if p is None else p for p, e in zip(parts, empty, strict=True)]
        arrays.append(np.ascontiguousarray(np.concatenate(filled), np.float32))
    return PartResult(frame.number, arrays)
