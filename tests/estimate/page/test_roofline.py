"""Rooflines: points are where operations and bytes put them, and none lies above a roof."""

from __future__ import annotations

import math
import re
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


@pytest.mark.parametrize(
    "part, size",
    [(2.0, 64), (0.5, 32), (0.0, 32), (None, 32)],
)
def test_gradients_are_as_many_bytes_as_go_back(part: float | None, size: int) -> None:
    """Beside 32 bytes there, which are most where fewer return."""
    found = outcome([8, 2], compare=False)
    edges = [
        replace(edge, gradient_bits_per_s=None if part is None else part * edge.bits_per_s)
        for edge in found.per_edge
    ]
    first, second, _ = points(replace(found, per_edge=edges))
    assert first.intensity == pytest.approx((64 + 64 + 96) / size)
    own = next(node for node in found.per_node if node.name == "layer1")
    assert second.intensity == pytest.approx((own.forward.mean + own.backward.mean + own.update) / size)


def test_gradients_join_what_goes_the_same_way() -> None:
    """Of one edge from layer0 to layer1, and one from layer1 to layer0 with a quarter of gradients."""
    found = outcome([8, 2], compare=False)
    (there,) = (edge for edge in found.per_edge if edge.links)
    (back_link,) = (link.name for link in found.links if link.name not in there.links)
    bits = 2.0
    back = replace(
        there,
        source="layer1",
        target="layer0",
        links=[back_link],
        link_bytes={back_link: 100.0},
        bits_per_s=bits,
        gradient_bits_per_s=bits / 4,
    )
    for mostly, part, size in ((back, 1.0, 132), (back, None, 100), (back, 0.5, 116)):
        own = replace(there, bits_per_s=bits, gradient_bits_per_s=None if part is None else part * bits)
        first = points(replace(found, per_edge=[own, mostly]))[0]
        assert first.intensity == pytest.approx((64 + 64 + 96) / size, rel=1e-9)


def frame(drawn: str) -> tuple[float, float]:
    """The left and the lower border of the plot."""
    axes = [tuple(map(float, found)) for found in re.findall(LINE + ' class="axis"', drawn)]
    return min(x1 for x1, *_ in axes), max(y2 for *_, y2 in axes)


LINE = r'<line x1="([\d.-]+)" y1="([\d.-]+)" x2="([\d.-]+)" y2="([\d.-]+)"'


@pytest.mark.parametrize("width", (1080, 340))
@pytest.mark.parametrize("bandwidth", (1e3, 1e6, 1e9, 1e15))
def test_a_slope_begins_at_the_left_and_ends_at_the_roof(bandwidth: float, width: int) -> None:
    drawn = roofline(outcome([16, 5], replace(LINKED, bandwidth=bandwidth), compare=False), width)
    left, bottom = frame(drawn)
    slope, level = ([float(x) for x in found] for found in re.findall(LINE + ' class="roof"', drawn))
    assert slope[0] == left and slope[1] < bottom
    assert slope[2:] == level[:2] and level[1] == level[3] and level[2] > level[0]


@pytest.mark.parametrize("width", (1080, 340))
def test_the_slope_of_a_slow_link_begins_at_the_lower_border(width: int) -> None:
    """It would be below the plot at the left. Parallel to the faster one's, as far as decades are equal."""
    found = outcome([8, 2], compare=False)
    there, back = found.links
    assert there.share and back.share
    drawn = roofline(replace(found, links=[there, replace(back, share=1e6 * back.share)]), width)
    left, bottom = frame(drawn)
    fast, slow, level = ([float(x) for x in found] for found in re.findall(LINE + ' class="roof"', drawn))
    assert fast[0] == left and fast[1] < bottom
    assert slow[0] > left and slow[1] == pytest.approx(bottom, abs=0.11)
    assert slow[3] == level[1] == fast[3]  # both end at the roof
    steep = [(each[1] - each[3]) / (each[2] - each[0]) for each in (fast, slow)]
    assert steep[0] == pytest.approx(steep[1], rel=0.01)


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
