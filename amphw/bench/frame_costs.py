"""What frames, deliveries, reductions and updates take, from traces of one worker.

A slice of a trace is a frame's arithmetic. The time from a slice to the next is that of delivering its
messages and, where the frame filled a chunk of the gradient log, of reducing that. Which frames do is known
from the rows of the slices, by the log's own rules; where the log has rows of several spaces, of which a
slice has the first's alone, it is seen from how long the delivery seems to take.

The more instances are in flight, the less of what a frame touches is still in a near cache. So one worker is
traced with several numbers of instances, and a row costs what it does with about as many.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from math import log2
from statistics import median

import numpy as np

from amphw.engine.numbering import WORTH_REDUCING
from amphw.engine.policy import BACKWARD, KINDS
from amphw.estimate.play.simulation import Costs, Line

UPDATE = len(KINDS)
OUTLIER = 3.0
"""A sample that takes so many times what is usual was interrupted, and does not count."""

SHORT_US = 0.5
GROUPS = 16
"""What is usual: medians of so many groups of samples with about as many rows."""

Sample = tuple[int, float]
"""Rows, or instances, and microseconds."""


@dataclass(frozen=True, slots=True)
class Slice:
    """What one worker did from `begin` on, in microseconds. kind: of a frame, or UPDATE."""

    unit: int
    kind: int
    begin: float
    duration: float
    rows: int

    @property
    def end(self) -> float:
        return self.begin + self.duration


@dataclass(frozen=True)
class Trace:
    """All slices of one worker since it was loaded, in order. windows: the stretches (begin, end), in order,
    that say what things take. rounds: of the host, which served so many instances at once in so many
    microseconds of its thread."""

    slices: Sequence[Slice]
    windows: Sequence[tuple[float, float]]
    rounds: Sequence[Sample] = ()


@dataclass(frozen=True)
class Nodes:
    """What must be known of the units to read a trace.

    intervals: gradient rows between updates, by owning unit. several: owning units whose log has rows of
    several spaces. first: units that hear of sources alone; a worker that waited for the host goes on there.
    """

    intervals: Mapping[int, int]
    several: frozenset[int] = frozenset()
    first: frozenset[int] = frozenset()


@dataclass
class Chunk:
    """Logged gradient rows that are reduced together."""

    rows: int = 0
    due: bool = False


class Log:
    """When one worker reduces the gradient log of a node, as `Parameters` of the engine has it.

    long: the least time between a frame and the next that says that the frame reduced, None where the rows
    say it.
    """

    def __init__(self, interval: int, long: Line | None = None) -> None:
        self.interval, self.long = interval, long
        self._open = Chunk()
        self._since = 0  # rows since the last update was due

    def add(self, rows: int, gap: float = 0.0) -> Chunk | None:
        """Rows of a frame, and the time to the next -> the chunk that is reduced behind it."""
        chunk = self._open
        chunk.rows += rows
        self._since += rows
        chunk.due = self._since >= self.interval
        full = chunk.rows >= WORTH_REDUCING if self.long is None else gap > self.long.of(rows)
        if chunk.due:
            self._since = 0
        elif not full:
            return None
        self._open = Chunk()
        return chunk


@dataclass
class Samples:
    """What one trace says. reductions: the frame's rows, the chunk's rows, the time to the next frame. waits:
    times between a frame and one that begins an instance."""

    frames: dict[tuple[int, int], list[Sample]] = field(default_factory=lambda: defaultdict(list))
    gaps: dict[tuple[int, int], list[Sample]] = field(default_factory=lambda: defaultdict(list))
    reductions: dict[int, list[tuple[int, int, float]]] = field(default_factory=lambda: defaultdict(list))
    updates: dict[int, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    waits: list[float] = field(default_factory=list)

    @property
    def us(self) -> float:
        """Of the worker, all of them together."""
        lists = chain(self.frames.values(), self.gaps.values(), self.updates.values())
        return sum(us for each in lists for _, us in each) + sum(
            gap for each in self.reductions.values() for _, _, gap in each
        )

    def explained(self, costs: Costs) -> float:
        """Of that, what the costs make of the same frames."""
        us = sum(costs.frame[key].of(rows) for key, each in self.frames.items() for rows, _ in each)
        us += sum(costs.delivery[key].of(rows) for key, each in self.gaps.items() for rows, _ in each)
        for u, reductions in self.reductions.items():
            after = costs.delivery[u, BACKWARD]
            us += sum(after.of(rows) + costs.reduce[u] * chunk for rows, chunk, _ in reductions)
        return us + sum(
            costs.update[u] + costs.reduce[u] * rows for u, each in self.updates.items() for rows, _ in each
        )


def fit_costs(traces: Mapping[int, Trace], nodes: Nodes) -> tuple[dict[int, Costs], float]:
    """Traces by instances in flight -> the costs of each, and the share of the worker's time that they
    account for. What a frame takes however few rows it has is the same in all of them, and so is what the
    host takes. With one instance in flight it wakes for as long as the worker waits, as both must wake up."""
    samples = {keys: samples_of(trace, nodes) for keys, trace in traces.items()}
    all_ = list(samples.values())
    frame = _lines([s.frames for s in all_])
    delivery = _lines([s.gaps for s in all_])
    host = host_line([sample for trace in traces.values() for sample in trace.rounds])
    found = {}
    for number, (keys, here) in enumerate(samples.items()):
        after = {key: delivery[key][number] if key in delivery else Line(0.0, 0.0) for key in frame}
        reduce, update = {}, {}
        for u in nodes.intervals:
            line = after.get((u, BACKWARD), Line(0.0, 0.0))
            own = _of_row(here.reductions[u], line) or _of_row(
                [r for s in all_ for r in s.reductions[u]], line
            )
            spent = here.updates[u] or [sample for s in all_ for sample in s.updates[u]]
            reduce[u] = median(own) if own else fit(spent).per_row
            left = [max(0.0, us - rows * reduce[u]) for rows, us in spent]
            update[u] = median(left) if left else 0.0
        lines = {key: each[number] for key, each in frame.items()}
        waking = median(here.waits) - host.per_row if keys == 1 and here.waits else host.fixed
        found[keys] = Costs(lines, after, reduce, update, host.per_row, waking=max(0.0, waking))
    us = sum(s.us for s in all_)
    return found, sum(s.explained(found[keys]) for keys, s in samples.items()) / us if us else 0.0


def costs_with(traced: Mapping[int, Costs], keys: float) -> Costs:
    """Costs with so many instances in flight: between two traces by the logarithm of their number, beyond all
    of them those of the nearest."""
    known = sorted(traced)
    place = bisect_right(known, keys)
    if place in (0, len(known)):
        return traced[known[max(0, place - 1)]]
    low, high = known[place - 1], known[place]
    share = log2(keys / low) / log2(high / low)
    a, b = traced[low], traced[high]

    def mean(x: float, y: float) -> float:
        return x + share * (y - x)

    def lines(
        x: Mapping[tuple[int, int], Line], y: Mapping[tuple[int, int], Line]
    ) -> dict[tuple[int, int], Line]:
        return {k: Line(mean(x[k].fixed, y[k].fixed), mean(x[k].per_row, y[k].per_row)) for k in x if k in y}

    return Costs(
        lines(a.frame, b.frame),
        lines(a.delivery, b.delivery),
        {u: mean(a.reduce[u], b.reduce[u]) for u in a.reduce},
        {u: mean(a.update[u], b.update[u]) for u in a.update},
        mean(a.host, b.host),
        waking=mean(a.waking, b.waking),
    )


# --- samples ------------------------------------------------------------------------------------------


def samples_of(trace: Trace, nodes: Nodes) -> Samples:
    """What lies within the windows; slices outside count for the logs alone."""
    found = Samples()
    long = {u: _long(trace, u) for u in nodes.several}
    logs = {u: Log(interval, long.get(u)) for u, interval in nodes.intervals.items()}
    due: dict[int, int] = {}  # rows of the chunk that the next update reduces
    windows = iter(trace.windows)
    begin, end = next(windows)
    for here, following in pairwise(trace.slices):
        while here.begin >= end:
            begin, end = next(windows, (float("inf"), float("inf")))
        fits = begin <= here.begin and following.begin <= end
        if here.kind == UPDATE:
            rows = due.pop(here.unit, 0)
            if fits:
                found.updates[here.unit].append((rows, here.duration))
            continue
        key, gap = (here.unit, here.kind), following.begin - here.end
        reduced = 0
        if here.kind == BACKWARD and here.unit in logs:
            chunk = logs[here.unit].add(here.rows, gap)
            if chunk is not None and chunk.due:
                due[here.unit] = chunk.rows
            elif chunk is not None:
                reduced = chunk.rows
        if not fits:
            continue
        found.frames[key].append((here.rows, here.duration))
        if following.unit in nodes.first and following.kind != BACKWARD:
            found.waits.append(gap)  # for the host, or it is a delivery: who knows
            continue
        if reduced:
            found.reductions[here.unit].append((here.rows, reduced, gap))
        else:
            found.gaps[key].append((here.rows, gap))
    return found


def _long(trace: Trace, unit: int) -> Line:
    """From when on the time after a backward frame includes a reduction: half of what reductions take, which
    are the gaps that are too long for a delivery."""
    gaps = [
        (here.rows, following.begin - here.end)
        for here, following in pairwise(trace.slices)
        if here.unit == unit and here.kind == BACKWARD
    ]
    usual = fit(gaps)
    more = [gap - usual.of(rows) for rows, gap in gaps if gap > OUTLIER * max(usual.of(rows), SHORT_US)]
    return Line(usual.fixed + (median(more) / 2 if more else float("inf")), usual.per_row)


def _of_row(reductions: Iterable[tuple[int, int, float]], delivery: Line) -> list[float]:
    return [max(0.0, gap - delivery.of(rows)) / chunk for rows, chunk, gap in reductions]


# --- lines --------------------------------------------------------------------------------------------


def fit(samples: Sequence[Sample]) -> Line:
    """The line through (rows, microseconds) by least squares, neither part negative, without outliers."""
    return fit_together([samples])[0]


def host_line(rounds: Sequence[Sample]) -> Line:
    """What the host takes for instances that it serves at once: the fixed part is that it wakes up for them.
    Through the medians of the rounds with as many; where all have, an instance takes its part of them."""
    by_count: dict[int, list[float]] = defaultdict(list)
    for count, us in rounds:
        by_count[count].append(us)
    if not by_count:
        return Line(0.0, 0.0)
    usual = np.array([(count, median(each)) for count, each in by_count.items()])
    return _line(usual, _fixed([usual]) or 0.0)


def fit_together(traces: Sequence[Sequence[Sample]]) -> list[Line]:
    """A line for the samples of each trace, which keeps what they take in all; the fixed part, by least
    squares, is the same in all lines. Neither part is negative, and outliers do not count. A trace without
    samples has the line of all others."""
    kept = [_kept(samples) for samples in traces]
    whole = np.concatenate(kept) if kept else np.empty((0, 2))
    if not len(whole):
        return [Line(0.0, 0.0)] * len(kept)
    fixed = _fixed([each for each in kept if len(each)])
    if fixed is None:  # no trace has frames with fewer rows and with more
        fixed = _fixed([whole])
    return [_line(each if len(each) else whole, fixed) for each in kept]


def _lines(traces: Sequence[Mapping[tuple[int, int], Sequence[Sample]]]) -> dict[tuple[int, int], list[Line]]:
    keys = sorted({key for each in traces for key in each})
    return {key: fit_together([each.get(key, ()) for each in traces]) for key in keys}


def _kept(samples: Sequence[Sample]) -> np.ndarray:
    """Samples without outliers, in a row each."""
    ordered = np.array(sorted(samples), float).reshape(-1, 2)
    if not len(ordered):
        return ordered
    groups = np.array_split(ordered, max(1, min(GROUPS, len(ordered) // GROUPS)))
    usual = np.array([np.median(group, axis=0) for group in groups])
    rough = _line(usual, _fixed([usual]))
    limit = OUTLIER * np.maximum(rough.fixed + rough.per_row * ordered[:, 0], SHORT_US)
    kept = ordered[ordered[:, 1] <= limit]
    return kept if len(kept) else usual


def _fixed(traces: Sequence[np.ndarray]) -> float | None:
    """What no rows would take, by least squares, where rows take what they do in each trace; not negative.
    None where the rows of no trace vary."""
    above, below = 0.0, 0.0
    for rows, us in (each.T for each in traces):
        if rows.min() == rows.max():
            continue
        share = rows.sum() / (rows**2).sum()
        above += us.sum() - share * (rows * us).sum()
        below += len(rows) - share * rows.sum()
    return max(0.0, above / below) if below > 0 else None


def _line(samples: np.ndarray, fixed: float | None) -> Line:
    """With this fixed part, and through the middle of the samples."""
    rows, us = samples.T.mean(axis=1)
    if fixed is None or us <= fixed or rows <= 0:
        return Line(float(us), 0.0)
    return Line(float(fixed), float((us - fixed) / rows))
