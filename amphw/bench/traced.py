"""One worker that is traced, and what a simulation is told of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from amphw.bench.errors import BenchError
from amphw.bench.frame_costs import UPDATE, Nodes, Slice, Trace, costs_with, fit_costs
from amphw.engine.lowering.lower import Lowered
from amphw.engine.numpy_plane import NumpyPlane
from amphw.engine.policy import KINDS, POLICIES
from amphw.estimate.play.simulation import Costs, Rules
from amphw.host.devices import make_device
from amphw.host.pump_loop import PumpLoop
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule

HOST_SHARE = 0.25
"""Of the time of a tracer, in which it measures the host instead of frames."""


@dataclass(frozen=True)
class Profile:
    """What a simulation needs to know of a device. traced: costs by the instances that were in flight.
    explained: share of the workers' time that the costs, applied to the same frames, account for."""

    traced: Mapping[int, Costs]
    explained: float
    lowered: Lowered
    rules: Rules

    def costs(self, workers: int, keys: int) -> Costs:
        """With so many instances in flight: the host serves all, a worker's caches hold its part of them."""
        host = costs_with(self.traced, keys)
        return replace(costs_with(self.traced, keys / workers), host=host.host, waking=host.waking)


class Tracer:
    """One worker with `keys` instances in flight, for a while at a time. Pumps each instance once at first,
    so that its plan is made.

    Raises BenchError without the C++ data plane. To be closed.
    """

    def __init__(
        self,
        graph: Graph,
        rules: Mapping[str, UpdateRule],
        options: DeviceOptions,
        instances: Sequence[Instance],
        keys: int,
    ) -> None:
        self._found: list[Slice] = []
        self._windows: list[tuple[float, float]] = []
        self._keys = keys
        self._rounds: list[float] = []
        device: Any = make_device("cpu")
        self._device = device
        settings = {**options.settings, "workers": 1, "trace": self._collect}
        self._device.load(graph, rules, DeviceOptions(keys, 0, "self", options.seed, settings=settings))
        self._intervals = {name: rule.interval for name, rule in rules.items()}
        try:
            if isinstance(self._device.plane, NumpyPlane):
                raise BenchError(
                    "a schedule is simulated from the costs of the C++ data plane, which is not built"
                )
            # The engine keeps the slices: handing them over would be measured as well.
            self._device.plane.trace = None
            self._loop = PumpLoop(self._device, instances, [1] * len(instances), range(keys), Mode.TRAIN)
            self._loop.run_to([len(instances)])
        except BaseException:
            self.close()
            raise

    def run(self, seconds: float) -> None:
        """Trace instances for most of the time; what drains then counts no more. In the rest the host is
        measured alone."""
        alone = HOST_SHARE * seconds
        began, traced = time.perf_counter() * 1e6, seconds - alone
        self._loop.run(traced)
        self._windows.append((began, began + traced * 1e6))
        self._rounds += self._loop.run_rounds(alone, self._busy)

    def _busy(self) -> bool:
        plane = self._device.plane
        return plane.engine.in_flight() > 0 and not plane.failed

    def trace(self) -> Trace:
        """Of all runs. Closes the device."""
        self.close()  # first: an idle worker hands its slices over as well, and would not wait for this one
        self._device.plane.trace = self._collect
        self._device.plane.poll(0.0)
        slices = sorted(self._found, key=lambda s: s.begin)
        return Trace(slices, self._windows, [(self._keys, us) for us in self._rounds])

    def close(self) -> None:
        self._device.close()

    @property
    def lowered(self) -> Lowered:
        lowered: Lowered = self._device.lowered
        return lowered

    @property
    def rules(self) -> Rules:
        """As the simulation has them."""
        lowered, settings = self.lowered, self._device.options.settings
        policy = settings.get("policy", "default")
        return Rules(
            table=self._device.plane.policy,
            depth=[u.depth for u in lowered.units],
            intervals={
                u.index: self._intervals[u.name] for u in lowered.units if u.name in self._device.params
            },
            frame_cap=int(settings.get("frame_cap", 64)),
            frame_rows=int(settings.get("frame_rows", 512)),
            by_age=POLICIES[policy].by_age,
            parts=self._device.plane.engine.reduction_parts(),
        )

    def _collect(
        self, _worker: int, node: str, kind: str, begin: float, duration: float, rows: int, *_: object
    ) -> None:
        number = UPDATE if kind == "update" else KINDS.index(kind)
        self._found.append(Slice(self.lowered.by_name[node], number, begin, duration, rows))


def profile_of(tracers: Mapping[int, Tracer]) -> Profile:
    """From tracers by their keys, at least one, which are closed then."""
    one = next(iter(tracers.values()))
    lowered, rules = one.lowered, one.rules
    traces = {keys: tracer.trace() for keys, tracer in tracers.items()}
    costs, explained = fit_costs(traces, nodes_of(lowered, rules.intervals))
    return Profile(costs, explained, lowered, rules)


def nodes_of(lowered: Lowered, intervals: Mapping[int, int]) -> Nodes:
    """What traces of this graph are read with."""
    units = lowered.units
    senders: dict[int, list[bool]] = {u.index: [] for u in units}
    for path in lowered.paths:
        if path.target >= 0:
            senders[path.target].append(units[path.source].behaviour.is_source)
    several = (u for u in intervals if len(units[u].behaviour.spaces) > 1)
    return Nodes(intervals, frozenset(several), frozenset(_all(senders)))


def _all(senders: Mapping[int, Sequence[bool]]) -> Iterable[int]:
    return (u for u, sources in senders.items() if sources and all(sources))
