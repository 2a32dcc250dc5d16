"""Proposals: they reach the target when estimated again, and nothing in the same space is cheaper."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial

import pytest

from amphw.cpu_runtime import planes
from amphw.engine.lowering.lower import lower
from amphw.estimate.count.traffic import count
from amphw.estimate.network.assemble import apart, placeable
from amphw.estimate.network.network import Network, estimate
from amphw.estimate.outcome import Configuration, Outcome, Proposal, outcome_json
from amphw.estimate.search.budget import Budget
from amphw.estimate.search.space import bandwidths, device_counts, key_counts, rates, replica_counts
from amphw.estimate.search.whatif import NEARLY, Estimator, propose
from amphw.ir.errors import AmphwError
from amphw.ir.update import UpdateRule
from tests.daily import daily
from tests.estimate.chain import chain, rows
from tests.estimate.network.test_network import FIRST, KHZ, RULES
from tests.graphs.cases import CASES, each_case

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")

SMALL = Budget.parse("devices=3")


def layers(*widths: int) -> Estimator:
    return partial(estimate, "chain", count(lower(chain(widths)), rows(2)), RULES)


def proposal_of(found: Outcome) -> Proposal:
    assert found.proposal is not None
    return found.proposal


def network_of(found: Configuration, network: Network) -> Network:
    """By hand."""
    made = network.computing(float(Fraction(found.rate))).of(found.devices)
    return replace(made, bandwidth=found.bandwidth)


def costs(found: Configuration) -> tuple[float, float, int]:
    return found.total_rate, found.total_bandwidth, found.keys


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.7, 2.5])
def test_what_is_proposed_reaches_the_target_when_it_is_estimated_again(share: float) -> None:
    target = share * 1e3 / FIRST
    estimator = layers(8, 2)
    found = proposal_of(propose(estimator, KHZ, Budget(), target))
    assert found.reached and found.aim == found.target == target
    chosen = found.configuration
    again = estimator(network_of(chosen, KHZ), chosen.keys, chosen.replicas, True)
    assert again.played is not None
    assert again.throughput == chosen.calculated and again.played.throughput == chosen.played
    assert min(again.throughput, again.played.throughput) == chosen.throughput >= target
    assert found.placement == {n.name: n.devices for n in again.per_node}
    assert found.staleness == again.played.staleness
    assert chosen in found.looked


def test_the_rest_of_the_estimate_is_of_the_proposed_network() -> None:
    found = propose(layers(8, 2), KHZ, Budget(), 5.0)
    chosen = proposal_of(found).configuration
    assert (len(found.devices), found.keys) == (chosen.devices, chosen.keys)
    assert found.throughput == chosen.calculated
    json.dumps(outcome_json(found), allow_nan=False)


def everything(network: Network, budget: Budget, heavy: int) -> Iterator[tuple[Network, int, int]]:
    """Every network that a search may choose, with instances in flight and replicas."""
    for rate, devices in itertools.product(rates(network), device_counts(network, budget)):
        for linked in bandwidths(rate.network.of(devices), budget):
            for replicas in replica_counts(devices, heavy, None, None):
                for keys in key_counts(replicas, None):
                    yield linked, keys, replicas


@pytest.mark.parametrize("widths, link", daily([((6, 6, 2), None)], [((6, 6, 2), 2e3), ((3, 9), 2e4)]))
def test_nothing_that_is_cheaper_reaches_the_target(widths: tuple[int, ...], link: float | None) -> None:
    estimator, budget = layers(*widths), replace(SMALL, link=link)
    network = KHZ if link is None else replace(KHZ, bandwidth=link)
    grid = []
    for tried, keys, replicas in everything(network, budget, len(widths)):
        found = estimator(tried, keys, replicas, True)
        bandwidth = len(found.links) * (tried.bandwidth or 0.0)
        grid.append((found.sustained, (sum(d.flops for d in found.devices), bandwidth, keys)))
    most = max(throughput for throughput, _ in grid)
    for share in (0.03, 0.2, 0.5, 0.8, 1.0):
        target = share * most
        found = proposal_of(propose(estimator, KHZ, budget, target))
        assert found.reached and found.configuration.throughput >= target
        assert costs(found.configuration) <= min(cost for reached, cost in grid if reached >= target)
    beyond = proposal_of(propose(estimator, KHZ, budget, 1.01 * most))
    assert not beyond.reached and beyond.best is not None
    assert beyond.best.throughput == pytest.approx(most)


@pytest.mark.parametrize("link", [None, 2e3])
def test_what_is_said_to_be_cheaper_costs_less_and_fails(link: float | None) -> None:
    budget, network = replace(SMALL, link=link), replace(KHZ, latency=1.0)
    found = proposal_of(propose(layers(8, 2), network, budget, 1e3 / FIRST, replicas=1))
    by = {each.by: each.configuration for each in found.cheaper}
    assert set(by) == {"rate", "keys"} | ({"bandwidth"} if link else set())
    for each in by.values():
        assert each.throughput < found.configuration.throughput and each.throughput < found.aim
        assert costs(each) < costs(found.configuration)
        assert each.limit.words
    assert by["rate"].total_rate < found.configuration.total_rate


def test_a_target_out_of_reach_says_what_limits() -> None:
    """One copy of each node: the longest is on one device, however many there are."""
    found = proposal_of(propose(layers(8, 2), KHZ, Budget.parse("devices=5"), 100.0, replicas=1))
    assert found.target == 100.0 and not found.reached
    assert found.best is not None
    assert found.best.throughput == pytest.approx(1e3 / FIRST, rel=1e-3)
    assert found.best.limit.of == "device" and found.best.limit.nodes[0] == "layer0"
    assert "layer0: a node is on one device" in found.best.limit.words
    assert found.configuration.throughput >= NEARLY * found.best.throughput
    assert found.configuration.devices == 2


def test_a_slow_link_is_named() -> None:
    """Each layer has a device of its own, since both do not fit."""
    room = max(device.memory for device in layers(8, 2)(KHZ, 64, 1, False).devices)
    network = replace(KHZ, memory=room, bandwidth=64.0)
    found = proposal_of(propose(layers(8, 2), network, Budget(), 100.0, replicas=1, keys=64))
    assert not found.reached and found.best is not None
    assert found.best.limit.of == "link" and found.best.limit.nodes == ["layer0", "layer1"]


def test_more_budget_never_gives_less() -> None:
    estimator, before = layers(6, 6, 2), 0.0
    for devices in range(1, 9):
        found = proposal_of(propose(estimator, KHZ, Budget(devices=devices)))
        assert found.best is not None and found.reached and found.target is None
        assert found.best.throughput >= before
        assert found.configuration.throughput >= NEARLY * found.best.throughput == found.aim
        assert found.configuration.devices <= devices
        before = found.best.throughput
    before = 0.0
    for link in (250.0, 500.0, 1e3, 4e3):
        found = proposal_of(propose(estimator, KHZ, Budget(devices=3, link=link), replicas=1))
        assert found.best is not None and found.best.throughput >= before
        assert found.configuration.bandwidth is not None and found.configuration.bandwidth <= link
        before = found.best.throughput


def test_more_budget_never_makes_a_target_dearer() -> None:
    estimator, before = layers(6, 6, 2), (1e99, 1e99, 1 << 30)
    for devices in range(2, 9):
        found = proposal_of(propose(estimator, KHZ, Budget(devices=devices), 3.0))
        assert found.reached
        assert costs(found.configuration) <= before
        before = costs(found.configuration)


def test_what_is_given_stays() -> None:
    network = replace(KHZ, devices=3, bandwidth=1e4)
    found = proposal_of(propose(layers(8, 2), network, Budget(), 1.0, replicas=2, keys=6)).configuration
    assert (found.devices, found.replicas, found.keys, found.bandwidth) == (3, 2, 6, 1e4)


def test_devices_without_room_say_by_how_many_bytes() -> None:
    with pytest.raises(
        AmphwError, match=r"no network has room for the model; .*device 0 is too small by 1 B"
    ):
        needed = layers(8, 2)(KHZ, 1, 1, False).devices[0].memory
        propose(layers(8, 2), KHZ, Budget(devices=4, memory=needed - 1), 1.0)


def test_memory_bounds_instances_in_flight() -> None:
    """A device for each layer, and room for eight instances: more would be faster."""
    room = layers(8, 2)(KHZ, 8, 1, False).devices[0].memory
    slow = replace(KHZ, latency=1.0)
    full = proposal_of(propose(layers(8, 2), slow, Budget(devices=2, memory=room), replicas=1))
    free = proposal_of(propose(layers(8, 2), slow, Budget(devices=2), replicas=1))
    assert full.configuration.keys <= 8
    assert full.best is not None and free.best is not None
    assert full.best.throughput <= free.best.throughput


def test_dsps_are_for_circuits() -> None:
    with pytest.raises(AmphwError, match=r"dsps=56 is for devices that are circuits \(--lanes\)"):
        propose(layers(8, 2), KHZ, Budget(dsps=56), 1.0)


@each_case(CASES[::5])
def test_the_most_within_a_budget_of_every_graph(case) -> None:  # type: ignore[no-untyped-def]
    graph = case.build()
    if not placeable(graph):
        pytest.skip("nothing to place")
    traffic = count(apart(graph, placeable(graph)), case.instances(seed=3))
    estimator = partial(estimate, case.name, traffic, {"*": UpdateRule(interval=4)})
    network = Network(1e6, latency=1e-5)
    found = proposal_of(propose(estimator, network, Budget.parse("devices=3,link=10Mb/s")))
    assert found.best is not None and found.best.limit.words
    again = estimator(
        network_of(found.configuration, network), found.configuration.keys, found.configuration.replicas, True
    )
    assert again.sustained == found.configuration.throughput >= NEARLY * found.best.throughput
