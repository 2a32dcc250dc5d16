"""A model on a network of equal devices that there need not be: throughput, traffic and memory.

Every device computes at one rate, and every ordered pair of devices that exchanges messages has a link of one
bandwidth and latency (AMPNet, arXiv 1705.09786, section 3 and appendix C: a node with parameters on a device
of its own). Nodes with parameters are spread over the devices by their work, the longest first, each to the
device with the least so far (Graham, SIAM J. Appl. Math. 17, 1969). The others live with the neighbour that
they exchange most bytes with. Routing costs nothing, and sources have their data where it is needed.

The busiest device or link limits (`amphw.estimate.loads`); or the longest chain of messages of an instance,
of which `keys` are in flight.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from amphw.estimate.events import Played, play
from amphw.estimate.loads import LEAST, Load, ranked
from amphw.estimate.outcome import DeviceOutcome, EdgeOutcome, LinkOutcome, NodeMemory, NodeOutcome, Outcome
from amphw.estimate.traffic import EdgeRate, Spread, Traffic
from amphw.estimate.work import NodeWork, work_of
from amphw.ir.errors import AmphwError
from amphw.ir.units import written
from amphw.ir.update import UpdateRule, rule_of


@dataclass(frozen=True)
class Network:
    """flops: operations a second of a device, of which the share `use` is put to use. devices: their number;
    None: one for each replica of a node with parameters. bandwidth: bits a second of a link; None: no limit.
    latency: seconds. memory: bytes of a device; None: no limit. Raises AmphwError for what cannot be."""

    flops: float
    devices: int | None = None
    bandwidth: float | None = None
    latency: float = 0.0
    memory: float | None = None
    use: float = 1.0

    def __post_init__(self) -> None:
        for name, value, least in (
            ("flops", self.flops, 0.0),
            ("bandwidth", self.bandwidth, 0.0),
            ("memory", self.memory, 0.0),
        ):
            if value is not None and not least < value < math.inf:
                raise AmphwError(f"a network's {name} is {value}: expected a finite number above 0")
        if not 0.0 <= self.latency < math.inf:
            raise AmphwError(
                f"a network's latency is {self.latency}: expected a finite number of seconds, 0 up"
            )
        if not 0.0 < self.use <= 1.0:
            raise AmphwError(f"the share of a device's rate in use is {self.use}: expected above 0, up to 1")
        if self.devices is not None and self.devices < 1:
            raise AmphwError(f"a network of {self.devices} devices: expected 1 or more")

    @property
    def rate(self) -> float:
        """Operations a second that a device does."""
        return self.flops * self.use

    def computing(self, factor: float) -> Network:
        """The same with devices so many times as fast."""
        return replace(self, flops=factor * self.flops)

    def linked(self, factor: float) -> Network:
        """The same with links of so many times the bandwidth."""
        return self if self.bandwidth is None else replace(self, bandwidth=factor * self.bandwidth)

    def of(self, devices: int) -> Network:
        """The same of so many devices."""
        return replace(self, devices=devices)

    def sending(self, size: float) -> float:
        """Seconds that so many bytes keep a link busy."""
        return 0.0 if self.bandwidth is None else 8 * size / self.bandwidth


def estimate(
    model: str,
    traffic: Traffic,
    rules: Mapping[str, UpdateRule],
    network: Network,
    keys: int,
    replicas: int = 1,
    events: bool = False,
    at: Mapping[str, Sequence[int]] | None = None,
    watch: bool = False,
) -> Outcome:
    """traffic: of the lowered graph whose nodes are placed. keys: instances in flight. replicas: of each node
    with parameters; an instance goes to one of them, chosen by its number. events: play it through, too;
    watch: and keep a timeline of that. at: devices of each node's replicas; None: they are chosen here.

    `origin` and what the caller alone knows (`counted`, ...) are left empty. Raises AmphwError for a graph
    without parameters, and where a device's memory is too small.
    """
    for name, value in (("instances in flight", keys), ("replicas", replicas)):
        if value < 1:
            raise AmphwError(f"{name}: {value}, expected 1 or more")
    made = _Estimate(traffic, rules, network, keys, replicas, at)
    outcome = made.outcome(model)
    return replace(outcome, played=made.played(watch)) if events else outcome


class _Estimate:
    def __init__(
        self,
        traffic: Traffic,
        rules: Mapping[str, UpdateRule],
        network: Network,
        keys: int,
        replicas: int,
        at: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self.traffic, self.rules, self.network, self.keys = traffic, rules, network, keys
        self.units = {u.name: u for u in traffic.lowered.units}
        graph = traffic.lowered.graph
        self.work: dict[str, NodeWork] = {
            name: work_of(graph, self.units[name], rate, rule_of(rules, name))
            for name, rate in traffic.nodes.items()
        }
        self.heavy = [name for name in self.work if self.units[name].owns]
        if not self.heavy:
            raise AmphwError(f"graph '{graph.name}' has no node with parameters: there is nothing to spread")
        self.copies = {name: replicas if self.units[name].owns else 1 for name in self.work}
        count = network.devices or len(self.heavy) * replicas
        self.busy, self.memory = [0.0] * count, [0.0] * count
        self.at: dict[str, list[int]] = {}  # device of each replica
        if at is None:
            self._spread()
            self._settle()
        for name, where in (at or {}).items():
            for device in where:
                self.put(name, device)
        self._check_memory()

    # --- where nodes go ---------------------------------------------------------------------------

    def seconds(self, name: str) -> float:
        """That an instance keeps the node's device busy."""
        work = self.work[name]
        return (work.forward + work.backward + work.update) / self.network.rate

    def needs(self, name: str) -> float:
        """Bytes of one replica."""
        return self.memory_of(name).parameters + self.memory_of(name).in_flight

    def memory_of(self, name: str) -> NodeMemory:
        work, here = self.work[name], math.ceil(self.keys / self.copies[name])
        value = work.parameters
        gradient = min(value, work.held - value)
        return NodeMemory(value, gradient, work.held - value - gradient, here * work.kept)

    def put(self, name: str, device: int) -> None:
        self.at.setdefault(name, []).append(device)
        self.busy[device] += self.seconds(name) / self.copies[name]
        self.memory[device] += self.needs(name)

    def _spread(self) -> None:
        """Those with parameters."""
        room = math.inf if self.network.memory is None else self.network.memory
        for name in sorted(self.heavy, key=lambda n: -self.seconds(n) / self.copies[n]):
            for _ in range(self.copies[name]):
                needs = self.needs(name)
                self.put(
                    name,
                    min(
                        range(len(self.busy)),
                        key=lambda d: (self.memory[d] + needs > room, self.busy[d], self.memory[d]),
                    ),
                )

    def _settle(self) -> None:
        """All others, next to those that are placed, the closest first."""
        waiting = [name for name in self.work if name not in self.at]
        while waiting:
            near = {name: self._exchanged(name) for name in waiting}
            name = max(waiting, key=lambda n: max(near[n].values(), default=-1.0))
            found = near[name]
            self.put(name, max(found, key=lambda d: found[d]) if found else 0)
            waiting.remove(name)

    def _exchanged(self, name: str) -> dict[int, float]:
        """Bytes of an instance between the node and the devices of its neighbours."""
        found: dict[int, float] = {}
        for edge in self.traffic.edges:
            if name in (edge.source, edge.target):
                other = edge.target if edge.source == name else edge.source
                for device in self.at.get(other, ()):
                    size = edge.bytes.mean * (1 + edge.returned) / self.copies[other]
                    found[device] = found.get(device, 0.0) + size
        return found

    def on(self, device: int) -> list[str]:
        return [name for name, where in self.at.items() if device in where]

    def _check_memory(self) -> None:
        room = self.network.memory
        if room is None:
            return
        short = [
            f"device {device} is too small by {math.ceil(needed - room):,} B: {', '.join(self.on(device))} "
            f"with {self.keys} instances in flight take {written(needed, 'B')} of its {written(room, 'B')}"
            for device, needed in enumerate(self.memory)
            if needed > room
        ]
        if short:
            raise AmphwError(
                "; ".join(short) + ". Give devices more memory, or more devices, or fewer instances in flight"
            )

    # --- what crosses -----------------------------------------------------------------------------

    def pairs(self, edge: EdgeRate) -> list[tuple[int, int]]:
        """The devices that its messages go between: for each replica, of equally many instances. Of a source
        there are none."""
        if edge.source not in self.work:
            return []
        source, target = self.at[edge.source], self.at[edge.target]
        return [
            (source[k % len(source)], target[k % len(target)]) for k in range(max(len(source), len(target)))
        ]

    def flows(self) -> Counter[tuple[int, int]]:
        """Bytes of an instance from device to device."""
        found: Counter[tuple[int, int]] = Counter()
        for edge in self.traffic.edges:
            pairs = self.pairs(edge)
            for a, b in pairs:
                if a != b:
                    size = edge.bytes.mean / len(pairs)
                    found[a, b] += size  # type: ignore[assignment]
                    found[b, a] += size * edge.returned  # type: ignore[assignment]
        return found

    def chain(self) -> Spread:
        """Seconds of an instance's longest chain of messages, there and back, if it were alone."""
        units = self.traffic.lowered.units
        spent = [0.0] * len(units)
        for name, work in self.work.items():
            firings = max(self.traffic.nodes[name].firings.mean, LEAST)
            spent[self.units[name].index] = (work.forward + work.backward) / firings / self.network.rate
        way: dict[tuple[int, int], float] = {}
        for edge in self.traffic.edges:
            size = edge.bytes.mean / max(edge.messages.mean, LEAST) * (1 + edge.returned)
            key = self.units[edge.source].index, self.units[edge.target].index
            way[key] = max(way.get(key, 0.0), 2 * self.network.latency + self.network.sending(size))
        found = []
        for number, walked in enumerate(self.traffic.walks):

            def crossing(source: int, target: int, number: int = number) -> float:
                if units[source].name not in self.work:
                    return 0.0
                a, b = self.at[units[source].name], self.at[units[target].name]
                return 0.0 if a[number % len(a)] == b[number % len(b)] else way[source, target]

            found.append(walked.longest(spent, crossing))
        return Spread.of(found)

    def played(self, watch: bool) -> Played:
        links = {(a, b): _link(a, b) for a, b in sorted(self.flows())}
        count, network = len(self.busy), self.network
        return play(
            *(self.traffic, self.work, self.rules, self.at, count, network.rate),
            *(links, network.bandwidth, network.latency, self.keys, watch),
        )

    # --- the answer -------------------------------------------------------------------------------

    def outcome(self, model: str) -> Outcome:
        network, flows, chain = self.network, self.flows(), self.chain()
        loads = [Load(f"device {d}", "device", busy) for d, busy in enumerate(self.busy)]
        if network.bandwidth is not None:
            loads += [Load(_link(a, b), "link", network.sending(flows[a, b])) for a, b in sorted(flows)]
        loads.append(Load("instances in flight", "keys", chain.mean / self.keys))
        busiest, throughput = ranked(loads)
        return Outcome(
            model=model,
            devices=[
                DeviceOutcome(
                    d, network.flops, self.on(d), busy, busy * throughput, self.memory[d], network.memory
                )
                for d, busy in enumerate(self.busy)
            ],
            throughput=throughput,
            loads=busiest,
            per_node=[self._node(name, throughput) for name in self.work],
            per_edge=[self._edge(edge, throughput) for edge in self.traffic.edges],
            origin={},
            links=[self._link(a, b, flows[a, b], throughput) for a, b in sorted(flows)],
            keys=self.keys,
            chain=chain,
            instances=len(self.traffic.walks),
        )

    def _node(self, name: str, throughput: float) -> NodeOutcome:
        rate, work = self.traffic.nodes[name], self.work[name]
        rows = self.traffic.rows_by_instance(name)
        ahead, back = (
            Spread.of(
                [
                    sum(each[way] * rows[space][i] for space, each in work.row_flops.items())
                    for i in range(len(self.traffic.walks))
                ]
            )
            for way in (0, 1)
        )
        return NodeOutcome(
            name=name,
            devices=self.at[name],
            forward=ahead,
            backward=back,
            update=work.update,
            memory=self.memory_of(name),
            busy=self.seconds(name),
            firings=rate.firings,
            messages=rate.received,
            rows=rate.rows,
            messages_per_s=rate.received.mean * throughput,
        )

    def _edge(self, edge: EdgeRate, throughput: float) -> EdgeOutcome:
        bits = 8 * edge.bytes.mean * throughput
        pairs = self.pairs(edge)
        crossed = Counter(_link(a, b) for a, b in pairs if a != b)
        return EdgeOutcome(
            source=edge.source,
            target=edge.target,
            port=edge.port,
            output=edge.output,
            activation_bytes=edge.bytes,
            weight_bytes=self.memory_of(edge.target).value,
            bits_per_s=bits,
            gradient_bits_per_s=bits * edge.returned,
            messages=edge.messages,
            messages_per_s=edge.messages.mean * throughput,
            links=list(crossed),
            link_bytes={name: edge.bytes.mean * times / len(pairs) for name, times in crossed.items()},
        )

    def _link(self, a: int, b: int, size: float, throughput: float) -> LinkOutcome:
        share = None if self.network.bandwidth is None else self.network.sending(size) * throughput
        return LinkOutcome(_link(a, b), a, b, size, 8 * size * throughput, share)


def _link(a: int, b: int) -> str:
    return f"{a} -> {b}"
