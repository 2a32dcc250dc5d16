"""Devices that there are not: nodes on one compute nothing, and take as long as they would need there.

The engine lets their frames wait itself (`native/sleepers.hpp`): it forms, counts and delivers them as it
does its own, and counts versions and updates of their parameters, whose values stay as they are. Here is what
such a device costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from amphw.engine.lowering.lower import Unit
from amphw.engine.parts.costs import DIRECTIONS, FLOAT_BYTES, Crossing, NodeTime, crossings
from amphw.engine.policy import BACKWARD
from amphw.ir.device import Capabilities, LinkRate, LinkUse
from amphw.ir.flops import products
from amphw.ir.graph import Graph
from amphw.ir.units import written
from amphw.ir.update import UpdateRule


@dataclass
class Cost:
    """Floating-point operations of a node: for each row forward, backward and of the gradient; of an update.

    2 * k * din * dout for k rows of a layer of din x dout in each direction, din * dout for an update
    (AMPNet, ICLR 2018 submission HJnQJXbC-, appendix C).
    """

    row: float
    update: float

    @classmethod
    def of(cls, unit: Unit) -> Cost:
        program = unit.behaviour.program
        assert program is not None
        numbers = [int(np.prod(p.shape)) for p in program.params]
        return cls(float(sum(products(program).values())), float(sum(numbers)))

    def work(self, rows: float, kind: int) -> float:
        """Of a frame of so many rows, less updates."""
        return self.row * rows * (2 if kind == BACKWARD else 1)


class Sleeper:
    """A device of `flops` operations a second, which serves one frame after another. In a run it is the
    engine's, from `describe` on."""

    def __init__(self, about: Capabilities, flops: float):
        self.about, self.flops = about, flops
        self._units: list[Unit] = []
        self._engine: Any = None

    def capabilities(self) -> Capabilities:
        return self.about

    def refused(self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule]) -> str:
        """See `amphw.engine.parts.part.Part`: it takes every node."""
        return ""

    def node_time(
        self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule], rows: Mapping[str, float]
    ) -> NodeTime:
        """See `TellsTime`."""
        cost = Cost.of(unit)
        forward, backward = (cost.work(rows["rows"], kind) / self.flops for kind in DIRECTIONS)
        how = f"operations of its products at {written(self.flops, 'FLOPS')}"
        return NodeTime(forward, backward, cost.update / self.flops, "stated", how)

    def models_link(self) -> bool:
        """See `ModelsLink`: frames take their time on the way, in each direction one after another."""
        return True

    def state_link(self, rate: LinkRate) -> None:
        """See `ModelsLink`."""
        self.about = replace(self.about, link=rate)

    # --- in a run ---------------------------------------------------------------------------------

    def describe(self, units: Sequence[Unit], worker: int, number: int) -> tuple[Any, dict[int, Any]]:
        """The device and its units as the engine takes them (`sleepers`, `slept`). units: that are placed on
        it. worker: as which its frames are counted and traced. number: among the devices that sleep."""
        self._units = list(units)
        link = self.about.link
        device = worker, None if link is None else (8 / link.bits_per_s, link.latency)
        return device, {u.index: (number, *self._taken(u)) for u in units}

    def _taken(self, unit: Unit) -> tuple[Any, ...]:
        cost, spaces = Cost.of(unit), _spaces(unit)
        row = tuple(cost.work(1, kind) / self.flops for kind in DIRECTIONS)

        def each(of: Crossing) -> tuple[float, list[float]]:
            return of.bytes(1, {}), [of.bytes(0, {space: 1}) for space in spaces]

        ahead, returned = ([each(of) for of in crossings(unit, kind)] for kind in DIRECTIONS)
        to, back = zip(ahead, returned, strict=True)
        return row, cost.update / self.flops, to, back

    def attach(self, engine: Any, number: int) -> None:
        """The engine that has been given the description; what it counts is told from here on."""
        self._engine, self._number, self._began = engine, number, time.perf_counter()

    def carried(self) -> tuple[int, int]:
        """Bytes of messages, to the device and back, since `attach`."""
        return self._counted(lambda of, firings, rows: FLOAT_BYTES * of.numbers(rows))

    def link_use(self) -> LinkUse:
        """See `ModelsLink`."""
        rate = self.about.link
        assert rate is not None
        sent, came = self._counted(Crossing.bytes)
        to, back = (8 * size / rate.bits_per_s for size in (sent, came))
        idle = self._engine.sleeper_idle(self._number)
        return LinkUse(rate, sent, came, time.perf_counter() - self._began, to, back, idle)

    def _counted(self, size: Callable[[Crossing, int, Mapping[str, float]], float]) -> tuple[int, int]:
        """Sums of what has gone each way, by the frames that the engine has counted."""
        total = [0.0, 0.0]
        for unit in self._units:
            counted = self._engine.slept_rows(unit.index)
            for kind, (firings, rows) in zip(DIRECTIONS, counted, strict=True):
                named = dict(zip(_spaces(unit), rows, strict=True))
                for way, of in enumerate(crossings(unit, kind)):
                    total[way] += size(of, firings, named)
        return int(total[0]), int(total[1])


def _spaces(unit: Unit) -> list[str]:
    return [name for name, _ in unit.behaviour.spaces]
