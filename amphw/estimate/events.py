"""An estimate played through in time: the network's devices serve real instances, message by message.

What `amphw.estimate.network` divides is simulated here (`amphw.estimate.simulation`): messages queue, devices
wait for one another, gradients are late. A device takes one firing at a time, for its operations over the
device's rate; updates are in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amphw.engine.policy import BACKWARD, FORWARD, POLICIES
from amphw.estimate.loads import LEAST
from amphw.estimate.simulation import Costs, Line, Rules, Simulation, Station, Topology, Way
from amphw.estimate.traffic import Traffic
from amphw.estimate.work import NodeWork
from amphw.ir.update import UpdateRule, rule_of

WARM, ROUNDS, ENOUGH = 2, 8, 400
"""Instances by those in flight: before anything is counted, and then; and how many that are at least."""

FEWEST_ROUNDS, ENOUGH_OF_ALL = 2, 4000
"""Of many pipelines, which are alike: together they see more instances in fewer rounds; at least so many."""


@dataclass(frozen=True)
class Played:
    """What happened in `seconds` of simulated time, in the steady state.

    throughput: instances a second. latency: seconds of an instance, from its submission to its last gradient,
    on average. messages: forward and backward. device_busy, link_busy: shares of the time, by number and by
    name. link_waited: seconds that a message waited for its link, on average. queued: firings that were ready
    on a device at once, at most; held: bytes of messages that it kept for gradients, at most. staleness:
    updates between a firing's forward and backward pass, on average, by node with parameters.
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


def play(
    traffic: Traffic,
    work: Mapping[str, NodeWork],
    rules: Mapping[str, UpdateRule],
    at: Mapping[str, Sequence[int]],
    devices: int,
    rate: float,
    links: Mapping[tuple[int, int], str],
    bandwidth: float | None,
    latency: float,
    keys: int,
) -> Played:
    """at: devices of a node's replicas. rate: operations a second of a device. links: names of those that are
    used, by devices; bandwidth: bits a second, None: no limit; latency: seconds. keys: in flight."""
    units = traffic.lowered.units
    pipelines = max(len(where) for where in at.values())
    place = [[_of(at.get(u.name, (0,)), r) for u in units] for r in range(pipelines)]
    way = Way(latency * 1e6, bandwidth or NO_LIMIT)
    topology = Topology([Station(frame_cap=1)] * devices, place, dict.fromkeys(links, way))
    costs, order = _costs(traffic, work, rate), _rules(traffic, rules)
    each = -(-keys // pipelines)
    simulation = Simulation([w.shape for w in traffic.walks], costs, order, topology, each)
    before = simulation.run(WARM * each * pipelines)
    rounds = max(ROUNDS // pipelines, FEWEST_ROUNDS)
    enough = max(rounds * each * pipelines, min(ENOUGH * pipelines, ENOUGH_OF_ALL))
    seen = simulation.run(before.retired + enough).since(before)
    most = simulation.most
    return Played(
        throughput=seen.retired / seen.us * 1e6,
        latency=seen.latency / seen.retired / 1e6,
        seconds=seen.us / 1e6,
        instances=seen.retired,
        messages=seen.messages,
        device_busy=[seen.device_busy[d] / seen.us for d in range(devices)],
        link_busy={name: seen.way_busy[k] / seen.us for k, name in enumerate(links.values())},
        link_waited={
            name: seen.way_waited[k] / max(1, seen.way_messages[k]) / 1e6
            for k, name in enumerate(links.values())
        },
        queued=most["queued"],
        held=most["held"],
        staleness={
            u.name: seen.stale.get(u.index, 0) / seen.stale_rows[u.index]
            for u in units
            if seen.stale_rows.get(u.index)
        },
    )


NO_LIMIT = 1e30
"""Bits a second."""


def _of(where: Sequence[int], replica: int) -> int:
    return where[replica % len(where)]


def _costs(traffic: Traffic, work: Mapping[str, NodeWork], rate: float) -> Costs:
    """Of a row of the node's first space, as many as its operations are on average."""
    frame, update = {}, {}
    for name, each in work.items():
        u = traffic.lowered.units[traffic.lowered.by_name[name]]
        rows = max(traffic.nodes[name].rows[u.behaviour.spaces[0][0]].mean, LEAST)
        for kind, flops in ((FORWARD, each.forward), (BACKWARD, each.backward)):
            frame[u.index, kind] = Line(0.0, flops / rows / rate * 1e6)
        if each.updates:
            update[u.index] = each.update / each.updates / rate * 1e6
    return Costs(frame, {}, {}, update, 0.0)


def _rules(traffic: Traffic, rules: Mapping[str, UpdateRule]) -> Rules:
    lowered = traffic.lowered
    intervals = {u.index: rule_of(rules, u.name).interval for u in lowered.units if u.owns}
    table = POLICIES["default"].table(lowered, 1)
    return Rules(table, [u.depth for u in lowered.units], intervals)
