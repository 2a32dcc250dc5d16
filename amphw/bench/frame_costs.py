"""What frames, deliveries, reductions and updates take, from the trace of one worker.

A slice of the trace is a frame's arithmetic. The time from a slice to the next is that of delivering its
messages and, where the frame filled a chunk of the gradient log, of reducing that; which frames do is known
from the rows of the slices, by the log's own rules.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from amphw.bench.errors import BenchError
from amphw.bench.ours import PumpLoop
from amphw.engine.lower import Lowered
from amphw.engine.numpy_plane import NumpyPlane
from amphw.engine.numpy_plane.gradients import WORTH_REDUCING
from amphw.engine.policy import BACKWARD, KINDS, POLICIES
from amphw.estimate.simulation import Costs, Line, Rules
from amphw.host.devices import make_device
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule

UPDATE = len(KINDS)
OUTLIER = 3.0
"""A sample that takes so many times what is usual was interrupted, and does not count."""

SHORT_US = 0.5
GROUPS = 16
"""What is usual: medians of so many groups of samples with about as many rows."""


@dataclass(frozen=True)
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


@dataclass
class Chunk:
    """Logged gradient rows that are reduced together."""

    rows: int = 0
    due: bool = False


class Log:
    """When one worker reduces the gradient log of a node, as `Parameters` of the engine has it.

    The engine also seals a chunk that has no room for the rows of a space other than the first; what such
    reductions take counts as delivery.
    """

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self._open = Chunk()
        self._since = 0  # rows since the last update was due

    def add(self, rows: int) -> Chunk | None:
        """Rows of a frame -> the chunk that is reduced behind it."""
        chunk = self._open
        chunk.rows += rows
        self._since += rows
        chunk.due = self._since >= self.interval
        if chunk.due:
            self._since = 0
        elif chunk.rows < WORTH_REDUCING:
            return None
        self._open = Chunk()
        return chunk


@dataclass(frozen=True)
class Profile:
    """What a simulation needs to know of a device. explained: share of the worker's time that the costs,
    applied to the same frames, account for."""

    costs: Costs
    explained: float
    lowered: Lowered
    rules: Rules


def measure_costs(
    graph: Graph,
    rules: Mapping[str, UpdateRule],
    options: DeviceOptions,
    instances: Sequence[Instance],
    seconds: float,
    warm: float,
) -> Profile:
    """Run instances on one worker for `seconds`, after `warm` seconds of the same.

    Raises BenchError without the C++ data plane.
    """
    found: list[Slice] = []

    def collect(
        _worker: int, node: str, kind: str, begin: float, duration: float, rows: int, *_: object
    ) -> None:
        number = UPDATE if kind == "update" else KINDS.index(kind)
        found.append(Slice(device.lowered.by_name[node], number, begin, duration, rows))

    device: Any = make_device("cpu")
    settings = {**options.settings, "workers": 1, "trace": collect}
    device.load(
        graph, rules, DeviceOptions(options.max_active_keys, 0, "self", options.seed, settings=settings)
    )
    try:
        if isinstance(device.plane, NumpyPlane):
            raise BenchError(
                "a schedule is simulated from the costs of the C++ data plane, which is not built"
            )
        device.plane.trace = None  # the engine keeps the slices: handing them over would be measured as well
        loop = PumpLoop(device, instances, [1] * len(instances), range(options.max_active_keys), Mode.TRAIN)
        loop.run(warm)
        began, cpu = time.perf_counter() * 1e6, time.thread_time()
        pumped = loop.run(seconds)["count"]
        host = (time.thread_time() - cpu) * 1e6 / pumped
        device.close()  # first: an idle worker hands its slices over as well, and would not wait for this one
        device.plane.trace = collect
        device.plane.poll(0.0)
        order = _rules(device, rules)
        slices = sorted(found, key=lambda s: s.begin)
        costs, explained = fit_costs(slices, order.intervals, host, began)
        return Profile(costs, explained, device.lowered, order)
    finally:
        device.close()


def _rules(device: Any, rules: Mapping[str, UpdateRule]) -> Rules:
    lowered, settings = device.lowered, device.options.settings
    policy = settings.get("policy", "default")
    return Rules(
        table=device.plane.policy,
        depth=[u.depth for u in lowered.units],
        intervals={u.index: rules[u.name].interval for u in lowered.units if u.name in device.params},
        frame_cap=int(settings.get("frame_cap", 64)),
        frame_rows=int(settings.get("frame_rows", 512)),
        by_age=POLICIES[policy].by_age,
    )


def fit_costs(
    slices: Sequence[Slice], intervals: Mapping[int, int], host: float, warm: float = 0.0
) -> tuple[Costs, float]:
    """Costs from all slices of one worker since it was loaded, in order, and the share of its time that they
    account for. Slices before `warm` are not fitted."""
    logs = {u: Log(interval) for u, interval in intervals.items()}
    frames: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
    gaps: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
    reductions: dict[int, list[tuple[int, int, float]]] = defaultdict(list)  # frame's rows, chunk's rows, gap
    updates: dict[int, list[tuple[int, float]]] = defaultdict(list)
    due: dict[int, int] = {}  # rows of the chunk that the next update reduces
    for here, following in zip(slices, slices[1:], strict=False):
        fits = here.begin >= warm
        if here.kind == UPDATE:
            if fits:
                updates[here.unit].append((due.pop(here.unit, 0), here.duration))
            continue
        reduced = 0
        if here.kind == BACKWARD and here.unit in logs:
            chunk = logs[here.unit].add(here.rows)
            if chunk is not None and chunk.due:
                due[here.unit] = chunk.rows
            elif chunk is not None:
                reduced = chunk.rows
        if not fits:
            continue
        key, gap = (here.unit, here.kind), following.begin - here.end
        frames[key].append((here.rows, here.duration))
        if reduced:
            reductions[here.unit].append((here.rows, reduced, gap))
        else:
            gaps[key].append((here.rows, gap))
    frame = {key: fit(samples) for key, samples in frames.items()}
    delivery = {key: fit(gaps[key]) for key in frames}
    reduce, update = {}, {}
    for u in intervals:
        after = delivery.get((u, BACKWARD), Line(0.0, 0.0))
        each = [max(0.0, gap - after.of(rows)) / chunk for rows, chunk, gap in reductions[u]]
        whole = fit(updates[u])
        reduce[u] = median(each) if each else whole.per_row
        left = [max(0.0, spent - rows * reduce[u]) for rows, spent in updates[u]]
        update[u] = median(left) if left else 0.0
    costs = Costs(frame, delivery, reduce, update, host)
    spent = sum(frame[key].of(rows) for key, samples in frames.items() for rows, _ in samples)
    spent += sum(delivery[key].of(rows) for key, samples in gaps.items() for rows, _ in samples)
    spent += sum(
        delivery[u, BACKWARD].of(rows) + reduce[u] * chunk
        for u, samples in reductions.items()
        for rows, chunk, _ in samples
    )
    spent += sum(update[u] + reduce[u] * rows for u, samples in updates.items() for rows, _ in samples)
    timed = [s for s in slices if s.begin >= warm]
    return costs, spent / (timed[-1].begin - timed[0].begin) if len(timed) > 1 else 0.0


def fit(samples: Sequence[tuple[int, float]]) -> Line:
    """The line through (rows, microseconds) by least squares, neither part negative, without outliers."""
    if not samples:
        return Line(0.0, 0.0)
    ordered = np.array(sorted(samples), float)
    groups = np.array_split(ordered, max(1, min(GROUPS, len(ordered) // GROUPS)))
    usual = np.array([np.median(group, axis=0) for group in groups])
    rough = _line(usual[:, 0], usual[:, 1])
    limit = OUTLIER * np.maximum(rough.fixed + rough.per_row * ordered[:, 0], SHORT_US)
    kept = ordered[ordered[:, 1] <= limit]
    return _line(kept[:, 0], kept[:, 1]) if len(kept) else rough


def _line(rows: np.ndarray, spent: np.ndarray) -> Line:
    middle, mean = rows.mean(), spent.mean()
    across = ((rows - middle) ** 2).sum()
    slope = ((rows - middle) * spent).sum() / across if across > 0 else 0.0
    if slope <= 0:
        return Line(float(mean), 0.0)
    if mean < slope * middle:
        return Line(0.0, float((rows * spent).sum() / (rows**2).sum()))
    return Line(float(mean - slope * middle), float(slope))
