"""Estimates played through: exact where instances are alone, and never faster than what is calculated."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from amphw.cpu_runtime import planes
from amphw.engine.lowering.lower import lower
from amphw.estimate.count.traffic import count
from amphw.estimate.network.assemble import apart, placeable
from amphw.estimate.network.network import Network, estimate
from amphw.estimate.outcome import Outcome, outcome_json
from amphw.estimate.play.events import Played
from amphw.ir.update import UpdateRule
from tests.estimate.chain import chain, rows
from tests.estimate.network.test_network import FIRST, KHZ, RULES
from tests.graphs.cases import CASES, Case, each_case

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")


def two(network: Network, keys: int, replicas: int = 1) -> tuple[Outcome, Played]:
    traffic = count(lower(chain([8, 2])), rows(4))
    found = estimate("chain", traffic, RULES, network, keys, replicas, events=True)
    assert found.played is not None
    return found, found.played


def test_an_instance_alone_takes_its_chain_and_the_update_at_its_end() -> None:
    found, played = two(replace(KHZ, bandwidth=1e6, latency=10.0), keys=1)
    assert found.chain is not None
    assert played.latency == pytest.approx(found.chain.mean + 96 / 1e3)
    assert played.throughput == pytest.approx(1 / played.latency)
    assert set(played.staleness.values()) == {0.0}
    assert played.messages == pytest.approx(played.instances * 6, abs=6)  # three there, three back


def test_the_busiest_device_is_always_at_work() -> None:
    found, played = two(KHZ, keys=16)
    assert played.throughput == pytest.approx(1e3 / FIRST, rel=1e-3)
    assert played.device_busy[0] == pytest.approx(1.0) and played.device_busy[1] < 1.0
    assert max(played.staleness.values()) > 0.0
    assert played.queued[0] > 1 and played.held[1] > 0


def test_a_link_that_limits_is_always_busy() -> None:
    found, played = two(replace(KHZ, bandwidth=64.0), keys=32)
    assert played.throughput == pytest.approx(64 / (8 * 32), rel=0.02)
    assert played.link_busy["0 -> 1"] == pytest.approx(1.0, abs=0.02)
    assert played.link_waited["0 -> 1"] > 0.0


def test_replicas_share_the_instances() -> None:
    _, one = two(KHZ, keys=32)
    _, three = two(KHZ, keys=96, replicas=3)
    assert three.throughput == pytest.approx(3 * one.throughput, rel=0.1)


@each_case(CASES[::3])
def test_it_is_not_faster_than_what_is_calculated(case: Case) -> None:
    graph = case.build()
    if not placeable(graph):
        pytest.skip("nothing to place")
    traffic = count(apart(graph, placeable(graph)), case.instances(seed=3))
    network = Network(1e6, bandwidth=1e7, latency=1e-5)
    rules = {"*": UpdateRule(interval=4)}
    for keys in (1, 8):
        found = estimate(case.name, traffic, rules, network, keys, events=True)
        assert found.played is not None
        limit = 1 / max(x.seconds for x in found.loads if x.of != "keys")
        assert 0.0 < found.played.throughput <= limit * 1.05
        assert all(0.0 <= busy <= 1.0 + 1e-9 for busy in found.played.device_busy)
    json.dumps(outcome_json(found))
