"""A model on a network of devices that there need not be: throughput, traffic and memory.

Nodes with parameters take turns on the devices, as `train` places them (`engine.lowering.placing.in_turns`),
unless the network says where they are. The others live with the neighbour that they exchange most bytes with.
Sources have their data where it is needed, and what the network's host keeps is nobody's work.

The busiest device or link limits (`busy`); or the longest chain of messages of an instance, of which `keys`
are in flight.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from amphw.engine.lowering.placing import in_turns, parameter_count
from amphw.engine.parts.costs import FLOAT_BYTES
from amphw.estimate.count.node_time import Spent, spent_on
from amphw.estimate.count.traffic import EdgeRate, Spread, Traffic
from amphw.estimate.count.work import NodeWork, work_of
from amphw.estimate.network.busy import LEAST, Load, ranked
from amphw.estimate.network.devices import DeviceKind, FiringTimes
from amphw.estimate.network.topology import Network, Wire
from amphw.estimate.outcome import DeviceOutcome, EdgeOutcome, LinkOutcome, NodeMemory, NodeOutcome, Outcome
from amphw.estimate.play.events import Played, Playing, play, playing
from amphw.estimate.play.simulation import NO_END, Tally
from amphw.ir.errors import AmphwError
from amphw.ir.units import written
from amphw.ir.update import UpdateRule, rule_of


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


def seconds_of(
    traffic: Traffic, rules: Mapping[str, UpdateRule], network: Network, keys: int, messages: int
) -> float:
    """Until so many messages were sent, forward and backward, from the first instance on."""
    return tally_of(traffic, rules, network, keys, messages=messages).us / 1e6


def tally_of(
    traffic: Traffic,
    rules: Mapping[str, UpdateRule],
    network: Network,
    keys: int,
    retired: int = NO_END,
    messages: int = NO_END,
) -> Tally:
    """What has happened from the first instance on until so many have retired, or messages were sent."""
    made = _Estimate(traffic, rules, network, keys, 1)
    return made.playing().simulation(keys).run(retired, messages)


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
        self._check_kept()
        self.work: dict[str, NodeWork] = {
            name: work_of(graph, self.units[name], rate, rule_of(rules, name))
            for name, rate in traffic.nodes.items()
            if name not in (network.kept or ())
        }
        self.heavy = [name for name in self.work if self.units[name].owns]
        if not self.heavy:
            raise AmphwError(f"graph '{graph.name}' has no node with parameters: there is nothing to spread")
        self.copies = {name: replicas if self.units[name].owns else 1 for name in self.work}
        count = network.count or len(self.heavy) * replicas
        self.busy, self.memory = [0.0] * count, [0.0] * count
        self.times: dict[object, FiringTimes] = {}  # by kind of device, of a circuit with its nodes
        self.spent: dict[tuple[str, object], Spent] = {}  # by node, and the same
        self.at: dict[str, list[int]] = {}  # device of each replica
        self.placed = False
        if at is None:
            self._place_as_said()
            self._spread()
            self._settle()
        for name, where in (at or {}).items():
            for device in where:
                self.put(name, device)
        self._as_placed()
        self._check_memory()
        self._check_wires()

    # --- where nodes go ---------------------------------------------------------------------------

    def spent_on(self, name: str, device: int) -> Spent:
        """What the node takes there."""
        key = name, self._kind(device)
        if key not in self.spent:
            times = self.times_on(device)
            self.spent[key] = spent_on(self.traffic, self.work[name], self.units[name], times)
        return self.spent[key]

    def times_on(self, device: int) -> FiringTimes:
        kind = of, nodes = self._kind(device)
        if kind not in self.times:
            self.times[kind] = of.times(self.traffic, self.work, self.rules, nodes)
        return self.times[kind]

    def _kind(self, device: int) -> tuple[DeviceKind, tuple[str, ...] | None]:
        """What the times there depend on. A circuit is made for its nodes, once it is known which they are;
        until then each is taken to have all."""
        of = self.network.device(device)
        if of.host is None:
            return of, None
        return of, tuple(self.on(device) if self.placed else self.work)

    def _as_placed(self) -> None:
        """The nodes of each device are known now."""
        self.placed = True
        self.busy = [0.0] * len(self.busy)
        for name, where in self.at.items():
            for device in where:
                self.busy[device] += self.seconds(name, device) / self.copies[name]

    def seconds(self, name: str, device: int) -> float:
        """That an instance keeps a device busy with the node."""
        return self.spent_on(name, device).seconds

    def needs(self, name: str, device: int) -> float:
        """Bytes of one replica there."""
        return self.memory_of(name, device).parameters + self.memory_of(name, device).in_flight

    def memory_of(self, name: str, device: int) -> NodeMemory:
        work, here = self.work[name], math.ceil(self.keys / self.copies[name])
        value = work.parameters
        gradient = min(value, work.held - value)
        kept = work.kept * self.network.device(device).number_bytes / FLOAT_BYTES
        return NodeMemory(value, gradient, work.held - value - gradient, here * kept)

    def put(self, name: str, device: int) -> None:
        self.at.setdefault(name, []).append(device)
        self.busy[device] += self.seconds(name, device) / self.copies[name]
        self.memory[device] += self.needs(name, device)

    def _place_as_said(self) -> None:
        for device, part in enumerate(self.network.parts):
            for name in part.nodes:
                if name not in self.work:
                    raise AmphwError(
                        f"device {device} is to have node '{name}', and there is none that computes: "
                        f"expected one of {', '.join(self.work)}"
                    )
                if len(self.at.get(name, ())) == self.copies[name]:
                    raise AmphwError(f"node '{name}' is placed more often than it has replicas")
                self.put(name, device)

    def _spread(self) -> None:
        """Those with parameters, where `train` would put them on such devices: a replica is a node there.

        Replicas of a node are on devices that are alike. A device without room is passed over where another
        one has some.
        """
        devices, graph = range(len(self.busy)), self.traffic.lowered.graph
        sizes = {
            (name, k): parameter_count(graph, name) for name in self.heavy for k in range(self.copies[name])
        }
        placed = {(name, k) for name, where in self.at.items() for k in range(len(where))}

        def left(name: str, device: int) -> float:
            room = self.network.room(device)
            return math.inf if room is None else room - self.memory[device] - self.needs(name, device)

        def alike(name: str, device: int) -> bool:
            first = self.at.get(name, [device])[0]
            return self.network.device(device) == self.network.device(first)

        def passes(replica: tuple[str, int], device: int) -> bool:
            name = replica[0]
            able = [d for d in devices if alike(name, d)]
            return device not in ([d for d in able if left(name, d) >= 0] or able)

        for (name, _), device in in_turns(sizes, devices, placed, passes):
            self.put(name, device)

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
                    size = self.size(edge) * (1 + edge.returned) / self.copies[other]
                    found[device] = found.get(device, 0.0) + size
        return found

    def on(self, device: int) -> list[str]:
        return [name for name, where in self.at.items() if device in where]

    def _check_kept(self) -> None:
        for name in self.network.kept or ():
            if name not in self.traffic.nodes:
                able = ", ".join(self.traffic.nodes)
                raise AmphwError(
                    f"the host is to have node '{name}', and there is none that computes: expected some of "
                    f"{able}"
                )
            if self.units[name].owns:
                raise AmphwError(
                    f"the host is to have node '{name}', which has parameters: place it on a device, since "
                    "what the host computes takes no time"
                )

    def _check_memory(self) -> None:
        short = [
            f"device {device} is too small by {math.ceil(needed - room):,} B: {', '.join(self.on(device))} "
            f"with {self.keys} instances in flight take {written(needed, 'B')} of its {written(room, 'B')}"
            for device, needed in enumerate(self.memory)
            if (room := self.network.room(device)) is not None and needed > room
        ]
        if short:
            raise AmphwError(
                "; ".join(short) + ". Give devices more memory, or more devices, or fewer instances in flight"
            )

    def _check_wires(self) -> None:
        for edge in self.traffic.edges:
            for a, b in self.pairs(edge):
                for one, other in ((a, b), (b, a)):
                    if one != other and self.network.wire(one, other) is None:
                        raise AmphwError(
                            f"nodes '{edge.source}' on device {a} and '{edge.target}' on device {b} exchange "
                            f"messages, and there is no link from {one} to {other}: add it, or place both "
                            "nodes on one device"
                        )

    # --- what crosses -----------------------------------------------------------------------------

    def pairs(self, edge: EdgeRate) -> list[tuple[int, int]]:
        """The devices that its messages go between: for each replica, of equally many instances. There are
        none of a source, nor of what the host keeps."""
        if edge.source not in self.work or edge.target not in self.work:
            return []
        source, target = self.at[edge.source], self.at[edge.target]
        return [
            (source[k % len(source)], target[k % len(target)]) for k in range(max(len(source), len(target)))
        ]

    def size(self, edge: EdgeRate) -> float:
        """Bytes of an instance on the edge, forward, with what stands before each message."""
        numbers = edge.bytes.mean * self.network.number_bytes / FLOAT_BYTES
        return numbers + edge.messages.mean * self.network.header_bytes

    def flows(self) -> Counter[tuple[int, int]]:
        """Bytes of an instance from device to device."""
        found: Counter[tuple[int, int]] = Counter()
        for edge in self.traffic.edges:
            pairs = self.pairs(edge)
            for a, b in pairs:
                if a != b:
                    size = self.size(edge) / len(pairs)
                    found[a, b] += size  # type: ignore[assignment]
                    found[b, a] += size * edge.returned  # type: ignore[assignment]
        return found

    def chain(self) -> Spread:
        """Seconds of an instance's longest chain of messages, there and back, if it were alone."""
        units = self.traffic.lowered.units
        spent = [0.0] * len(units)
        for name in self.work:
            firings = max(self.traffic.nodes[name].firings.mean, LEAST)
            of = self.spent_on(name, self.at[name][0])
            spent[self.units[name].index] = (of.ahead + of.back + of.control) / firings
        sizes: dict[tuple[int, int], float] = {}
        for edge in self.traffic.edges:
            size = self.size(edge) / max(edge.messages.mean, LEAST) * (1 + edge.returned)
            key = self.units[edge.source].index, self.units[edge.target].index
            sizes[key] = max(sizes.get(key, 0.0), size)
        found = []
        for number, walked in enumerate(self.traffic.walks):

            def crossing(source: int, target: int, number: int = number) -> float:
                if not {units[source].name, units[target].name} <= set(self.work):
                    return 0.0
                a, b = (of[number % len(of)] for of in (self.at[units[u].name] for u in (source, target)))
                there, back = self.wire(a, b), self.wire(b, a)
                return 0.0 if a == b else there.latency + back.latency + there.sending(sizes[source, target])

            found.append(walked.longest(spent, crossing))
        return Spread.of(found)

    def wire(self, a: int, b: int) -> Wire:
        """Where messages go, there is one."""
        return self.network.wire(a, b) or Wire()

    def playing(self) -> Playing:
        wires = {(a, b): self.wire(a, b) for a, b in sorted(self.flows())}
        devices = [self.network.device(d) for d in range(len(self.busy))]
        times = [self.times_on(d) for d in range(len(self.busy))]
        return playing(
            *(self.traffic, self.work, self.rules, self.at, devices, times),
            *(wires, self.network.number_bytes, self.network.header_bytes, self.network.policy),
        )

    def played(self, watch: bool = False) -> Played:
        names, units = [_link(a, b) for a, b in sorted(self.flows())], self.traffic.lowered.units
        return play(self.playing(), units, names, len(self.busy), self.keys, watch)

    # --- the answer -------------------------------------------------------------------------------

    def outcome(self, model: str) -> Outcome:
        flows, chain = self.flows(), self.chain()
        loads = [Load(f"device {d}", "device", busy) for d, busy in enumerate(self.busy)]
        sending = {(a, b): self.wire(a, b).sending(size) for (a, b), size in sorted(flows.items())}
        loads += [
            Load(_link(a, b), "link", seconds)
            for (a, b), seconds in sending.items()
            if self.wire(a, b).bandwidth is not None
        ]
        for d in range(len(self.busy)):
            spent = [(self.spent_on(n, d).control, self.at[n].count(d) / self.copies[n]) for n in self.on(d)]
            if seconds := sum(control * share for control, share in spent):
                loads.append(Load(f"controller of device {d}", "controller", seconds))
        loads.append(Load("instances in flight", "keys", chain.mean / self.keys))
        busiest, throughput = ranked(loads)
        return Outcome(
            model=model,
            devices=[self._device(d, busy, busy * throughput) for d, busy in enumerate(self.busy)],
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

    def _device(self, number: int, busy: float, share: float) -> DeviceOutcome:
        of = self.network.device(number)
        return DeviceOutcome(
            number=number,
            flops=of.peak,
            nodes=self.on(number),
            busy=busy,
            share=share,
            memory=self.memory[number],
            room=self.network.room(number),
            what=of.label,
            resources=of.resources,
            roof=of.roof,
        )

    def _node(self, name: str, throughput: float) -> NodeOutcome:
        rate, work = self.traffic.nodes[name], self.work[name]
        rows = self.traffic.rows_by_instance(name)
        ahead, back = (
            Spread.of(
                [
                    sum(each[way] * rows[counted][i] for counted, each in work.row_flops.items())
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
            memory=self.memory_of(name, self.at[name][0]),
            busy=self.seconds(name, self.at[name][0]),
            firings=rate.firings,
            messages=rate.received,
            rows=rate.rows,
            messages_per_s=rate.received.mean * throughput,
        )

    def _edge(self, edge: EdgeRate, throughput: float) -> EdgeOutcome:
        bits = 8 * self.size(edge) * throughput
        pairs = self.pairs(edge)
        crossed = Counter(_link(a, b) for a, b in pairs if a != b)
        return EdgeOutcome(
            source=edge.source,
            target=edge.target,
            port=edge.port,
            output=edge.output,
            activation_bytes=edge.bytes.times(self.network.number_bytes / FLOAT_BYTES),
            weight_bytes=self.memory_of(edge.target, self.at[edge.target][0]).value
            if edge.target in self.at
            else 0.0,
            bits_per_s=bits,
            gradient_bits_per_s=bits * edge.returned,
            messages=edge.messages,
            messages_per_s=edge.messages.mean * throughput,
            links=list(crossed),
            link_bytes={name: self.size(edge) * times / len(pairs) for name, times in crossed.items()},
        )

    def _link(self, a: int, b: int, size: float, throughput: float) -> LinkOutcome:
        wire = self.wire(a, b)
        share = None if wire.bandwidth is None else wire.sending(size) * throughput
        return LinkOutcome(_link(a, b), a, b, size, 8 * size * throughput, share)


def _link(a: int, b: int) -> str:
    return f"{a} -> {b}"
