"""Drawings of networks: every device and link, up to a number, and a word on what is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amphw.cpu_runtime import planes
from amphw.estimate.outcome import LinkOutcome, Outcome
from amphw.estimate.page.map import DEVICES, WIRES, left_out, network_map
from tests.estimate.page.outcomes import LINKED, outcome

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")


def full(devices: int) -> Outcome:
    """Everybody sends to everybody."""
    found = outcome([8] * devices, compare=False)
    pairs = [(a, b) for a in range(devices) for b in range(devices) if a != b]
    links = [LinkOutcome(f"{a} -> {b}", a, b, 8.0 + a, 1e6 * (1 + a), 0.01 * (1 + a)) for a, b in pairs]
    assert found.played is not None
    waits = {link.name: 1e-6 for link in links}
    played = replace(found.played, link_busy=dict.fromkeys(waits, 0.1), link_waited=waits)
    edges = [replace(edge, links=[], link_bytes={}) for edge in found.per_edge]
    return replace(found, links=links, played=played, per_edge=edges)


@pytest.mark.parametrize("devices", (1, 2, 5, 6))
def test_small_networks_are_complete(devices: int) -> None:
    found = full(devices)
    drawn = network_map(found, 1080)
    assert all(f">device {d}</text>" in drawn for d in range(devices))
    assert drawn.count('class="wire"') + drawn.count('class="wire hot"') == devices * (devices - 1) // 2
    assert left_out(found) == (0, 0)


def test_large_networks_are_cut_to_what_carries_most() -> None:
    found = full(DEVICES + 4)
    drawn = network_map(found, 1080)
    assert drawn.count(">device ") == DEVICES and ">device 0<" not in drawn
    pairs = (DEVICES + 4) * (DEVICES + 3) // 2
    assert left_out(found) == (4, pairs - WIRES)


def test_links_that_nothing_crosses_are_left_out() -> None:
    found = full(5)
    links = [replace(link, bytes=0.0) if 3 in (link.source, link.target) else link for link in found.links]
    idle = replace(found, links=links)
    drawn = network_map(idle, 1080)
    assert drawn.count('class="wire"') + drawn.count('class="wire hot"') == 4 * 3 // 2
    assert ">device 3</text>" in drawn
    assert left_out(idle) == (0, 0)  # these are told apart from those for which there is no room


def test_directions_that_differ_are_told_apart() -> None:
    found = outcome([8, 8], compare=False)
    there, back = found.links
    same = network_map(found, 1080)
    other = network_map(replace(found, links=[there, replace(back, bytes=2 * back.bytes)]), 1080)
    assert "↓" not in same and "↓" in other and "↑" in other
    one_way = network_map(replace(found, links=[there]), 1080)
    assert one_way.count(" head") == 1 < same.count(" head")


def test_what_limits_is_marked() -> None:
    """Everything that is as busy as the bottleneck, here the links there and back."""
    assert 'class="box hot"' in network_map(outcome([8, 8], compare=False), 1080)
    assert 'class="wire hot"' in network_map(
        outcome([8, 8], replace(LINKED, bandwidth=1e6), compare=False), 1080
    )


def test_many_nodes_of_a_device_are_shortened() -> None:
    found = outcome([8] * 40, replace(LINKED, devices=1), compare=False)
    for width in (1080, 340):
        assert " more" in network_map(found, width)
