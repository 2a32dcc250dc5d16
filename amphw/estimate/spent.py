"""What a node takes of a device, summed over the firings of real instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amphw.engine.lower import Unit
from amphw.estimate.devices import FiringTimes
from amphw.estimate.shape import Walk, value_at
from amphw.estimate.traffic import Traffic
from amphw.estimate.work import NodeWork


@dataclass(frozen=True)
class Spent:
    """Seconds of an instance, on average: forward, backward, and its share of the updates."""

    ahead: float
    back: float
    update: float

    @property
    def seconds(self) -> float:
        return self.ahead + self.back + self.update


def spent_on(traffic: Traffic, work: NodeWork, unit: Unit, times: FiringTimes) -> Spent:
    """unit: on a device that takes such times."""
    ahead = back = 0.0
    for number, walked in enumerate(traffic.walks):
        for at in walked.order:
            if walked.shape.unit[at] == unit.index:
                one = firing(traffic, number, walked, at, unit, times)
                ahead, back = ahead + one[0], back + one[1]
    count = len(traffic.walks)
    return Spent(ahead / count, back / count, work.updates * times.update(unit.name) if work.updates else 0.0)


def firing(
    traffic: Traffic, number: int, walked: Walk, at: int, unit: Unit, times: FiringTimes
) -> tuple[float, float]:
    """Seconds of firing `at` of walk `number`, forward and backward."""
    rows = rows_of(traffic.plans[number].units[unit.index].spaces, walked.at[at])
    needs, sends = walked.shape.need[at], len(walked.shape.targets[at])
    ahead, back = (times.firing(unit.name, backward, rows, needs, sends) for backward in (False, True))
    return ahead, back


def rows_of(spaces: Mapping[str, int | Sequence[int]], at: int) -> dict[str, int]:
    """Of a firing, by space."""
    return {space: value_at(values, at) for space, values in spaces.items()}
