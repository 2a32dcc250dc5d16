"""Training modes and pump policies: how many instances are in flight, and who asks for updates.

AMPNet (arXiv 1705.09786, section 5) trains asynchronously: instances flow, nodes update themselves. Its two
baselines are the synchronous one, a single instance at a time, and pipelining, a window of instances that all
see the same parameters. In both of these the controller sends the UPDATE messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from amphw.host.config import TrainConfig
from amphw.host.meters import DeviceMeter


@dataclass(frozen=True)
class TrainingMode:
    """window: instances in flight at most. barrier: whether a window returns as a whole, followed by UPDATE.

    updates: `DeviceOptions.updates`, who triggers updates.
    """

    window: int
    barrier: bool
    updates: str


def training_mode(train: TrainConfig) -> TrainingMode:
    """The mode that `[train]` asks for. Only "async" uses max_active_keys."""
    if train.mode == "sync":
        return TrainingMode(1, True, "controller")
    if train.mode == "pipeline":
        return TrainingMode(train.pipeline_depth, True, "controller")
    return TrainingMode(train.max_active_keys, False, "self")


class PumpPolicy(Protocol):
    """Decides whether one more instance may enter, given how many are in flight; 0 in flight always may."""

    def admits(self, in_flight: int) -> bool: ...


class Greedy:
    """Pumps while a key is free."""

    def admits(self, in_flight: int) -> bool:
        return True


class StalenessLimited:
    """Pumps while the staleness that a new instance must expect stays within `limit`, in versions.

    What is in flight ahead of a new instance gathers `in flight * rows per instance` gradient rows at a node
    before the new instance's own gradients arrive there, which makes that many over the node's interval new
    versions. Rows per instance are those measured so far; until the first instance is back nothing is known,
    and one at a time goes.
    """

    def __init__(self, meter: DeviceMeter, intervals: Mapping[str, int], limit: float) -> None:
        """intervals: `min_update_interval` of every node with parameters, in gradient rows."""
        self._meter, self._intervals, self._limit = meter, dict(intervals), limit

    def admits(self, in_flight: int) -> bool:
        return in_flight == 0 or self.predicted(in_flight) <= self._limit

    def predicted(self, in_flight: int) -> float:
        """Expected versions between forward and backward at the worst node; inf while nothing is known."""
        rows = self._meter.rows_per_instance()
        if rows is None:
            return float("inf")
        return max((in_flight * rows.get(n, 0.0) / i for n, i in self._intervals.items()), default=0.0)


def pump_policy(train: TrainConfig, meter: DeviceMeter, intervals: Mapping[str, int]) -> PumpPolicy:
    """The policy that `[train] pump` asks for; the modes with a barrier have no staleness to limit."""
    if train.pump == "staleness" and train.mode == "async":
        return StalenessLimited(meter, intervals, train.max_staleness)
    return Greedy()
