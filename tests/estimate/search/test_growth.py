"""Growth with the number of devices: where it stops, and what is named."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest

from amphw.cpu_runtime import planes
from amphw.engine.lowering.lower import lower
from amphw.estimate.count.traffic import count
from amphw.estimate.network.network import Network, estimate
from amphw.estimate.outcome import Outcome, outcome_json
from amphw.estimate.search.growth import grow
from amphw.ir.errors import AmphwError
from tests.estimate.chain import WIDTH, chain, rows
from tests.estimate.network.test_network import FIRST, KHZ, RULES
from tests.estimate.search.test_whatif import layers

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")

MHZ = KHZ.computing(1e3)


def test_it_goes_in_doublings_with_whole_pipelines() -> None:
    found = grow(layers(8, 2), MHZ, keys=16, most=20)
    assert [(s.devices, s.replicas, s.keys) for s in found.steps] == [
        (1, 1, 16),
        (2, 1, 16),
        (4, 2, 32),
        (8, 4, 64),
        (16, 8, 128),
        (20, 10, 160),
    ]
    assert (found.keys, found.source_bytes) == (16, 4 * WIDTH)
    for step in found.steps:
        assert step.throughput == min(step.calculated or 0.0, step.played or 0.0)


def test_it_grows_with_pipelines() -> None:
    """The loss is small, and all else is replicated."""
    found = grow(layers(64, 64, 64), MHZ, keys=16, most=32)
    by = {s.devices: s.throughput for s in found.steps}
    assert by[32] > 6 * by[4]
    assert found.stops is None and found.why is None
    assert found.ceiling_limit is not None and "loss, which has no parameters" in found.ceiling_limit.words
    assert found.ceiling is not None and by[32] < found.ceiling


def test_it_stops_where_one_node_cannot_be_divided() -> None:
    found = grow(layers(8, 2), MHZ, keys=16, replicas=1, most=64)
    assert found.stops == 2 and found.why is not None
    assert found.why.of == "device" and found.why.nodes[0] == "layer0"
    assert "layer0: a node is on one device" in found.why.words
    assert found.steps[-1].throughput == pytest.approx(1e6 / FIRST, rel=1e-3)
    assert found.ceiling is None  # of replicas that stay as they are


def test_it_stops_where_pipelines_share_a_node() -> None:
    """The loss is as much work as a pipeline's share of the layers, and there is one of it."""
    found = grow(layers(2, 64), MHZ, keys=16, most=512)
    assert found.stops is not None and found.stops < 512 and found.why is not None
    assert "loss: without parameters it has one copy" in found.why.words
    assert found.ceiling is not None and found.steps[-1].throughput < found.ceiling


def test_it_stops_where_a_link_limits() -> None:
    network = replace(MHZ, bandwidth=64e3)
    found = grow(layers(8, 2), network, keys=64, replicas=1, most=16)
    limit = 64e3 / (8 * 32)
    assert found.steps[-1].throughput == pytest.approx(limit, rel=0.02)
    assert found.stops == 1 and found.why is not None  # one device is faster
    assert found.why.of == "link" and found.why.nodes == ["layer0", "layer1"]
    assert "mostly of layer0 -> layer1" in found.why.words


def test_it_stops_where_few_instances_are_in_flight() -> None:
    found = grow(layers(8, 2), replace(MHZ, latency=1.0), keys=2, replicas=1, most=8)
    assert found.why is not None and found.why.of == "keys"
    assert "with 2 instances in flight, devices and links wait for one another" in found.why.words


def test_it_stops_where_one_host_sends_all_data() -> None:
    """An instance of WIDTH numbers comes over one link; between layers of width one goes less."""
    network = replace(MHZ, bandwidth=20 * 1e6 / FIRST * 8 * 4 * WIDTH)
    found = grow(layers(1, 64, 1), network, keys=16, most=512)
    bound = 20 * 1e6 / FIRST
    assert max(s.throughput for s in found.steps) == pytest.approx(bound)
    assert found.why is not None and found.why.of == "source"
    assert "the host's link brings 16 B of data" in found.why.words
    assert found.ceiling == pytest.approx(bound)


@pytest.mark.parametrize(
    "throughputs, stops",
    [
        ([1, 2, 4, 8], None),
        ([1, 2, 2, 8], None),  # a pause
        ([4, 1, 2, 4], 1),
        ([1, 1.05, 1.1025, 1.16], 1),  # never a tenth for a doubling
        ([1, 2, 2.1, 2.2], 2),
    ],
)
def test_growth_is_a_tenth_for_each_doubling(throughputs: list[float], stops: int | None) -> None:
    real = layers(8, 2)

    def told(network: Network, keys: int, replicas: int, events: bool) -> Outcome:
        found = real(network, keys, replicas, events)
        value = throughputs[(network.devices or 1).bit_length() - 1]
        played = replace(found.played, throughput=value) if found.played else None
        return replace(found, throughput=value, played=played)

    assert grow(told, MHZ, keys=1, most=8).stops == stops


def test_networks_without_room_are_told_and_passed_over() -> None:
    room = layers(8, 2)(MHZ.of(2), 16, 1, False).devices[0].memory
    found = grow(layers(8, 2), replace(MHZ, memory=room), keys=16, most=8)
    assert found.steps[0].throughput == 0.0 and found.steps[0].calculated is None
    assert found.steps[0].limit.of == "memory" and "too small by" in found.steps[0].limit.words
    assert found.steps[1].throughput > 0.0
    with pytest.raises(
        AmphwError, match=r"no network has room for the model; with 8 devices: .* too small by"
    ):
        grow(layers(8, 2), replace(MHZ, memory=10.0), keys=16, most=8)


@pytest.mark.thorough
def test_a_thousand_devices() -> None:
    found = grow(layers(32, 32, 32, 32), MHZ, keys=4)
    assert [s.devices for s in found.steps][-2:] == [512, 1000]
    assert found.steps[-1].replicas == 250


def test_it_can_be_written_down() -> None:
    estimator = partial(estimate, "chain", count(lower(chain([8, 2])), rows()), RULES)
    outcome = replace(estimator(MHZ, 4, 1, False), growth=grow(estimator, MHZ, 4, most=4))
    found = json.loads(json.dumps(outcome_json(outcome), allow_nan=False))["growth"]
    assert [step["devices"] for step in found["steps"]] == [1, 2, 4]
