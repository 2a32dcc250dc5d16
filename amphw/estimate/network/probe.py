"""How long a node takes on a device that cannot say so: a few frames of it, timed.

Firings, rows and integer operands are those of real instances; the payloads are random numbers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from amphw.engine.lowering.lower import Unit
from amphw.engine.lowering.plan import integers
from amphw.engine.parts.costs import NodeTime
from amphw.engine.parts.part import Part, PartFrame
from amphw.engine.policy import BACKWARD, FORWARD
from amphw.estimate.count.firings import value_at
from amphw.estimate.count.traffic import Traffic
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import AmphwError, DeviceLostError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule

SPREAD = 0.1
"""Standard deviation of the payloads: small enough for every number format."""

SECONDS, LEAST = 0.2, 3
"""That frames are timed for, and how many of each direction there are at least, after a first one."""

LONGEST = 30.0
"""Seconds after which a device that gives no frame back counts as lost."""


HOW = "frames of each node, of as many firings as the host would give it; updates included"


def probe(
    part: Part,
    graph: Graph,
    traffic: Traffic,
    unit: Unit,
    rules: Mapping[str, UpdateRule],
    options: DeviceOptions,
    instances: Sequence[Instance],
    firings: float,
) -> NodeTime:
    """Load the part with this node alone and time frames of about so many firings. Updates are in the times.

    instances: those that `traffic` was counted on. Raises DeviceLostError if the part does not answer.
    """
    frames = _Frames(traffic, unit, instances, max(1, round(firings)))
    try:
        part.load(graph, traffic.lowered, [unit], rules, options)
        for slot in frames.slots:
            if not part.begin(slot, 0, instances[slot], Mode.TRAIN):
                raise AmphwError(
                    f"{part.capabilities().name} has no room for the {len(frames.slots)} instances that it "
                    "is timed with; count on fewer instances"
                )
        taken: dict[int, list[float]] = {FORWARD: [], BACKWARD: []}
        number, began = 1, time.perf_counter()
        while len(taken[BACKWARD]) <= LEAST or time.perf_counter() - began < SECONDS:
            for kind in (FORWARD, BACKWARD):
                frame = frames.of(kind, number)
                begin = time.perf_counter()
                _run(part, frame)
                taken[kind].append(time.perf_counter() - begin)
                number += 1
        for slot in frames.slots:
            part.end(slot)
    finally:
        part.close()
    # The mean, since some of them update; without the first, which may compile.
    forward, backward = (float(np.mean(taken[kind][1:])) / frames.size for kind in (FORWARD, BACKWARD))
    return NodeTime(forward, backward, 0.0, "measured", HOW)


def _run(part: Part, frame: PartFrame) -> None:
    end = time.perf_counter() + LONGEST
    part.start(frame)
    while not any(result.number == frame.number for result in part.finished(0.01)):
        if time.perf_counter() > end:
            raise DeviceLostError(
                f"{part.capabilities().name} has given a frame not back in {LONGEST:.0f} s while it was timed"
            )


class _Frames:
    """Frames of the first firings of a node."""

    def __init__(self, traffic: Traffic, unit: Unit, instances: Sequence[Instance], size: int) -> None:
        found = [
            (slot, w.at[at])
            for slot, w in enumerate(traffic.walks)
            for at in w.order
            if w.shape.unit[at] == unit.index
        ]
        self.unit, self.size = unit, min(size, len(found))
        chosen = found[: self.size]
        self.slots = list(dict.fromkeys(slot for slot, _ in chosen))
        self._slots = np.array([slot for slot, _ in chosen], np.int32)
        self._firings = np.array([at for _, at in chosen], np.int32)
        tables = {slot: traffic.plans[slot].units[unit.index].spaces for slot in self.slots}
        self._rows = {
            space: np.array([value_at(tables[slot][space], at) for slot, at in chosen], np.int32)
            for space, _ in unit.behaviour.spaces
        }
        self._ints = self._integers(traffic, instances, chosen)
        self._rng = np.random.default_rng(0)

    def _integers(
        self, traffic: Traffic, instances: Sequence[Instance], chosen: Sequence[tuple[int, int]]
    ) -> list[np.ndarray]:
        program = self.unit.behaviour.program
        assert program is not None
        parts: list[list[np.ndarray]] = [[] for _ in program.ints]
        found = {
            slot: integers(self.unit, traffic.plans[slot].tables.units[self.unit.index], instances[slot])[0]
            for slot in self.slots
        }
        for slot, at in chosen:
            for k, (values, starts) in enumerate(found[slot]):
                parts[k].append(values[starts[at] : starts[at + 1]])
        return [np.concatenate(part) for part in parts]

    def of(self, kind: int, number: int) -> PartFrame:
        program = self.unit.behaviour.program
        assert program is not None
        of = program.outputs_types if kind == BACKWARD else [t for _, t in program.inputs]
        arrays = [
            self._rng.normal(0.0, SPREAD, (int(self._rows[t.space].sum()), t.width)).astype(np.float32)
            if t.kind == "float"
            else None
            for t in of
        ]
        u = self.unit.index
        return PartFrame(number, u, kind, self._slots, self._firings, self._rows, arrays, self._ints)
