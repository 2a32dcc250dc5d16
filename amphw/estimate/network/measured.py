"""Devices like one that is here, on which each node was timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from amphw.engine.parts.costs import FLOAT_BYTES
from amphw.estimate.count.traffic import Traffic
from amphw.estimate.count.work import NodeWork
from amphw.estimate.network.busy import LEAST
from amphw.estimate.network.devices import FiringTimes, Wire
from amphw.ir.flops import rows_of
from amphw.ir.update import UpdateRule


@dataclass(frozen=True, eq=False)
class LikeDevice:
    """like: the device's name. seconds: of an instance, by node, updates included; nodes that are not there
    take none. peak: operations a second of the node that does most. speed: times the device's."""

    like: str
    seconds: Mapping[str, float]
    peak: float
    speed: float = 1.0
    number_bytes: int = FLOAT_BYTES
    header_bytes: int = 0
    host: Wire | None = None

    @property
    def label(self) -> str:
        return f"like {self.like}" + (f", {self.speed:g} times" if self.speed != 1.0 else "")

    @property
    def roof(self) -> float:
        return self.peak

    @property
    def resources(self) -> Mapping[str, int]:
        return {}

    def faster(self, factor: float) -> LikeDevice:
        return replace(self, peak=factor * self.peak, speed=factor * self.speed)

    def times(
        self,
        traffic: Traffic,
        work: Mapping[str, NodeWork],
        rules: Mapping[str, UpdateRule],
        nodes: Sequence[str] | None = None,
    ) -> FiringTimes:
        each = {}
        for name, seconds in self.seconds.items():
            if name in work:
                whole = max(work[name].forward + work[name].backward, LEAST)
                each[name] = seconds / self.speed / whole
        return _Shared(work, each)


@dataclass(frozen=True)
class _Shared:
    """What a node takes of an instance is shared by its firings as their operations are. each: seconds of an
    operation, by node."""

    work: Mapping[str, NodeWork]
    each: Mapping[str, float]

    def here(self, node: str) -> bool:
        return True

    def firing(self, node: str, backward: bool, rows: Mapping[str, int], needs: int, sends: int) -> float:
        done = sum(each[backward] * rows_of(rows, s) for s, each in self.work[node].row_flops.items())
        return done * self.each.get(node, 0.0)

    def control(
        self, node: str, backward: bool, needs: float, sends: float, rows: float
    ) -> tuple[float, float]:
        return 0.0, 0.0

    def update(self, node: str) -> float:
        return 0.0
