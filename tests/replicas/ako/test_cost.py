"""How many partitions there are, from the rate of gradients and what a rank can send."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from amphw.replicas.ako.cost import Measured, partitions_for, probed
from amphw.replicas.live import Live
from amphw.replicas.simulated import Machines
from amphw.replicas.threads import ThreadGroup
from amphw.replicas.transport import Transport


@pytest.mark.parametrize(
    ("rate", "size", "ranks", "bandwidth", "expected"),
    [
        (10.0, 1e6, 4, 30e6, 1),
        (10.0, 1e6, 4, 29e6, 2),
        (10.0, 1e6, 9, 1e6, 80),
        (0.1, 1.0, 2, 1e9, 1),
    ],
)
def test_the_network_is_busy_and_not_overloaded(
    rate: float, size: float, ranks: int, bandwidth: float, expected: int
) -> None:
    p = partitions_for(rate, size, ranks, bandwidth)
    assert p == expected
    assert rate * size * (ranks - 1) / p <= bandwidth


def test_partitions_follow_the_rate_once_it_has_drifted() -> None:
    now = 0.0
    measured = Measured(bandwidth=1e6, seconds=1.0, clock=lambda: now)

    def rounds(a_second: float, number: int) -> list[int]:
        nonlocal now
        found = []
        for _ in range(number):
            now += 1 / a_second
            if (p := measured.round(1e6, 2)) is not None:
                found.append(p)
        return found

    assert rounds(4.0, 20) == [4]
    assert rounds(4.5, 20) == []  # not worth it
    assert len(rounds(8.0, 79)) <= 1  # to cut anew has a cost of its own
    assert rounds(8.0, 240)[-1] == 8
    measured.pause()
    now += 100.0  # validation
    assert rounds(8.0, 40) == []


def test_what_two_seconds_show_of_a_rank_that_is_held_cuts_nothing_anew() -> None:
    """On a link that takes a second for a gradient: rates that differ by several times, time after time."""
    now = held = 0.0
    measured = Measured(bandwidth=1e6, seconds=2.0, clock=lambda: now)
    found = []
    for number in range(400):
        slow = number // 20 % 2
        now += 0.3 if slow else 0.05
        held += 0.15 if slow else 0.0
        if (p := measured.round(1e6, 2, held=held)) is not None:
            found.append(p)
    assert len(found) <= 3 and max(found[1:], default=0) <= 12, found


def test_a_rank_that_its_link_holds_up_computes_faster_than_it_makes_rounds() -> None:
    """It makes 8 rounds a second where nothing holds it, and with half as many partitions as that needs 4."""
    now = held = 0.0
    measured = Measured(bandwidth=1e6, seconds=1.0, clock=lambda: now)
    p = 4
    for _ in range(60):
        slower = max(1.0, 8 / p)
        now += slower / 8
        held += (slower - 1) / 8
        p = measured.round(1e6, 2, held=held) or p
    assert p == 8
    now += 60.0
    held += 60.0
    assert (measured.round(1e6, 2, held=held) or p) <= 80  # not as many as rounds


@pytest.mark.parametrize("slower", [1.15, 1.5, 3.0])
def test_a_slow_peer_asks_for_no_more_partitions_than_the_rank_could_fill(slower: float) -> None:
    """The bound holds a rank that makes 8 rounds a second until the slow one has made its own."""
    now = held = sent = 0.0
    measured = Measured(bandwidth=1e6, seconds=1.0, clock=lambda: now)
    found = []
    for _ in range(400):
        now += slower / 8
        held += (slower - 1) / 8
        sent += 1e6 / (found[-1] if found else 4)
        if (p := measured.round(1e6, 2, sent, held=held)) is not None:
            found.append(p)
    assert found == [8]


def test_what_a_busy_link_carries_is_its_bandwidth() -> None:
    """Only where something waits after each round of an interval."""
    now = sent = 0.0
    measured = Measured(bandwidth=4e6, seconds=1.0, clock=lambda: now)

    def rounds(number: int, bytes_a_second: float, waits: Callable[[int], bool]) -> list[int]:
        nonlocal now, sent
        found = []
        for k in range(number):
            now += 0.25
            sent += bytes_a_second * 0.25
            if (p := measured.round(1e6, 2, sent, waits(k))) is not None:
                found.append(p)
        return found

    assert rounds(8, 1e6, lambda k: k % 2 == 0) == [1]
    assert rounds(8, 1e6, lambda k: True)[-1] == 4
    assert rounds(8, 2e6, lambda k: True)[-1] == 2
    assert rounds(8, 2e6, lambda k: True) == []


@pytest.mark.parametrize(("ranks", "nic"), [(2, 1e6), (4, 1e6), (4, 1e8)])
def test_a_probe_finds_what_an_interface_sends(ranks: int, nic: float) -> None:
    found = {}

    def probe(transport: Transport) -> None:
        found[transport.rank] = probed(transport)

    Live(ranks, Machines(range(ranks), nic=nic)).run(probe)
    assert list(found.values()) == pytest.approx([nic] * ranks, rel=0.3)


def test_memory_is_so_fast_that_gradients_go_whole() -> None:
    assert probed(ThreadGroup(1).transports()[0]) == math.inf
    assert partitions_for(100.0, 1e6, 4, math.inf) == 1
