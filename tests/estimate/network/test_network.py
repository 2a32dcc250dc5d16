"""Networks of devices: hand-counted ones of a chain of two layers, and laws that hold for every graph."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from amphw.engine.lowering.lower import lower
from amphw.engine.lowering.placing import place
from amphw.engine.parts.stand_in import NullPart
from amphw.estimate.count.traffic import count
from amphw.estimate.network.assemble import apart, placeable
from amphw.estimate.network.network import Network, estimate
from amphw.estimate.outcome import Outcome, outcome_json
from amphw.ir.device import Capabilities
from amphw.ir.errors import AmphwError
from amphw.ir.update import UpdateRule
from tests.estimate.chain import chain, rows
from tests.graphs.cases import Case, each_case

RULES = {"*": UpdateRule()}
KHZ = Network(1e3)
MANY = 10**6  # instances in flight, so that their number limits nothing

# Of an instance of one row, for 4 -> 8 -> 2: products forward and backward (nobody wants the gradient of the
# data), and an update by SGD of three operations a number.
FIRST = 2 * 4 * 8 + 2 * 4 * 8 + 3 * 4 * 8
SECOND = 2 * 8 * 2 + 2 * 2 * 8 * 2 + 3 * 8 * 2


def two(network: Network, keys: int = MANY, replicas: int = 1, instances: int = 1) -> Outcome:
    traffic = count(lower(chain([8, 2])), rows(instances))
    return estimate("chain", traffic, RULES, network, keys, replicas)


def test_each_node_with_parameters_has_a_device_and_its_neighbours_live_with_it() -> None:
    found = two(KHZ)
    assert [d.nodes for d in found.devices] == [["layer0"], ["layer1", "loss"]]
    assert found.devices[0].busy == pytest.approx(FIRST / 1e3)
    loss = next(n for n in found.per_node if n.name == "loss")
    assert found.devices[1].busy == pytest.approx((SECOND + loss.forward.mean + loss.backward.mean) / 1e3)
    assert found.throughput == pytest.approx(1e3 / FIRST)
    assert (found.bottleneck.name, found.bottleneck.of, found.bottleneck.share) == ("device 0", "device", 1.0)


def test_operations_and_memory_of_a_node() -> None:
    first = two(KHZ, keys=10).per_node[0]
    assert (first.name, first.forward.mean, first.backward.mean, first.update) == ("layer0", 64, 64, 96)
    assert (first.memory.value, first.memory.gradient, first.memory.optimiser) == (128, 128, 0)
    assert first.memory.in_flight == 10 * 4 * (4 + 8)  # an input and a result
    adam = estimate("chain", count(lower(chain([8])), rows()), {"*": UpdateRule(optimizer="adam")}, KHZ, 1)
    assert adam.per_node[0].memory.optimiser == 2 * 128


def test_an_edge_carries_activations_there_and_gradients_back() -> None:
    found = two(KHZ)
    edge = {(e.source, e.target): e for e in found.per_edge}
    between = edge["layer0", "layer1"]
    assert (between.activation_bytes.mean, between.weight_bytes, between.links) == (32, 64, ["0 -> 1"])
    assert between.bits_per_s == pytest.approx(8 * 32 * found.throughput) == between.gradient_bits_per_s
    assert between.messages_per_s == pytest.approx(found.throughput)
    assert edge["x", "layer0"].gradient_bits_per_s == 0 and edge["x", "layer0"].links == []
    assert edge["layer1", "loss"].links == []
    assert [(link.name, link.bytes, link.share) for link in found.links] == [
        ("0 -> 1", 32, None),
        ("1 -> 0", 32, None),
    ]


def test_a_slow_link_limits() -> None:
    found = two(replace(KHZ, bandwidth=64.0))
    assert found.throughput == pytest.approx(64 / (8 * 32))
    assert (found.bottleneck.of, found.bottleneck.name) == ("link", "0 -> 1")
    assert [link.share for link in found.links] == [pytest.approx(1.0)] * 2
    assert [link.bits_per_s for link in found.links] == [pytest.approx(64.0)] * 2


def test_few_instances_in_flight_wait_for_their_longest_chain() -> None:
    found = two(replace(KHZ, bandwidth=1e6, latency=10.0), keys=2)
    loss = found.per_node[-1]
    busy = (FIRST - 96 + SECOND - 48 + loss.forward.mean + loss.backward.mean) / 1e3  # updates are beside it
    chain_seconds = busy + 2 * 10.0 + 2 * 8 * 32 / 1e6
    assert found.chain is not None and found.chain.mean == pytest.approx(chain_seconds)
    assert found.bottleneck.of == "keys"
    assert found.throughput == pytest.approx(2 / chain_seconds)


def test_one_device_has_no_links() -> None:
    found = two(replace(KHZ, devices=1, bandwidth=1.0, latency=1.0))
    assert found.links == [] and len(found.devices) == 1
    assert found.throughput == pytest.approx(1 / found.devices[0].busy)


@each_case()
def test_nodes_are_where_training_puts_them(case: Case) -> None:
    """An estimate of a network is one of the placement that a run on such devices has."""
    graph = case.build()
    traffic = count(apart(graph, placeable(graph)), case.instances())
    for devices in (1, 2, 3):
        parts = {str(d): NullPart(Capabilities(f"null{d}", "null")) for d in range(devices)}
        trained = place(graph, lower(graph), parts, RULES, {}, host=False)
        found = estimate(case.name, traffic, RULES, replace(KHZ, devices=devices), 1)
        where = {n.name: n.devices for n in found.per_node if n.memory.value}
        assert where == {name: [int(trained.of[name])] for name in where}


def test_replicas_share_instances() -> None:
    one, three = two(KHZ, instances=6), two(KHZ, replicas=3, instances=6)
    assert len(three.devices) == 6 and three.per_node[0].devices == [0, 1, 2]
    assert three.devices[0].busy == pytest.approx(one.devices[0].busy / 3)
    assert three.throughput > 2 * one.throughput
    edge = next(e for e in three.per_edge if e.source == "layer0")
    assert len(edge.links) == 3  # each replica sends to the one of its instances
    # The only loss lives with one of the replicas of layer1; the data are where they are needed.
    assert sum(link.bytes for link in three.links) == pytest.approx(2 * 32 + 2 * 8 * 2 / 3)


def test_a_placement_that_is_given_is_kept() -> None:
    traffic = count(lower(chain([8, 8, 2])), rows())
    network = replace(KHZ, devices=3)
    where = {"layer0": [2], "layer1": [0], "layer2": [2], "loss": [0]}
    found = estimate("chain", traffic, RULES, network, MANY, at=where)
    assert {n.name: n.devices for n in found.per_node} == where
    assert [d.nodes for d in found.devices] == [["layer1", "loss"], [], ["layer0", "layer2"]]
    assert found.devices[1].busy == 0 and {link.name for link in found.links} == {"0 -> 2", "2 -> 0"}
    own = estimate("chain", traffic, RULES, network, MANY)
    again = estimate("chain", traffic, RULES, network, MANY, at={n.name: n.devices for n in own.per_node})
    assert again.throughput == pytest.approx(own.throughput) and again.links == own.links


def test_bytes_of_an_edge_are_told_by_link() -> None:
    edge = next(e for e in two(KHZ).per_edge if e.source == "layer0")
    assert edge.link_bytes == {"0 -> 1": 32}
    three = next(e for e in two(KHZ, replicas=3, instances=6).per_edge if e.source == "layer0")
    assert three.links == list(three.link_bytes) and sum(three.link_bytes.values()) == pytest.approx(32)


def test_what_is_not_put_to_use_is_time() -> None:
    assert two(replace(KHZ, use=0.5)).throughput == pytest.approx(two(KHZ).throughput / 2)


def test_a_device_that_is_too_small_says_by_how_many_bytes() -> None:
    needed = 2 * 128 + 10 * 48
    assert two(replace(KHZ, memory=needed), keys=10).devices[0].memory == needed
    with pytest.raises(AmphwError, match=r"device 0 is too small by 1 B: layer0 with 10 instances"):
        two(replace(KHZ, memory=needed - 1), keys=10)


def test_a_node_goes_where_there_is_room() -> None:
    traffic = count(lower(chain([10, 1, 6, 6])), rows())
    free = estimate("chain", traffic, RULES, replace(KHZ, devices=2), 1)
    assert [d.nodes[:2] for d in free.devices] == [["layer0", "layer1"], ["layer3", "layer2"]]
    room = free.devices[0].memory - 1
    full = estimate("chain", traffic, RULES, replace(KHZ, devices=2, memory=room), 1)
    assert [d.nodes[:2] for d in full.devices] == [["layer0", "layer2"], ["layer3", "layer1"]]


@pytest.mark.parametrize(
    "wrong, complaint",
    [
        ({"flops": 0.0}, "flops is 0.0: expected a finite number above 0"),
        ({"flops": -1.0}, "flops is -1.0"),
        ({"flops": float("inf")}, "flops is inf"),
        ({"flops": float("nan")}, "flops is nan"),
        ({"bandwidth": 0.0}, "bandwidth is 0.0"),
        ({"memory": -5.0}, "memory is -5.0"),
        ({"latency": -1.0}, "latency is -1.0"),
        ({"latency": float("nan")}, "latency is nan"),
        ({"devices": 0}, "a network of 0 devices"),
        ({"use": 0.0}, "rate in use is 0.0"),
        ({"use": 1.5}, "rate in use is 1.5"),
    ],
)
def test_networks_that_cannot_be(wrong: dict[str, float], complaint: str) -> None:
    with pytest.raises(AmphwError, match=complaint):
        Network(**{"flops": 1e9, **wrong})  # type: ignore[arg-type]


def test_nothing_in_flight_and_no_replicas() -> None:
    with pytest.raises(AmphwError, match="instances in flight: 0, expected 1 or more"):
        two(KHZ, keys=0)
    with pytest.raises(AmphwError, match="replicas: 0, expected 1 or more"):
        two(KHZ, replicas=0)


def test_a_graph_without_parameters_has_nothing_to_spread() -> None:
    with pytest.raises(AmphwError, match="graph 'chain' has no node with parameters"):
        estimate("chain", count(lower(chain([])), rows()), RULES, KHZ, 1)


@each_case()
def test_faster_devices_and_links_never_slow_a_model_down(case: Case) -> None:
    graph = case.build()
    if not graph.parameterised:
        pytest.skip("nothing to spread")
    traffic = count(apart(graph, placeable(graph)), case.instances())
    for devices, replicas in ((None, 1), (2, 1), (3, 2)):
        network = Network(1e9, devices, bandwidth=1e8, latency=1e-6)
        slow = estimate(case.name, traffic, RULES, network, 4, replicas)
        assert slow.throughput == pytest.approx(1 / slow.bottleneck.seconds)
        assert slow.throughput <= 1 / max(d.busy for d in slow.devices) * (1 + 1e-9)
        assert sum(d.busy for d in slow.devices) == pytest.approx(sum(n.busy for n in slow.per_node))
        for faster in (
            replace(network, flops=2e9),
            replace(network, bandwidth=2e8),
            replace(network, latency=0),
        ):
            assert estimate(case.name, traffic, RULES, faster, 4, replicas).throughput >= slow.throughput
        assert json.dumps(outcome_json(slow), allow_nan=False)
