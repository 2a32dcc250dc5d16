"""What doubling buys and what other placements do, where it can be told by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from amphw.cpu_runtime import planes
from amphw.engine.lowering.lower import lower
from amphw.estimate.count.traffic import count
from amphw.estimate.network.network import Network, estimate
from amphw.estimate.outcome import Outcome, outcome_json
from amphw.estimate.search.compare import EACH, FOUND, ONE, OWN, compared
from tests.estimate.chain import chain, rows
from tests.estimate.network.test_network import KHZ, RULES

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")


def found(network: Network, keys: int = 64, replicas: int = 1, widths: tuple[int, ...] = (8, 8)) -> Outcome:
    traffic = count(lower(chain(widths)), rows(4))
    of = estimate("chain", traffic, RULES, network, keys, replicas)
    return compared(of, traffic, RULES, network, keys, replicas)


def gains(of: Outcome) -> dict[str, tuple[float, float]]:
    """Calculated and played."""
    base = of.sensitivity[0]
    assert base.throughput and base.played
    return {
        each.what: (each.throughput / base.throughput, each.played / base.played)
        for each in of.sensitivity
        if each.throughput and each.played
    }


def test_faster_devices_help_where_devices_limit() -> None:
    of = found(replace(KHZ, bandwidth=1e9))
    for what, gain in (("devices twice as fast", 2.0), ("links of twice the bandwidth", 1.0)):
        assert gains(of)[what] == (pytest.approx(gain), pytest.approx(gain, rel=0.02))
    assert gains(of)["twice as many replicas, on twice as many devices"][0] > 1.8  # the loss has no replica
    assert of.sensitivity[0].throughput == of.throughput


def test_faster_links_help_where_a_link_limits() -> None:
    of = found(replace(KHZ, bandwidth=64.0))
    assert gains(of)["links of twice the bandwidth"] == (pytest.approx(2.0), pytest.approx(2.0, rel=0.05))
    assert gains(of)["devices twice as fast"] == (pytest.approx(1.0), pytest.approx(1.0, rel=0.05))
    assert {each.bottleneck for each in of.sensitivity} >= {"link 0 -> 1"}


def test_more_in_flight_helps_where_that_limits() -> None:
    of = found(replace(KHZ, bandwidth=1e6, latency=10.0), keys=1)
    assert gains(of)["twice as many instances in flight"] == (
        pytest.approx(2.0),
        pytest.approx(2.0, rel=0.1),
    )


def test_what_limits_nothing_is_not_doubled() -> None:
    assert "links of twice the bandwidth" not in gains(found(KHZ))
    assert "twice as many devices" not in gains(found(KHZ))
    assert "twice as many devices" in gains(found(replace(KHZ, devices=1)))


def test_a_change_that_is_impossible_says_why() -> None:
    small = found(replace(KHZ, memory=found(KHZ, keys=4).devices[0].memory), keys=4)
    change = next(each for each in small.sensitivity if each.what == "twice as many instances in flight")
    assert change.throughput is None and "device 0 is too small by" in change.why
    one = next(each for each in small.placements if each.name == ONE)
    assert one.throughput is None and "too small" in one.why
    json.dumps(outcome_json(small), allow_nan=False)


def test_placements_are_compared() -> None:
    by_name = {each.name: each for each in found(replace(KHZ, bandwidth=1e9)).placements}
    assert list(by_name) == [OWN, ONE, EACH, FOUND]
    own, one, each, best = by_name.values()
    assert (own.devices, one.devices, each.devices) == (2, 1, 2)
    assert one.bytes == 0 and one.busiest_bits_per_s == 0.0 and set(map(tuple, one.where.values())) == {(0,)}
    assert own.throughput and one.throughput and best.throughput
    assert best.throughput >= own.throughput > one.throughput
    assert own.busiest_bits_per_s == pytest.approx(8 * 32 * own.throughput)


def test_the_search_leaves_a_link_that_is_too_slow() -> None:
    of = found(replace(KHZ, bandwidth=1.0))
    by_name = {each.name: each for each in of.placements}
    assert by_name[FOUND].throughput == by_name[ONE].throughput > of.throughput  # type: ignore[operator]
    assert by_name[FOUND].bytes == 0


def test_the_search_is_never_worse_and_is_what_it_says() -> None:
    """Its placement, estimated alone, has the throughput that is told of it."""
    network = replace(KHZ, devices=3, bandwidth=200.0, latency=0.01)
    traffic = count(lower(chain((8, 3, 6, 2, 7))), rows(3))
    of = estimate("chain", traffic, RULES, network, 16, 2)
    best = compared(of, traffic, RULES, network, 16, 2).placements[-1]
    again = estimate("chain", traffic, RULES, network, 16, 2, at=best.where)
    assert best.throughput == again.throughput >= of.throughput
    assert {n.name: n.devices for n in again.per_node} == best.where
