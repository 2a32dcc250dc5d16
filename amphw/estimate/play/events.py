"""An estimate played through in time: the network's devices serve real instances, message by message.

What `amphw.estimate.network` divides is simulated here (`simulation`): messages queue, devices wait for one
another, gradients are late. A device takes one firing at a time, for as long as its kind takes for it
(`amphw.estimate.network.devices`); updates are in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from amphw.engine.lowering.lower import Unit
from amphw.engine.parts.costs import FLOAT_BYTES
from amphw.engine.policy import BACKWARD, FORWARD, KINDS, POLICIES, Policy, Ranked
from amphw.estimate.count.firings import Shape
from amphw.estimate.count.node_time import control_of, seconds_of
from amphw.estimate.count.traffic import Firing, Traffic
from amphw.estimate.count.work import NodeWork
from amphw.estimate.network.devices import DeviceKind, FiringTimes
from amphw.estimate.network.topology import Wire
from amphw.estimate.play.simulation import Costs, Line, Rules, Simulation, Station, Topology, Way
from amphw.ir.errors import AmphwError
from amphw.ir.update import UpdateRule, rule_of

WARM, ROUNDS, ENOUGH = 2, 8, 400
"""Instances by those in flight: before anything is counted, and then; and how many that are at least."""

FEWEST_ROUNDS, ENOUGH_OF_ALL = 2, 4000
"""Of many pipelines, which are alike: together they see more instances in fewer rounds; at least so many."""


WATCHED = 6000
"""Firings of a timeline, at most."""

SEARCHED = 200_000
"""Firings among which a timeline's are looked for: more until the steady state, and it is of the start."""


@dataclass(frozen=True)
class Slice:
    """What a device did: a firing of `node`, forward or backward, from `begin` on for `seconds`."""

    device: int
    node: str
    direction: str
    begin: float
    seconds: float


@dataclass(frozen=True)
class Timeline:
    """What all devices did for `seconds` from `begin` of simulated time on. steady: not at its start, where
    the first instances fill the network. Updates are left out."""

    begin: float
    seconds: float
    steady: bool
    slices: Sequence[Slice]


@dataclass(frozen=True)
class Played:
    """What happened in `seconds` of simulated time, in the steady state.

    throughput: instances a second. latency: seconds of an instance, from its submission to its last gradient,
    on average. messages: forward and backward. device_busy, link_busy: shares of the time, by number and by
    name. link_waited: seconds that a message waited for its link, on average. queued: firings that were ready
    on a device at once, at most; held: bytes of messages that it kept for gradients, at most. staleness:
    updates between a firing's forward and backward pass, on average, by node with parameters. timeline: where
    asked for. controller_busy: shares of the time in which what fetches and delivers is at it, by device.
    """

    throughput: float
    latency: float
    seconds: float
    instances: int
    messages: int
    device_busy: Sequence[float]
    link_busy: Mapping[str, float]
    link_waited: Mapping[str, float]
    queued: Sequence[int]
    held: Sequence[int]
    staleness: Mapping[str, float]
    timeline: Timeline | None = None
    controller_busy: Sequence[float] = ()


@dataclass(frozen=True)
class Playing:
    """What a simulation is made of. scale: bytes of a number in its messages, by those that it counts.
    pipelines: replicas."""

    shapes: Sequence[Shape]
    costs: Costs
    rules: Rules
    topology: Topology
    scale: float = 1.0

    @property
    def pipelines(self) -> int:
        return len(self.topology.place)

    def simulation(self, keys: int, slices: int = 0, trains: bool = True) -> Simulation:
        """keys: in flight, shared by the replicas."""
        return Simulation(self.shapes, self.costs, self.rules, self.topology, keys, slices, trains)


