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
    assert rounds(8.0, 40)[-1] == 8
    measured.pause()
    now += 100.0  # validation
    assert rounds(8.0, 40) == []


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


@pytest.mark.parametrize(("carries", "expected"), [(0.8, 10), (0.3, 8)])
def test_a_link_that_holds_a_rank_carries_less_than_it_was_said_to(carries: float, expected: int) -> None:
    """Unless it carries so little that it must be another rank that is slow. carries: of its bandwidth."""
    now = held = sent = 0.0
    measured = Measured(bandwidth=1e6, seconds=1.0, clock=lambda: now)
    found = []
    for k in range(60):
        slowed = k >= 20
        now += 0.125 * (1.25 if slowed else 1.0)
        held += 0.125 * 0.25 * slowed
        sent += carries * 1e6 * 0.125 * (1.25 if slowed else 1.0)
        if (p := measured.round(1e6, 2, sent, held=held)) is not None:
            found.append(p)
    assert found[0] == 8 and found[-1] == expected


def test_a_link_that_was_slow_for_a_while_is_tried_again() -> None:
    now = held = sent = 0.0
    measured = Measured(bandwidth=1e6, seconds=1.0, clock=lambda: now)
    found = []
    for k in range(400):
        slow = 20 <= k < 60
        now += 0.125 * (1.25 if slow else 1.0)
        held += 0.125 * 0.25 * slow
        sent += 0.6e6 * 0.125
        if (p := measured.round(1e6, 2, sent, held=held)) is not None:
            found.append(p)
    assert found[0] == 8 and max(found) > 12 and found[-1] in (8, 9, 10)
    assert len(found) < 12


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
