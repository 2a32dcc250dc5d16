"""The throughput of a placement: what each device, each link and the host are busy with for an instance.

The busiest limits (`busy`). The engine on the host joins and routes for all nodes; whatever goes to another
device or comes from it crosses that device's link. What one node of a device sends to another one there does
so, too, unless the device keeps that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from amphw.engine.lowering.placing import HOST, followers
from amphw.engine.parts.costs import frame_bytes
from amphw.estimate.count.firings import Walk
from amphw.estimate.count.traffic import EdgeRate, Traffic
from amphw.estimate.count.work import NodeWork
from amphw.estimate.network.busy import Load, ranked
from amphw.ir.device import LinkRate
from amphw.ir.units import written

Placement = Mapping[str, str]
"""Label of the device by node."""

ALONE = 4
"""Instances whose longest chain of messages is followed, at most."""


@dataclass(frozen=True)
class NodeSeconds:
    """A node on a device: seconds that the device is busy with it for an instance, of all kinds of frames
    and updates, and for one firing forward and backward alone. origin, how: see `NodeTime`."""

    busy: float
    firing: float
    origin: str
    how: str


@dataclass(frozen=True)
class HostCosts:
    """The engine on the host. nodes: seconds of its workers for an instance, by node, of all that compute.

    pumping: seconds to submit an instance and to take its report. beginning: to begin it on other devices, if
    they have nodes. handing: to hand a frame to another device and to take it back. The interpreter does all
    three, for one at a time. firings: in a frame that is handed over, by node.
    """

    nodes: Mapping[str, float]
    pumping: float
    beginning: float
    handing: float
    firings: Mapping[str, float]
    origin: str
    how: str


@dataclass(frozen=True)
class DeviceFacts:
    """memory: bytes (None: nobody has said). most_nodes: that it may be given (None: any number). link: None:
    it shares the host's memory. keeps: what its nodes send each other stays there."""

    label: str
    name: str
    memory: int | None = None
    most_nodes: int | None = None
    link: LinkRate | None = None
    keeps: bool = False


@dataclass(frozen=True)
class Estimate:
    """Of a placement. loads: the busiest first. throughput: instances a second. bytes_to, bytes_from: over
    the way to a device and back, for an instance, by label. memory: bytes on each device, of parameters with
    what belongs to them and of instances in flight. short: limits that it violates."""

    placement: Placement
    loads: Sequence[Load]
    throughput: float
    bytes_to: Mapping[str, float]
    bytes_from: Mapping[str, float]
    memory: Mapping[str, float]
    short: Sequence[str]

    @property
    def bottleneck(self) -> Load:
        return self.loads[0]

    @property
    def rank(self) -> tuple[float, ...]:
        """The better of two placements has the larger one: fewer limits violated, more throughput; for the
        same, fewer nodes elsewhere and less work."""
        elsewhere = sum(label != HOST for label in self.placement.values())
        return -len(self.short), self.throughput, -elsewhere, -sum(load.seconds for load in self.loads)