def play(
    network: Playing,
    units: Sequence[Unit],
    names: Sequence[str],
    devices: int,
    keys: int,
    watch: bool = False,
) -> Played:
    """names: of the links between the devices, which come first. keys: in flight. watch: keep a timeline."""
    simulation = network.simulation(keys, SEARCHED * watch)
    before = simulation.run(WARM * keys)
    pipelines = network.pipelines
    rounds = max(ROUNDS // pipelines, FEWEST_ROUNDS)
    enough = max(rounds * keys, min(ENOUGH * pipelines, ENOUGH_OF_ALL))
    seen = simulation.run(before.retired + enough).since(before)
    most = simulation.most
    return Played(
        throughput=seen.retired / seen.us * 1e6,
        latency=seen.latency / seen.retired / 1e6,
        seconds=seen.us / 1e6,
        instances=seen.retired,
        messages=seen.messages,
        device_busy=[seen.device_busy[d] / seen.us for d in range(devices)],
        link_busy={name: seen.way_busy[k] / seen.us for k, name in enumerate(names)},
        link_waited={
            name: seen.way_waited[k] / max(1, seen.way_messages[k]) / 1e6 for k, name in enumerate(names)
        },
        queued=most["queued"][:devices],
        held=[round(size * network.scale) for size in most["held"][:devices]],
        controller_busy=[seen.device_routing[d] / seen.us for d in range(devices)],
        staleness={
            u.name: seen.stale.get(u.index, 0) / seen.stale_rows[u.index]
            for u in units
            if seen.stale_rows.get(u.index)
        },
        timeline=_timeline(simulation, units, devices, before.us) if watch else None,
    )


def _timeline(simulation: Simulation, units: Sequence[Unit], devices: int, steady: float) -> Timeline:
    """steady: microseconds from which on the network is in its steady state."""
    found = [each for each in simulation.slices if each[0] < devices]
    late = [each for each in found if each[4] >= steady]
    kept = (late or found)[: WATCHED + 1]
    begin, end = (steady if late else 0.0), kept[-1][4]  # complete up to there: slices come as they begin
    names = [u.name for u in units]
    slices = [
        Slice(device, names[unit], KINDS[kind], at / 1e6, min(lasts, end - at) / 1e6)
        for device, _, unit, kind, at, lasts, _ in kept
        if at < end
    ]
    return Timeline(begin / 1e6, (end - begin) / 1e6, bool(late), slices)


NO_LIMIT = 1e30
"""Bits a second."""

IN_HARDWARE = Ranked((0, 1, 1), "arrival", by_age=False)
"""What has all gradients comes first, and then what was there first."""


def playing(
    traffic: Traffic,
    work: Mapping[str, NodeWork],
    rules: Mapping[str, UpdateRule],
    at: Mapping[str, Sequence[int]],
    devices: Sequence[DeviceKind],
    times: Sequence[FiringTimes],
    wires: Mapping[tuple[int, int], Wire],
    number_bytes: int = FLOAT_BYTES,
    header_bytes: int = 0,
    policy: str = "default",
) -> Playing:
    """at: devices of a node's replicas. times: by number of the device. wires: those that are used, by
    devices; of numbers and of headers with so many bytes.

    Where devices leave losses to the host, or nodes are nowhere, this is one device more, over links of its
    own. Raises AmphwError where replicas of a node are on devices that are not alike.
    """
    units = traffic.lowered.units
    pipelines = max(len(where) for where in at.values())
    taken: dict[str, FiringTimes] = {}
    for name, where in at.items():
        kinds = list(dict.fromkeys(devices[d] for d in where))
        if len(kinds) > 1:
            raise AmphwError(
                f"replicas of '{name}' are on devices that are not alike ({kinds[0].label}; "
                f"{kinds[1].label}): give them equal ones"
            )
        taken[name] = times[where[0]]
    host = len(devices)
    place = [
        [_of(at[u.name], r) if u.name in at and taken[u.name].here(u.name) else host for u in units]
        for r in range(pipelines)
    ]
    used = {d for row in place for d in row}
    ways = {pair: _way(wire, number_bytes, header_bytes) for pair, wire in wires.items()}
    for d, device in enumerate(devices):
        if device.host is not None and {d, host} <= used:
            way = _way(device.host, device.number_bytes, device.header_bytes)
            ways |= {(host, d): way, (d, host): way, (-1, d): way}
    stations = [Station(frame_cap=1, overlaps=d.host is not None) for d in devices]
    topology = Topology([*stations, Station(frame_cap=1)], place, ways)
    order = IN_HARDWARE if all(d.host is not None for d in devices) else POLICIES[policy]
    shapes, costs = _shapes(traffic, taken), _costs(traffic, work, taken)
    return Playing(shapes, costs, _rules(traffic, rules, order), topology, number_bytes / FLOAT_BYTES)


def _of(where: Sequence[int], replica: int) -> int:
    return where[replica % len(where)]


def _way(wire: Wire, number_bytes: int, header_bytes: int) -> Way:
    """Messages count numbers of FLOAT_BYTES; those of the network may be shorter."""
    scale = number_bytes / FLOAT_BYTES
    bandwidth = NO_LIMIT if wire.bandwidth is None else wire.bandwidth / scale
    return Way(wire.latency * 1e6, bandwidth, header_bytes / scale, wire.credits)


def _shapes(traffic: Traffic, taken: Mapping[str, FiringTimes]) -> list[Shape]:
    """The instances' own, with what each firing takes."""
    known: dict[tuple[int, Firing], tuple[float, float]] = {}
    found = []
    for walked, firings in zip(traffic.walks, traffic.firings, strict=True):
        ahead, back = ([0.0] * len(walked.shape.unit) for _ in range(2))
        for at, firing in firings.items():
            unit = traffic.lowered.units[walked.shape.unit[at]]
            if unit.name not in taken:
                continue
            key = unit.index, firing
            if key not in known:
                known[key] = seconds_of(firing, unit.name, taken[unit.name])
            ahead[at], back[at] = (1e6 * each for each in known[key])
        found.append(replace(walked.shape, ahead=ahead, back=back))
    return found


def _costs(traffic: Traffic, work: Mapping[str, NodeWork], taken: Mapping[str, FiringTimes]) -> Costs:
    """Beside what each firing takes: fetching and delivering it, and updates."""
    fetch, delivery, update = {}, {}, {}
    for name, times in taken.items():
        u = traffic.lowered.units[traffic.lowered.by_name[name]]
        for kind in (FORWARD, BACKWARD):
            fetched, delivered = control_of(traffic, name, times, kind == BACKWARD)
            fetch[u.index, kind] = Line(1e6 * fetched, 0.0)
            delivery[u.index, kind] = Line(1e6 * delivered, 0.0)
        if work[name].updates:
            update[u.index] = 1e6 * times.update(name)
    return Costs({}, delivery, {}, update, 0.0, fetch)


def _rules(traffic: Traffic, rules: Mapping[str, UpdateRule], policy: Policy) -> Rules:
    lowered = traffic.lowered
    intervals = {u.index: rule_of(rules, u.name).interval for u in lowered.units if u.owns}
    return Rules(policy.table(lowered, 1), [u.depth for u in lowered.units], intervals, by_age=policy.by_age)
