"""What bounds a throughput is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amphw.cpu_runtime import planes
from amphw.estimate.network.busy import Load
from amphw.estimate.network.limit import limit_of, no_room
from amphw.estimate.network.network import Network
from amphw.estimate.outcome import Outcome
from amphw.ir.errors import AmphwError
from tests.estimate.network.test_network import KHZ, MANY, two

SLOW = replace(KHZ, bandwidth=64.0)


def test_a_device_is_named_with_its_longest_node() -> None:
    found = limit_of(two(replace(KHZ, devices=1)))
    assert (found.of, found.name, found.nodes) == ("device", "device 0", ["layer0", "layer1", "loss"])
    assert found.words.startswith("device 0 computes for ")
    assert found.words.endswith(" an instance, mostly layer0: a node is on one device")
    copies = limit_of(two(KHZ, replicas=3))
    assert copies.words.endswith("mostly layer0: one of its 3 copies is there")


def test_a_link_is_named_with_the_edge_that_most_of_it_is_of() -> None:
    found = limit_of(two(SLOW))
    assert (found.of, found.name, found.nodes) == ("link", "0 -> 1", ["layer0", "layer1"])
    assert found.words == "the link 0 -> 1 carries 32 B an instance, mostly of layer0 -> layer1"


def loaded(of: Outcome, link: str) -> Outcome:
    """The same, with that link as the bottleneck."""
    return replace(of, loads=[Load(link, "link", 1.0, 1.0)])


def test_of_a_link_with_gradients_alone_it_is_the_edge_that_they_go_back_on() -> None:
    found = limit_of(loaded(two(SLOW), "1 -> 0"))
    assert found.nodes == ["layer0", "layer1"]
    assert found.words == "the link 1 -> 0 carries 32 B an instance, mostly of layer0 -> layer1"


@pytest.mark.parametrize("gradient", (0.0, None))
def test_an_edge_without_gradients_is_not_on_the_way_back(gradient: float | None) -> None:
    of = two(SLOW)
    edges = [replace(edge, gradient_bits_per_s=gradient) for edge in of.per_edge]
    found = limit_of(loaded(replace(of, per_edge=edges), "1 -> 0"))
    assert (found.nodes, found.words) == ([], "the link 1 -> 0 carries 32 B an instance")
    assert limit_of(loaded(replace(of, per_edge=edges), "0 -> 1")).nodes == ["layer0", "layer1"]


@pytest.mark.parametrize("link", ("0 -> 1", "1 -> 0"))
@pytest.mark.parametrize("first", (True, False))
def test_of_several_edges_it_is_the_one_of_most_bytes(link: str, first: bool) -> None:
    of = two(SLOW)
    more = [
        replace(edge, source="aside", link_bytes={"0 -> 1": 31.0})
        for edge in of.per_edge
        if edge.source == "layer0" and edge.links
    ]
    assert len(more) == 1
    edges = [*more, *of.per_edge] if first else [*of.per_edge, *more]
    assert limit_of(loaded(replace(of, per_edge=edges), link)).nodes == ["layer0", "layer1"]


def test_a_link_of_no_edge_is_named_alone() -> None:
    of = two(SLOW)
    away = [replace(link, name=f"{link.source + 5} -> {link.target + 5}") for link in of.links]
    found = limit_of(loaded(replace(of, links=away), "5 -> 6"))
    assert (found.nodes, found.words) == ([], "the link 5 -> 6 carries 32 B an instance")


def test_too_few_in_flight() -> None:
    found = limit_of(two(replace(KHZ, latency=10.0), keys=2))
    assert (found.of, found.words) == (
        "keys",
        "with 2 instances in flight, devices and links wait for one another",
    )


@pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
@pytest.mark.parametrize(
    "network, keys, of", [(KHZ, 64, "device"), (SLOW, 64, "link"), (replace(KHZ, latency=1.0), 1, "keys")]
)
def test_what_is_played_says_the_same(network: Network, keys: int, of: str) -> None:
    from tests.estimate.play.test_events import two as both

    found, _ = both(network, keys)
    raised = replace(found, throughput=2 * found.throughput)  # so that what is played is the lesser
    assert limit_of(raised).of == of == limit_of(two(network, keys)).of


def test_the_first_device_without_room_is_enough() -> None:
    with pytest.raises(AmphwError) as raised:
        two(replace(KHZ, memory=1.0), keys=MANY)
    found = no_room(raised.value)
    assert found.of == "memory" and found.words.startswith("device 0 is too small by ")
    assert "device 1" not in found.words