@dataclass(frozen=True)
class CostModel:
    """Everything that a placement's estimate is made of.

    nodes: that may be placed. devices: those beside the host, by label. seconds: by (node, label), where the
    device does not refuse the node. refused: why it does. workers, processors: of the host. keys: in flight.
    together: (label, nodes) -> why the device cannot have all of them; empty: it can. taken: (node, label) of
    all other nodes that compute, where a device would take one beside those that it has.
    """

    traffic: Traffic
    nodes: Sequence[str]
    work: Mapping[str, NodeWork]
    devices: Mapping[str, DeviceFacts]
    seconds: Mapping[tuple[str, str], NodeSeconds]
    refused: Mapping[tuple[str, str], str]
    host: HostCosts
    workers: int
    processors: int
    keys: int
    together: Callable[[str, tuple[str, ...]], str] = lambda label, nodes: ""
    taken: Collection[tuple[str, str]] = ()

    @property
    def labels(self) -> list[str]:
        return [*self.devices, HOST]

    def allowed(self, node: str) -> list[str]:
        """Where the node may be."""
        return [label for label in self.labels if label == HOST or (node, label) in self.seconds]

    def on_host(self) -> Estimate:
        """All nodes on the host."""
        return self.estimate(dict.fromkeys(self.nodes, HOST))

    def estimate(self, placement: Placement) -> Estimate:
        """placement: of all `nodes`."""
        loads = [
            Load(HOST, "device", self._host(placement)),
            *(Load(label, "device", self._device(placement, label)) for label in self.devices),
        ]
        to, back, of = {}, {}, self._all(placement)
        for label, device in self.devices.items():
            to[label], back[label] = self._carried(of, label)
            if device.link is not None:
                for way, size in (("to", to[label]), ("from", back[label])):
                    loads.append(Load(f"{way} {label}", "link", 8 * size / device.link.bits_per_s))
        loads.append(Load("pumping", "handing", self._handing(placement)))
        loads.append(Load("instances in flight", "keys", self._alone(placement, of) / self.keys))
        busiest, throughput = ranked(loads)
        memory = {label: self._memory(placement, label) for label in self.labels}
        short = self._short(placement, memory)
        return Estimate(dict(placement), busiest, throughput, to, back, memory, short)

    # --- loads ------------------------------------------------------------------------------------

    def _on(self, placement: Placement, label: str) -> list[str]:
        return [n for n in self.nodes if placement[n] == label]

    def _host(self, placement: Placement) -> float:
        here = sum(s for n, s in self.host.nodes.items() if placement.get(n, HOST) == HOST)
        return max(here / self.workers, (here + self._handing(placement)) / self.processors)

    def _device(self, placement: Placement, label: str) -> float:
        return sum(self.seconds[n, label].busy for n in self._on(placement, label))

    def _handing(self, placement: Placement) -> float:
        elsewhere = [n for n in self.nodes if placement[n] != HOST]
        frames = sum(2 * self._firings(n) / max(1.0, self.host.firings.get(n, 1.0)) for n in elsewhere)
        beginning = self.host.beginning if elsewhere else 0.0
        return self.host.pumping + beginning + self.host.handing * frames

    def _carried(self, of: Placement, label: str) -> tuple[float, float]:
        """Bytes to a device and back for an instance. of: as `_all` gives it."""
        if not self.devices[label].keeps:
            on = self._on(of, label)
            return sum(self.work[n].to_device for n in on), sum(self.work[n].from_device for n in on)
        ends = [
            (of.get(e.source, HOST) == label, of.get(e.target, HOST) == label, *_bytes(e))
            for e in self.traffic.edges
        ]
        to = sum(there if enters else back for leaves, enters, there, back in ends if leaves != enters)
        return to, sum(back if enters else there for leaves, enters, there, back in ends if leaves != enters)

    def _all(self, placement: Placement) -> Placement:
        """With the nodes that a run puts beside those that send to them. What these compute counts as the
        host's all the same, where alone it was measured."""
        free = dict.fromkeys(name for name, _ in self.taken)
        found = followers(self.traffic.lowered, free, placement, lambda *where: where in self.taken)
        return {**placement, **dict(found)}

    def _firings(self, node: str) -> float:
        return self.traffic.nodes[node].firings.mean

    def _alone(self, placement: Placement, of: Placement) -> float:
        """Seconds of an instance's longest chain of messages, there and back, if nothing else were there."""
        spent = [self._firing(u.name, placement) for u in self.traffic.lowered.units]
        names = [u.name for u in self.traffic.lowered.units]
        between = self._between(of)

        def crossing(source: int, target: int) -> float:
            return between.get((names[source], names[target]), 0.0)

        # Sources do not fire: their messages go first, all at once.
        first = max(
            (t for (source, _), t in between.items() if source not in self.traffic.nodes), default=0.0
        )
        return first + sum(w.longest(spent, crossing) for w in self._followed) / len(self._followed)

    @cached_property
    def _followed(self) -> Sequence[Walk]:
        return self.traffic.walks[:ALONE]

    def _firing(self, name: str, placement: Placement) -> float:
        label = placement.get(name, HOST)
        if name not in self.traffic.nodes:
            return 0.0  # a source
        firings = max(self._firings(name), 1e-12)
        if label == HOST:
            return self.host.nodes.get(name, 0.0) / firings
        if self.devices[label].keeps:
            return self.seconds[name, label].firing
        work = self.work[name]
        size = (work.to_device + work.from_device) / firings  # of two ways and back
        return self.seconds[name, label].firing + 2 * self._way(label, size / 2)

    def _between(self, of: Placement) -> dict[tuple[str, str], float]:
        """Seconds of a message and its gradient between two nodes, where it crosses the border of a device
        that keeps what its own nodes send each other."""
        found: dict[tuple[str, str], float] = {}
        for e in self.traffic.edges:
            ends = of.get(e.source, HOST), of.get(e.target, HOST)
            for label in set(ends) - {HOST} if ends[0] != ends[1] else ():
                if self.devices[label].keeps:
                    seconds = self._way(label, sum(_bytes(e)) / max(e.messages.mean, 1e-12))
                    found[e.source, e.target] = found.get((e.source, e.target), 0.0) + seconds
        return found

    def _way(self, label: str, size: float) -> float:
        """Seconds for something to go one way over a device's border, and for its gradient to come back.

        size: bytes of both.
        """
        if (link := self.devices[label].link) is None:
            return self.host.handing
        return self.host.handing + 2 * link.latency + 8 * size / link.bits_per_s

    # --- limits -----------------------------------------------------------------------------------

    def _memory(self, placement: Placement, label: str) -> float:
        of = [self.work[n] for n in self._on(placement, label)]
        return sum(w.held + self.keys * w.kept for w in of)

    def _short(self, placement: Placement, memory: Mapping[str, float]) -> list[str]:
        found = []
        for label, device in self.devices.items():
            on = self._on(placement, label)
            found += [f"{label} refuses {n}" for n in on if (n, label) not in self.seconds]
            if why := self.together(label, tuple(n for n in on if (n, label) in self.seconds)):
                found.append(f"{label} cannot have {', '.join(on)} together: {why}")
            elif device.memory is not None and memory[label] > device.memory:
                found.append(
                    f"{label} has {written(device.memory, 'B')} of memory, and {', '.join(on)} with "
                    f"{self.keys} instances in flight take {written(memory[label], 'B')}"
                )
            if device.most_nodes is not None and len(on) > device.most_nodes:
                found.append(f"{label} may have {device.most_nodes} node(s), and has {len(on)}")
        return found


def _bytes(edge: EdgeRate) -> tuple[float, float]:
    """Of its messages for an instance, and of what comes back for them."""
    headers = frame_bytes(edge.messages.mean, 0)
    return headers + edge.bytes.mean, headers + (edge.bytes.mean if edge.returned else 0.0)
