"""What bounds a throughput is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amphw.cpu_runtime import planes
from amphw.estimate.limit import limit_of, no_room
from amphw.estimate.network import Network
from amphw.ir.errors import AmphwError
from tests.estimate.test_network import KHZ, MANY, two

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
    from tests.estimate.test_events import two as both

    found, _ = both(network, keys)
    raised = replace(found, throughput=2 * found.throughput)  # so that what is played is the lesser
    assert limit_of(raised).of == of == limit_of(two(network, keys)).of


def test_the_first_device_without_room_is_enough() -> None:
    with pytest.raises(AmphwError) as raised:
        two(replace(KHZ, memory=1.0), keys=MANY)
    found = no_room(raised.value)
    assert found.of == "memory" and found.words.startswith("device 0 is too small by ")
    assert "device 1" not in found.words
