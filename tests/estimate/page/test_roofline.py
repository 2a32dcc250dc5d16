"""Rooflines: points are where operations and bytes put them, and none lies above a roof."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from amphw.cpu_runtime import planes
from amphw.estimate.outcome import Outcome
from amphw.estimate.page.roofline import ROOFS, device_rates, link_rates, points, roofline
from tests.estimate.page.outcomes import LINKED, outcome

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")


def test_a_nodes_bytes_are_those_on_the_link_that_carries_most() -> None:
    found = outcome([8, 2], compare=False)
    first, second, loss = points(found)
    # 32 bytes of activations there, and as many of gradients on another link back.
    assert first.intensity == pytest.approx((64 + 64 + 96) / 32)
    assert first.rate == pytest.approx((64 + 64 + 96) * found.throughput)
    assert second.node == "layer1" and loss.intensity == math.inf


def test_roofs_are_what_devices_and_links_do() -> None:
    found = outcome([8, 2], replace(LINKED, use=0.5), compare=False)
    assert (device_rates(found), link_rates(found)) == ([5e8], [1e9])
    assert link_rates(outcome([8, 2], replace(LINKED, bandwidth=None), compare=False)) == []


@pytest.mark.parametrize("replicas", (1, 3))
@pytest.mark.parametrize("devices", (1, 2, 4, None))
@pytest.mark.parametrize("bandwidth", (1e6, 1e9, 1e12))
def test_no_point_lies_above_a_roof(bandwidth: float, devices: int | None, replicas: int) -> None:
    network = replace(LINKED, bandwidth=bandwidth, devices=devices)
    found: Outcome = outcome([16, 5, 16, 3], network, 64, replicas, compare=False)
    for point in points(found):
        assert point.rate <= min(1e9, point.intensity * bandwidth / 8) * (1 + 1e-6), point


def test_of_many_rates_the_highest_and_the_lowest_are_roofs() -> None:
    found = outcome([8] * 6, compare=False)
    slower = [replace(device, roof=device.roof / (1 + k)) for k, device in enumerate(found.devices)]
    rates = device_rates(replace(found, devices=slower))
    assert len(rates) == ROOFS and (rates[0], rates[-1]) == (1e9, pytest.approx(1e9 / 6, rel=1e-2))
    drawn = roofline(replace(found, devices=slower), 1080)
    assert drawn.count('class="roof"') == len(rates) + 1


def test_every_point_is_drawn_with_its_name() -> None:
    found = outcome([16, 16, 16, 16], compare=False)
    drawn = roofline(found, 1080)
    assert drawn.count("<circle") == len(points(found))
    assert all(f">{point.node}</text>" in drawn for point in points(found))
