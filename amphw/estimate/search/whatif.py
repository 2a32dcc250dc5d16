"""What it would take to reach a throughput, and the most that a budget gives: a search over networks.

What costs most weighs first: the rate of all devices together, then the bandwidth of all links in use, then
instances in flight; among equals the fewest devices, then the fewest replicas. The first configuration in
that order that reaches the target is proposed. It reaches it where the calculation says so
(`estimate.network`) and the simulation, which knows queues (`estimate.play`); the calculation
is cheap, so it is asked first.

Not tried: slower links where the fastest do not even come near, and fewer instances in flight where the most
do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from amphw.estimate.network.limit import limit_of, no_room
from amphw.estimate.network.network import Network
from amphw.estimate.outcome import Cheaper, Configuration, Outcome, Proposal
from amphw.estimate.search.budget import Budget
from amphw.estimate.search.space import (
    Rate,
    affordable,
    bandwidths,
    device_counts,
    key_counts,
    replica_counts,
)
from amphw.ir.errors import AmphwError

Estimator = Callable[[Network, int, int, bool], Outcome]
"""(network, instances in flight, replicas, whether it is played) -> its estimate; `AmphwError`: no room."""

NEAR = 0.95
"""Of a target."""

NEARLY = 0.99
"""Of the most that a budget gives: the cheapest that reaches so much of it is proposed."""

BELOW = 8
"""Layouts of less rate that are looked at to say what they lack: those that could be the fastest."""


@dataclass(frozen=True)
class Layout:
    """Devices of one rate, and replicas of the model on them."""

    rate: Rate
    devices: int
    replicas: int

    @property
    def cost(self) -> float:
        """Of all devices together."""
        return self.rate.cost * self.devices


@dataclass(frozen=True)
class Point:
    """A configuration: `network` is that of the layout, with the links of one bandwidth."""

    layout: Layout
    network: Network
    keys: int


def propose(
    estimator: Estimator,
    network: Network,
    budget: Budget,
    target: float | None = None,
    replicas: int | None = None,
    keys: int | None = None,
) -> Outcome:
    """The estimate of the proposed network, with its `proposal`.

    network: of the fastest devices there are; its number of devices stays, where it has one. target:
    instances a second; None: the most within the budget, and the cheapest that comes near. replicas, keys:
    None: any number. Raises AmphwError where every device is too small.
    """
    if budget.link is not None:
        network = replace(network, bandwidth=budget.link)
    if budget.memory is not None:
        network = replace(network, memory=budget.memory)
    return _Search(estimator, network, budget, replicas, keys).proposal(target)


class _Search:
    def __init__(
        self, estimator: Estimator, network: Network, budget: Budget, replicas: int | None, keys: int | None
    ) -> None:
        self.estimator, self.network, self.budget = estimator, network, budget
        self.replicas, self.keys = replicas, keys
        self.rates = affordable(network, budget.dsps)
        self.counts = device_counts(network, budget)
        self.calculated: dict[Point, Outcome | AmphwError] = {}
        self.played: dict[Point, Outcome] = {}
        self.alone = self._alone()
        self.rates = list(self.alone)

    def _alone(self) -> dict[Rate, Outcome]:
        """All nodes on one device that has room for them, by the rates of devices that the model can be on.
        Raises what the fastest says, if there are none."""
        found = {}
        for rate in self.rates:
            try:
                found[rate] = self.estimator(replace(rate.network.of(1), memory=None), 1, 1, False)
            except AmphwError:  # a circuit of few lanes may be too small, and one of more be not
                if rate == self.rates[-1] and not found:
                    raise
        return found

    # --- what there is to choose from ---------------------------------------------------------------

    @cached_property
    def heavy(self) -> int:
        """Nodes with parameters."""
        return sum(n.memory.value > 0 for n in self.alone[self.rates[0]].per_node)

    def layouts(self, rate: Rate, devices: int) -> list[Layout]:
        counts = replica_counts(devices, self.heavy, self.replicas, self.keys)
        return [Layout(rate, devices, r) for r in counts]

    def links(self, layout: Layout) -> list[Network]:
        """The layout's network with each bandwidth, slowest first."""
        return bandwidths(layout.rate.network.of(layout.devices), self.budget)

    def key_counts(self, layout: Layout) -> Sequence[int]:
        return key_counts(layout.replicas, self.keys)

    # --- how fast it is -----------------------------------------------------------------------------

    def bound(self, layout: Layout) -> float:
        """Instances a second that no placement exceeds: all devices are at work all the time, and a node is
        on no more devices than it has copies."""
        nodes = self.alone[layout.rate].per_node
        longest = max(n.busy / (layout.replicas if n.memory.value else 1) for n in nodes)
        return 1 / max(sum(n.busy for n in nodes) / layout.devices, longest, 1e-12)

    def calculate(self, point: Point) -> Outcome | None:
        """None: a device is too small."""
        if point not in self.calculated:
            try:
                found: Outcome | AmphwError = self.estimator(
                    point.network, point.keys, point.layout.replicas, False
                )
            except AmphwError as error:
                found = error
            self.calculated[point] = found
        known = self.calculated[point]
        return known if isinstance(known, Outcome) else None

    def _refusal(self, point: Point) -> AmphwError:
        """Why there is no room for what was calculated."""
        known = self.calculated[point]
        assert isinstance(known, AmphwError)
        return known

    def throughput(self, point: Point) -> float:
        """As calculated; 0 without room."""
        found = self.calculate(point)
        return found.throughput if found else 0.0

    def play(self, point: Point) -> Outcome:
        if point not in self.played:
            self.played[point] = self.estimator(point.network, point.keys, point.layout.replicas, True)
        return self.played[point]

    def reaches(self, point: Point, target: float) -> bool:
        """As calculated and, only where that does, as played."""
        return self.throughput(point) >= target and self.play(point).sustained >= target

    def fullest(self, layout: Layout, network: Network) -> Point:
        """With the instances in flight that the calculation likes best: the most, where there is room."""
        points = [Point(layout, network, keys) for keys in self.key_counts(layout)]
        if network.memory is None:
            return points[-1]
        return max(points, key=lambda p: (self.throughput(p), p.keys))

    # --- searching ----------------------------------------------------------------------------------

    def levels(self) -> list[list[tuple[Rate, int]]]:
        """Rates and numbers of devices of equal cost, the cheapest first."""
        found: dict[float, list[tuple[Rate, int]]] = {}
        for rate in self.rates:
            for devices in self.counts:
                found.setdefault(rate.cost * devices, []).append((rate, devices))
        return [found[cost] for cost in sorted(found)]

    def cheapest(self, target: float) -> Point | None:
        """The cheapest configuration that reaches the target."""
        for level in self.levels():
            layouts = [layout for rate, devices in level for layout in self.layouts(rate, devices)]
            found = [p for layout in layouts for p in self._reaching(layout, target)]
            if found:
                return min(found, key=self.cost)
        return None

    def _reaching(self, layout: Layout, target: float) -> Iterator[Point]:
        """The configuration with the slowest links that reaches the target, if there is one."""
        if self.bound(layout) < target:
            return
        networks = self.links(layout)
        if not self._comes_near(self.fullest(layout, networks[-1]), target):
            return
        for network in networks:
            point = self._least_keys(layout, network, target)
            if point is not None:
                yield point
                return

    def _comes_near(self, point: Point, target: float) -> bool:
        """A little short is near: what is played is of finite length, and no smooth function of anything."""
        return self.throughput(point) >= target and self.play(point).sustained >= NEAR * target

    def _least_keys(self, layout: Layout, network: Network, target: float) -> Point | None:
        """With the fewest instances in flight that reach the target."""
        if not self._comes_near(self.fullest(layout, network), target):
            return None
        last = 0
        for keys in self.key_counts(layout):
            point = Point(layout, network, keys)
            if self.reaches(point, target):
                return self._fewer(point, last, target)
            last = keys
        return None

    def _fewer(self, point: Point, below: int, target: float) -> Point:
        """Between `below`, which are too few, and the point's."""
        step = point.layout.replicas
        while self.keys is None and point.keys - below > step:
            middle = replace(point, keys=below + (point.keys - below) // step // 2 * step)
            if self.reaches(middle, target):
                point = middle
            else:
                below = middle.keys
        return point

    def best(self) -> Point | None:
        """The configuration with the highest throughput. None: there is no room anywhere."""
        rate = min(self.rates, key=lambda r: sum(n.busy for n in self.alone[r].per_node))
        best, most = None, 0.0
        for devices in reversed(self.counts):
            layouts = self.layouts(rate, devices)
            points = [self.fullest(x, self.links(x)[-1]) for x in layouts if self.bound(x) > most]
            for point in sorted(points, key=lambda p: -self.throughput(p)):
                if self.throughput(point) <= most:
                    break
                found = self.play(point).sustained
                if found > most:
                    best, most = point, found
        return best

    # --- the answer ---------------------------------------------------------------------------------

    def proposal(self, target: float | None) -> Outcome:
        point = None if target is None else self.cheapest(target)
        reached, best, aim = point is not None, None, target or 0.0
        if point is None:
            best = self.best()
            if best is None:
                raise self._no_room()
            while True:  # what the search for a cheaper one played may be faster
                aim = NEARLY * self.play(best).sustained
                point = self.cheapest(aim) or best
                fastest = max(self.played, key=lambda p: self.played[p].sustained)
                if self.played[fastest].sustained <= self.play(best).sustained:
                    break
                best = fastest
        outcome = self.play(point)
        assert outcome.played is not None
        proposal = Proposal(
            target=target,
            reached=reached or target is None,
            aim=aim,
            best=None if best is None else self.configuration(best),
            configuration=self.configuration(point),
            placement={n.name: n.devices for n in outcome.per_node},
            staleness=outcome.played.staleness,
            cheaper=[*self._cheaper(point)],
            looked=[self.configuration(p) for p in sorted(self.played, key=self.cost)],
            calculated=len(self.calculated),
            budget=self.budget.said,
        )
        return replace(outcome, proposal=proposal)

    def _no_room(self) -> AmphwError:
        """What is missing where least is needed: with the most devices, and fewest instances in flight."""
        layout = self.layouts(self.rates[-1], self.counts[-1])[0]
        point = Point(layout, self.links(layout)[-1], self.key_counts(layout)[0])
        self.calculate(point)
        error = self._refusal(point)
        return AmphwError(
            f"no network has room for the model; most of it is with devices: {layout.devices}, instances in "
            f"flight: {point.keys}, and {error}"
        )

    def cost(self, point: Point) -> tuple[float, float, int, int, int]:
        layout = point.layout
        return layout.cost, self._bandwidth(point), point.keys, layout.devices, layout.replicas

    def _bandwidth(self, point: Point) -> float:
        """Of all links in use; 0 where links have no limit."""
        found = self.calculate(point)
        return len(found.links) * (point.network.bandwidth or 0.0) if found else 0.0

    def _cheaper(self, point: Point) -> Iterator[Cheaper]:
        """The fastest of devices that cost less, and the next cheaper by links and by instances in flight."""
        levels = [x for level in self.levels() for x in level if x[0].cost * x[1] < point.layout.cost]
        below = [layout for rate, devices in levels for layout in self.layouts(rate, devices)]
        below.sort(key=lambda layout: (self.bound(layout), layout.cost))
        points = [self.fullest(layout, self.links(layout)[-1]) for layout in below[-BELOW:]]
        tried = [p for p in self.played if p.layout.cost < point.layout.cost]
        if points:
            fastest = [max(points, key=self.throughput), *tried]
            found = [self.configuration(p, play=True) for p in fastest]
            yield Cheaper("rate", max(found, key=lambda each: each.throughput))
        links = self.links(point.layout)
        if links.index(point.network) and self._bandwidth(point):
            slower = links[links.index(point.network) - 1]
            yield Cheaper("bandwidth", self.configuration(self.fullest(point.layout, slower), play=True))
        if self.keys is None and point.keys > point.layout.replicas:
            fewer = replace(point, keys=point.keys - point.layout.replicas)
            yield Cheaper("keys", self.configuration(fewer, play=True))

    def configuration(self, point: Point, play: bool = False) -> Configuration:
        """play: if there is room."""
        layout, found = point.layout, self.calculate(point)
        if found and (play or point in self.played):
            found = self.play(point)
        alone = self.alone[layout.rate].devices[0]
        flops, circuit = alone.flops, layout.rate.network.circuit
        return Configuration(
            devices=layout.devices,
            rate=layout.rate.label,
            flops=flops,
            replicas=layout.replicas,
            keys=point.keys,
            bandwidth=point.network.bandwidth,
            links=len(found.links) if found else 0,
            calculated=found.throughput if found else None,
            played=found.played.throughput if found and found.played else None,
            throughput=found.sustained if found else 0.0,
            total_rate=flops * layout.devices,
            total_bandwidth=self._bandwidth(point),
            limit=limit_of(found) if found else no_room(self._refusal(point)),
            device=alone.what,
            lanes=circuit.lanes if circuit is not None else None,
            dsps=layout.rate.dsps,
        )
