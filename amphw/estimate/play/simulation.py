"""A network of devices simulated in time: who computes, sends and waits when, without computing it.

A device goes by the rules of `engine/native/rules.hpp`, the firings of the instances are their own; how
long things take comes from `Costs`. What is not simulated: that workers slow each other down in the caches,
at locks and at the interpreter's lock, and that a worker takes time to wake. `native/simulation.cpp` does
the work.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amphw.engine.policy import KINDS, ORDERS, PolicyTable, report_batch
from amphw.estimate.count.firings import Shape
from amphw.ir.errors import AmphwError

NO_END = 1 << 62
"""Instances, or messages: no limit."""


@dataclass(frozen=True)
class Line:
    """Microseconds: fixed + per_row * rows."""

    fixed: float
    per_row: float

    def of(self, rows: float) -> float:
        return self.fixed + self.per_row * rows

    def times(self, factor: float) -> Line:
        return Line(factor * self.fixed, factor * self.per_row)


@dataclass(frozen=True)
class Costs:
    """What things take, in microseconds.

    frame, delivery: of a frame by (unit, kind); delivery is all between a frame's arithmetic and the next
    frame's. reduce: a gradient row, update: an update, by unit. host: submitting and polling an instance.
    fetch: of a frame, before its arithmetic, on a device that overlaps it. waking: of the host, more for the
    first instance after it has slept because none had retired.
    """

    frame: Mapping[tuple[int, int], Line]
    delivery: Mapping[tuple[int, int], Line]
    reduce: Mapping[int, float]
    update: Mapping[int, float]
    host: float
    fetch: Mapping[tuple[int, int], Line] = field(default_factory=dict)
    waking: float = 0.0


@dataclass(frozen=True)
class Rules:
    """What decides the order. depth: by unit. intervals: gradient rows between updates, by owning unit.

    parts: by owning unit, in how many parts a device's workers may reduce its gradient log together, the
    multiplications in them for each row, and the numbers of an update; of others one worker does. Estimates
    of devices that nobody has have none.
    """

    table: PolicyTable
    depth: Sequence[int]
    intervals: Mapping[int, int]
    frame_cap: int = 64
    frame_rows: int = 512
    by_age: bool = True
    parts: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Station:
    """A device. workers share the queues of its nodes; overlaps: a unit of its own delivers what a frame has
    computed and fetches the next while the worker computes. frame_cap, frame_rows: see `Rules`."""

    workers: int = 1
    frame_cap: int = 64
    frame_rows: int = 512
    overlaps: bool = False


@dataclass(frozen=True)
class Way:
    """From a device to another, in one direction. latency: microseconds. bits_per_s. overhead: bytes that a
    message is longer by on it. credits: forward messages that may be under way unacknowledged, 0: any number.
    """

    latency: float
    bits_per_s: float
    overhead: float = 0.0
    credits: int = 0


@dataclass(frozen=True)
class Topology:
    """stations: the devices. place: the device of each unit, by replica. ways: by (from, to), where -1 is the
    host; where there is none, messages are there at once. shared: the device on whose processors the host
    runs too, None if it has its own; processors: how many these are."""

    stations: Sequence[Station]
    place: Sequence[Sequence[int]]
    ways: Mapping[tuple[int, int], Way] = field(default_factory=dict)
    shared: int | None = None
    processors: int = 0


def shared_memory(workers: int, rules: Rules, processors: int | None = None) -> Topology:
    """One device whose workers share everything, on so many processors; None: one more than workers."""
    station = Station(workers, rules.frame_cap, rules.frame_rows)
    units = len(rules.depth)
    return Topology([station], [[0] * units], {}, 0, workers + 1 if processors is None else processors)


@dataclass
class Tally:
    """What has happened up to a time (microseconds).

    stolen: from workers, by a host without a processor of its own. latency: of instances that have retired,
    from submission on, summed. By unit, of all replicas: serial (what workers spent on reducing and
    updating), reducing (while one of them did), unit_busy (computing and delivering), unit_frames,
    unit_firings, updates, and gradient rows with the versions that they were behind, summed (stale_rows,
    stale). By device: device_busy, device_routing (what overlaps). By way, in the order of `Topology.ways`:
    way_busy, way_waited, way_messages, way_bytes.
    """

    us: float = 0.0
    retired: int = 0
    counted: int = 0
    frames: int = 0
    rows: int = 0
    messages: int = 0
    computing: float = 0.0
    delivering: float = 0.0
    host: float = 0.0
    stolen: float = 0.0
    latency: float = 0.0
    serial: dict[int, float] = field(default_factory=dict)
    reducing: dict[int, float] = field(default_factory=dict)
    unit_busy: dict[int, float] = field(default_factory=dict)
    unit_frames: dict[int, int] = field(default_factory=dict)
    unit_firings: dict[int, int] = field(default_factory=dict)
    updates: dict[int, int] = field(default_factory=dict)
    stale_rows: dict[int, int] = field(default_factory=dict)
    stale: dict[int, int] = field(default_factory=dict)
    device_busy: dict[int, float] = field(default_factory=dict)
    device_routing: dict[int, float] = field(default_factory=dict)
    way_busy: dict[int, float] = field(default_factory=dict)
    way_waited: dict[int, float] = field(default_factory=dict)
    way_messages: dict[int, int] = field(default_factory=dict)
    way_bytes: dict[int, int] = field(default_factory=dict)

    @property
    def work(self) -> float:
        """What workers were busy with."""
        return self.computing + self.delivering + sum(self.serial.values())

    def since(self, before: Tally) -> Tally:
        """What has happened since then."""
        found: dict[str, Any] = {}
        for name, value in vars(self).items():
            then = getattr(before, name)
            found[name] = (
                {k: v - then.get(k, 0) for k, v in value.items()} if isinstance(value, dict) else value - then
            )
        return Tally(**found)


class Simulation:
    """Devices that serve instances without end: whenever one retires, the host submits the next.

    shapes: the instances, in a cycle. keys: in flight, shared by the replicas. slices: frames that are
    kept for a picture. Raises AmphwError without the C++ data plane.
    """

    def __init__(
        self,
        shapes: Sequence[Shape],
        costs: Costs,
        rules: Rules,
        topology: Topology,
        keys: int,
        slices: int = 0,
        trains: bool = True,
    ) -> None:
        try:
            from amphw.engine._native import simulation
        except ImportError as error:
            raise AmphwError(
                "schedules are simulated by the C++ part of amphw, which is not built: install it with a C++ "
                "compiler at hand"
            ) from error
        self._native = simulation
        self._units = len(rules.depth)
        self._keys = keys
        network = self._network(costs, rules, topology, keys)
        network.trains = trains
        made: dict[int, Any] = {}
        numbers = {id(s): k for k, s in enumerate({id(s): s for s in shapes}.values())}
        for s in shapes:
            made.setdefault(numbers[id(s)], self._shape(s))
        order = [numbers[id(s)] for s in shapes]
        self._simulation = simulation.Simulation(network, list(made.values()), order, keys, slices)

    def run(self, retired: int = NO_END, messages: int = NO_END) -> Tally:
        """Go on until so many instances have retired, or messages were sent, in all.

        Returns the tally of everything so far. Raises AmphwError where no device has anything to do.
        """
        try:
            found = self._simulation.run(retired, messages)
        except RuntimeError as error:
            raise AmphwError(f"the simulated schedule is stuck: {error}") from error
        values: dict[str, Any] = {name: found[name] for name in _TOTALS}
        values |= {name: self._by_unit(found[given]) for name, given in _BY_UNIT.items()}
        values |= {name: dict(enumerate(found[given])) for name, given in _BY_OTHER.items()}
        return Tally(**values)

    @property
    def most(self) -> dict[str, Any]:
        """The largest so far: bytes of messages held and firings queued, by device; messages queued, by way;
        microseconds that an instance took."""
        return dict(self._simulation.most())

    @property
    def slices(self) -> list[tuple[int, int, int, int, float, float, int]]:
        """(device, worker, unit, kind, begin, duration, rows) of the first frames; times in microseconds."""
        return [
            (device, worker, node % self._units, kind, begin, duration, rows)
            for device, worker, node, kind, begin, duration, rows in self._simulation.slices()
        ]

    def _by_unit(self, values: Sequence[float]) -> dict[int, Any]:
        """Of all replicas together; units with nothing are left out."""
        summed = [sum(values[u :: self._units]) for u in range(self._units)]
        return {u: value for u, value in enumerate(summed) if value}

    def _network(self, costs: Costs, rules: Rules, topology: Topology, keys: int) -> Any:
        s, n = self._native, self._native.Network()
        units, table = range(self._units), rules.table
        n.units, n.replicas = self._units, len(topology.place)
        n.devices = [s.Device(d.workers, d.frame_cap, d.frame_rows, d.overlaps) for d in topology.stations]
        n.device_of = list(itertools.chain.from_iterable(topology.place))
        count = len(topology.stations)
        link_of = [-1] * (count * (count + 1))
        for number, (begin, end) in enumerate(topology.ways):
            link_of[(count if begin < 0 else begin) * count + end] = number
        n.link_of = link_of
        n.links = [
            s.Link(w.latency, 8e6 / w.bits_per_s, w.overhead, w.credits) for w in topology.ways.values()
        ]
        both = list(itertools.product(units, range(len(KINDS))))
        none = Line(0.0, 0.0)
        for name in ("frame", "delivery", "fetch"):
            lines = [getattr(costs, name).get(key, none) for key in both]
            setattr(n, name, [s.Line(line.fixed, line.per_row) for line in lines])
        n.reduce = [costs.reduce.get(u, 0.0) for u in units]
        n.update = [costs.update.get(u, 0.0) for u in units]
        n.interval = [rules.intervals.get(u, 0) for u in units]
        divided = [rules.parts.get(u, (1, 0, 0)) for u in units]
        n.parts, n.products, n.numbers = (list(each) for each in zip(*divided, strict=True))
        n.depth = list(rules.depth)
        n.priority = list(itertools.chain.from_iterable(table.priority))
        n.min_rows = list(itertools.chain.from_iterable(table.min_rows))
        n.order, n.by_age = ORDERS.index(table.order), rules.by_age
        n.host, n.waking = costs.host, costs.waking
        n.shared = -1 if topology.shared is None else topology.shared
        n.processors = topology.processors
        n.report_batch = report_batch(keys)
        return n

    def _shape(self, shape: Shape) -> Any:
        made = self._native.Shape()
        made.unit, made.rows = list(shape.unit), list(shape.rows)
        made.need, made.returned = list(shape.need), list(shape.returned)
        made.targets, made.origins = self._lists(shape.targets), self._lists(shape.origins)
        made.target_bytes = _flat(shape.target_bytes) or [0] * sum(map(len, shape.targets))
        made.origin_bytes = _flat(shape.origin_bytes) or [0] * sum(map(len, shape.origins))
        made.first = list(shape.first)
        made.first_bytes = list(shape.first_bytes) or [0] * len(shape.first)
        made.ahead, made.back = list(shape.ahead), list(shape.back)
        made.size = shape.size
        return made

    def _lists(self, lists: Sequence[Sequence[int]]) -> Any:
        starts = [0, *itertools.accumulate(len(each) for each in lists)]
        return self._native.Lists(starts, _flat(lists))


def _flat(lists: Sequence[Sequence[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(lists))


_TOTALS = (
    *("us", "retired", "counted", "frames", "rows", "messages"),
    *("computing", "delivering", "host", "stolen", "latency"),
)
_BY_UNIT = {
    **{
        name: name
        for name in ("serial", "reducing", "unit_frames", "unit_firings", "updates", "stale_rows", "stale")
    },
    "unit_busy": "busy",
}
_BY_OTHER = {
    **{name: name for name in ("device_busy", "device_routing")},
    **{f"way_{name}": f"link_{name}" for name in ("busy", "waited", "messages", "bytes")},
}
