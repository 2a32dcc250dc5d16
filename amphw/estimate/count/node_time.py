"""What a node takes of a device, summed over the firings of real instances."""

from __future__ import annotations

from dataclasses import dataclass

from amphw.engine.lowering.lower import Unit
from amphw.estimate.count.traffic import Firing, Traffic
from amphw.estimate.count.work import NodeWork
from amphw.estimate.network.busy import LEAST
from amphw.estimate.network.devices import FiringTimes


@dataclass(frozen=True)
class Spent:
    """Seconds of an instance, on average: forward, backward, its share of the updates, and beside these what
    the device's controller takes."""

    ahead: float
    back: float
    update: float
    control: float

    @property
    def seconds(self) -> float:
        return self.ahead + self.back + self.update


def spent_on(traffic: Traffic, work: NodeWork, unit: Unit, times: FiringTimes) -> Spent:
    """unit: on a device that takes such times."""
    ahead = back = 0.0
    for firing, count in traffic.alike.get(unit.index, {}).items():
        one = seconds_of(firing, unit.name, times)
        ahead, back = ahead + count * one[0], back + count * one[1]
    count = len(traffic.walks)
    update = work.updates * times.update(unit.name) if work.updates else 0.0
    each = sum(sum(control_of(traffic, unit.name, times, backward)) for backward in (False, True))
    control = each * traffic.nodes[unit.name].firings.mean
    return Spent(ahead / count, back / count, update, control)


def control_of(traffic: Traffic, node: str, times: FiringTimes, backward: bool) -> tuple[float, float]:
    """Seconds of the controller to (fetch, deliver) a firing of the node, on average."""
    rate = traffic.nodes[node]
    firings = max(rate.firings.mean, LEAST)
    sent = sum(e.messages.mean for e in traffic.edges if e.source == node)
    rows = next(iter(rate.rows.values())).mean if rate.rows else firings
    return times.control(node, backward, rate.received.mean / firings, sent / firings, rows / firings)


def seconds_of(firing: Firing, node: str, times: FiringTimes) -> tuple[float, float]:
    """Of a node's firing, forward and backward."""
    rows = dict(firing.rows)
    ahead, back = (times.firing(node, way, rows, firing.needs, firing.sends) for way in (False, True))
    return ahead, back
