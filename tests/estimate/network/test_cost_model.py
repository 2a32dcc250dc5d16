"""Estimates of placements that are small enough to work out by hand."""

from __future__ import annotations

import pytest

from amphw.estimate.network.cost_model import CostModel, DeviceFacts
from amphw.ir.device import LinkRate
from tests.estimate.chain import model

TIMES = {
    ("layer0", "cpu"): 0.004,
    ("layer0", "a"): 0.001,
    ("layer1", "cpu"): 0.002,
    ("layer1", "a"): 0.003,
}


def two(a: DeviceFacts, handing: float = 0.0, workers: int = 1, keys: int = 1000) -> CostModel:
    return model(TIMES, [a], [8, 2], handing, workers, keys)


def test_the_busiest_device_limits() -> None:
    m = two(DeviceFacts("a", "a"))
    split = m.estimate({"layer0": "a", "layer1": "cpu"})
    assert split.throughput == pytest.approx(500)
    assert (split.bottleneck.name, split.bottleneck.share) == ("cpu", 1.0)
    assert m.estimate({"layer0": "a", "layer1": "a"}).throughput == pytest.approx(250)
    assert m.on_host().throughput == pytest.approx(1 / 0.006)


def test_workers_share_what_is_on_the_host() -> None:
    assert two(DeviceFacts("a", "a"), workers=3).on_host().throughput == pytest.approx(500)


def test_a_message_to_a_device_crosses_its_link_and_comes_back() -> None:
    """An input of 4 and a result of 8 there and back, 8 bytes a firing; nobody wants the data's gradient."""
    link = LinkRate(8e4)  # 10 kB/s
    found = two(DeviceFacts("a", "a", link=link)).estimate({"layer0": "a", "layer1": "cpu"})
    assert (found.bytes_to["a"], found.bytes_from["a"]) == (4 * (4 + 8) + 16, 4 * 8 + 16)
    assert found.bottleneck.name == "to a"
    assert found.bottleneck.seconds == pytest.approx(64 / 1e4)
    beside = two(DeviceFacts("a", "a")).estimate({"layer0": "a", "layer1": "cpu"})
    assert not any(load.of == "link" for load in beside.loads)


def test_neighbours_on_one_device_cross_the_host_too() -> None:
    found = two(DeviceFacts("a", "a")).estimate({"layer0": "a", "layer1": "a"})
    assert found.bytes_to["a"] == 4 * (4 + 8) + 4 * (8 + 2) + 4 * 8


def test_what_neighbours_send_each_other_stays_with_a_device_that_keeps_it() -> None:
    """An input of 4 goes in and a result of 2 comes out, a gradient of it goes in; 8 bytes a message."""
    kept = two(DeviceFacts("a", "a", keeps=True))
    both = kept.estimate({"layer0": "a", "layer1": "a"})
    assert (both.bytes_to["a"], both.bytes_from["a"]) == (4 * (4 + 2) + 16, 4 * 2 + 16)
    one = kept.estimate({"layer0": "a", "layer1": "cpu"})
    assert (one.bytes_to["a"], one.bytes_from["a"]) == (4 * (4 + 8) + 16, 4 * 8 + 16)
    far = DeviceFacts("a", "a", link=LinkRate(1e12, latency=0.1), keeps=True)
    alone = two(far, keys=1).estimate({"layer0": "a", "layer1": "a"})
    # In and out forward, and the same backward; between the layers nothing crosses.
    assert alone.throughput == pytest.approx(1 / (4 * 0.1 + 0.001 + 0.003), rel=1e-6)


def test_latency_limits_what_few_instances_in_flight_can_do() -> None:
    far = DeviceFacts("a", "a", link=LinkRate(1e12, latency=0.1))
    one, many = (two(far, keys=keys).estimate({"layer0": "a", "layer1": "cpu"}) for keys in (1, 1000))
    # Two ways forward, two backward, and the work itself.
    assert one.throughput == pytest.approx(1 / (4 * 0.1 + 0.001 + 0.002), rel=1e-6)
    assert one.bottleneck.of == "keys"
    assert many.bottleneck.name == "cpu"


def test_handing_frames_over_takes_the_host_time() -> None:
    found = two(DeviceFacts("a", "a"), handing=0.01).estimate({"layer0": "a", "layer1": "cpu"})
    assert found.bottleneck.of == "handing" and found.throughput == pytest.approx(50)  # there and back


def test_limits_that_a_placement_violates_are_named() -> None:
    m = two(DeviceFacts("a", "a", memory=100, most_nodes=1))
    both = m.estimate({"layer0": "a", "layer1": "a"})
    assert any("a has 100 B of memory, and layer0, layer1 with 1000" in why for why in both.short)
    assert "a may have 1 node(s), and has 2" in both.short
    assert not m.on_host().short


def test_memory_is_parameters_with_gradients_and_instances_in_flight() -> None:
    found = two(DeviceFacts("a", "a"), keys=10).estimate({"layer0": "a", "layer1": "cpu"})
    kept = 4 * (4 + 8)  # an input and a result
    assert found.memory["a"] == 2 * 4 * (4 * 8) + 10 * kept
