"""What nodes and their frames take on a part: bytes on a link, and seconds where the part can say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from amphw.engine.lowering.lower import Unit
from amphw.engine.policy import BACKWARD, FORWARD
from amphw.ir.graph import Graph
from amphw.ir.update import UpdateRule

FLOAT_BYTES, INT_BYTES, FIRING_BYTES = 4, 8, 8
"""Of a number; of an integer operand or decided field; and of what says which firing it is: slot, number."""

DIRECTIONS = (FORWARD, BACKWARD)


def frame_bytes(firings: float, floats: float, ints: float = 0) -> float:
    """Of a frame or its result on a modelled link; of several, where the counts are of all of them."""
    return FIRING_BYTES * firings + FLOAT_BYTES * floats + INT_BYTES * ints


@dataclass
class Crossing:
    """Numbers that go to a node's device with its frames, or come back: for each row by space, and of what is
    decided for each firing."""

    floats: Counter[str] = field(default_factory=Counter)
    ints: Counter[str] = field(default_factory=Counter)
    decided: int = 0

    def numbers(self, rows: Mapping[str, float]) -> float:
        """That are no integers. rows: by space."""
        return sum(each * rows.get(space, 0.0) for space, each in self.floats.items())

    def bytes(self, firings: float, rows: Mapping[str, float]) -> float:
        """Of frames of so many firings and rows."""
        ints = self.decided * firings + sum(n * rows.get(space, 0.0) for space, n in self.ints.items())
        return frame_bytes(firings, self.numbers(rows), ints)


def crossings(unit: Unit, kind: int) -> tuple[Crossing, Crossing]:
    """To the device and back, as `amphw.engine.parts.part` has the arrays of frames and of their results."""
    program = unit.behaviour.program
    assert program is not None
    operands, results, wanted = Crossing(), Crossing(), Crossing()
    for operand in unit.operands:
        operands.floats[operand.space] += operand.width
        if operand.needs_gradient:
            wanted.floats[operand.space] += operand.width
    for _, space in program.ints:
        operands.ints[space] += 1
    for of in program.outputs_types:
        if of.kind == "float":
            results.floats[of.space] += of.width
    if kind == BACKWARD:
        return Crossing(results.floats, operands.ints), wanted
    results.decided = len(unit.behaviour.decides)
    return operands, results


@dataclass(frozen=True)
class NodeTime:
    """What a node takes on a part, in seconds: a firing forward and backward, and an update.

    origin: how it is known, "stated" (by the device's own definition), "measured", "modelled" or "assumed".
    how: the rest of a sentence about it.
    """

    forward: float
    backward: float
    update: float
    origin: str
    how: str


@runtime_checkable
class TellsTime(Protocol):
    """A part that knows how long a node would take there, without loading it."""

    def node_time(
        self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule], rows: Mapping[str, float]
    ) -> NodeTime | None:
        """rows: of a firing, by space, on average. None: it must be tried. The part does not refuse it."""
        ...
