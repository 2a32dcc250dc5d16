"""What a run measures: means of what sinks report, and a device's counters gathered over a phase.

A phase is the training or the validation part of an epoch; the device's counters are read and emptied at its
end, so that a phase's figures hold nothing of its neighbours.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from amphw.host.run_model import RunModel
from amphw.ir.device import Device, Report

_FRESH_S = 0.02
"""How old the counters may be for a pump decision; reading them stops no worker, but it is not free."""


@dataclass
class Tally:
    """Sums of the figures that one Loss node reports, and the rows that they are over; beside it those of
    other losses."""

    node: str
    names: tuple[str, ...]
    rows: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    beside: tuple[Tally, ...] = ()

    @classmethod
    def of(cls, model: RunModel) -> Tally:
        """For all losses of a model."""
        others = tuple(cls(node, tuple(names)) for node, names in model.beside.items())
        return cls(model.loss_node, tuple(model.metrics), beside=others)

    def empty(self) -> Tally:
        """Another one for the same figures, which has none yet."""
        return Tally(self.node, self.names, beside=tuple(each.empty() for each in self.beside))

    def add(self, report: Report) -> bool:
        """Add an instance's report -> False where one of its figures is NaN or infinite."""
        finite = True
        for each in self.beside:
            finite &= each.add(report)
        given = report.sums.get(self.node)
        if given is None:
            return finite  # a device that computes nothing reports nothing
        self.rows += report.rows[self.node]
        for name in self.names:
            value = given[name]
            finite = finite and math.isfinite(value)
            self.sums[name] = self.sums.get(name, 0.0) + value
        return finite

    def include(self, other: Tally) -> None:
        """Add what another one has counted."""
        self.rows += other.rows
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        for mine, theirs in zip(self.beside, other.beside, strict=True):
            mine.include(theirs)

    def means(self) -> dict[str, float]:
        """Mean of every figure over the rows so far, those of other losses as LOSS.NAME; empty before the
        first row."""
        found = {name: value / self.rows for name, value in self.sums.items()} if self.rows else {}
        for each in self.beside:
            found |= {f"{each.node}.{name}": value for name, value in each.means().items()}
        return found

    def figures(self) -> list[float]:
        """Rows and sums of all losses, one after the other."""
        own = [float(self.rows), *(self.sums.get(name, 0.0) for name in self.names)]
        return own + [figure for each in self.beside for figure in each.figures()]

    def filled(self, figures: Sequence[float]) -> Tally:
        """One for the same losses, with what `figures` gave of all its parts added up."""
        waiting = iter(figures)
        made = self.empty()
        for each in (made, *made.beside):
            each.rows = int(next(waiting))
            sums = {name: next(waiting) for name in each.names}
            each.sums = sums if each.rows else {}
        return made

    def to_json(self) -> dict[str, Any]:
        beside = {each.node: each.to_json() for each in self.beside}
        return {"rows": self.rows, "sums": self.sums} | ({"beside": beside} if beside else {})

    def restore(self, data: Mapping[str, Any]) -> None:
        self.rows, self.sums = int(data["rows"]), {str(k): float(v) for k, v in data["sums"].items()}
        known = data.get("beside", {})  # what was saved before other losses were counted has none
        for each in self.beside:
            if each.node in known:
                each.restore(known[each.node])


class DeviceMeter:
    """The device's counters summed over the current phase, and what each retired instance costs a node."""

    def __init__(self, device: Device, clock: Callable[[], float] = time.perf_counter) -> None:
        self._device, self._clock = device, clock
        self._rows_seen: Counter[str] = Counter()
        self._retired = 0
        self._per_instance: dict[str, float] | None = None
        self._measures = False  # whether the device has ever told a worker's time
        self.start()

    def start(self) -> None:
        """Begin a phase: what the device counted before belongs to no phase."""
        self._device.statistics()
        self.forward = self.backward = self.updates = 0
        self.staleness: dict[str, Counter[int]] = {}
        self.busy: list[float] = []
        self.gradients: dict[str, list[float]] = {}
        self._began = self._read_at = self._clock()
        self._lately: list[float] = []

    def collect(self) -> None:
        """Read the device's counters now."""
        now = self._clock()
        got = self._device.statistics()
        self.forward += got.forward
        self.backward += got.backward
        self.updates += got.updates
        for node, histogram in got.staleness.items():
            mine = self.staleness.setdefault(node, Counter())
            for behind, rows in histogram.items():
                mine[behind] += rows
                self._rows_seen[node] += rows
        self.gradients |= got.gradients
        self.busy = [a + b for a, b in zip_longest(self.busy, got.busy, fillvalue=0.0)]
        self._measures = self._measures or any(got.busy)
        span = now - self._read_at
        self._lately = self._shares(got.busy, span)
        self._read_at = now
        if self._retired:
            self._per_instance = {node: rows / self._retired for node, rows in self._rows_seen.items()}

    def retired(self) -> None:
        """Note that a training instance came back."""
        self._retired += 1

    def rows_per_instance(self) -> dict[str, float] | None:
        """Mean gradient rows of an instance at each node; None before the first came back."""
        if self._retired and (self._per_instance is None or self._clock() - self._read_at > _FRESH_S):
            self.collect()
        return self._per_instance

    def utilisation(self) -> list[float]:
        """Busy share 0..1 of every worker in the phase, up to the last reading.

        NaN where messages moved though no worker was ever busy: the device does not measure it.
        """
        return self._shares(self.busy, self._read_at - self._began)

    def utilisation_lately(self) -> list[float]:
        """The same between the last two readings."""
        return list(self._lately)

    def _shares(self, busy: list[float], span: float) -> list[float]:
        if self.forward and not self._measures:
            return [math.nan] * len(busy)
        return [_share(b, span) for b in busy]

    def staleness_overall(self) -> Counter[int]:
        """Rows by versions behind, over all nodes."""
        total: Counter[int] = Counter()
        for histogram in self.staleness.values():
            total.update(histogram)
        return total


class KeysInFlight:
    """Mean number of instances in flight over time, from the moments at which it changes."""

    def __init__(self, now: float) -> None:
        self._since = self._at = now
        self._keys, self._area = 0, 0.0

    def change(self, keys: int, now: float) -> None:
        self._area += self._keys * (now - self._at)
        self._keys, self._at = keys, now

    def mean(self) -> float:
        """Up to the last change; NaN where no time has passed."""
        return self._area / (self._at - self._since) if self._at > self._since else math.nan


def percentile(histogram: Mapping[int, int], share: float) -> float:
    """The least value that `share` (0..1) of the counted rows do not exceed; NaN for an empty histogram."""
    total = sum(histogram.values())
    seen = 0
    for value in sorted(histogram):
        seen += histogram[value]
        if seen >= share * total and seen:
            return float(value)
    return math.nan


def _share(busy: float, span: float) -> float:
    return min(1.0, busy / span) if span > 0 else 0.0
