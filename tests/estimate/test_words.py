"""What is said of an estimate follows from its numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amphw.estimate.outcome import Candidate, Change
from amphw.estimate.words import accuracy_line, what_it_costs, what_limits, what_would_buy_more
from tests.estimate.test_network import FIRST, KHZ, two


@pytest.mark.parametrize(
    "network, keys, said",
    [
        (KHZ, 100, "device 0 (layer0) computes for 224 ms an instance"),
        (replace(KHZ, bandwidth=64.0), 100, "the link 0 -> 1 is busy for 4 s an instance"),
        (
            replace(KHZ, latency=100.0),
            2,
            "an instance's longest chain of messages, over 2 instances in flight",
        ),
    ],
)
def test_the_bottleneck_is_named(network, keys, said) -> None:
    assert said in what_limits(two(network, keys=keys))


def test_what_is_gained_without_the_bottleneck() -> None:
    of = two(replace(KHZ, bandwidth=8 * 32 / 0.112))  # a link has half of the work of the device
    assert FIRST / 1e3 == pytest.approx(0.224)
    words = what_it_costs(of)
    assert "No more than 4.464 instances a second pass." in words
    assert "Without it there would be" in words and "times as many: then " in words


def test_what_gives_more_is_listed_and_the_best_comes_first() -> None:
    of = replace(
        two(KHZ),
        sensitivity=[
            Change("as estimated", 100.0, 90.0),
            Change("devices twice as fast", 200.0, 180.0),
            Change("links of twice the bandwidth", 100.0, 91.0),
            Change("twice as many instances in flight", why="no room"),
        ],
        placements=[Candidate("local search", 2, throughput=300.0, played=270.0)],
    )
    assert what_would_buy_more(of) == [
        "placement: local search: 3 times the throughput, 270/s",
        "devices twice as fast: 2 times the throughput, 180/s",
    ]
    assert what_would_buy_more(two(KHZ)) == [] and accuracy_line(two(KHZ)) == ""
