"""What is said of an estimate follows from its numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amphw.estimate.count.traffic import Spread
from amphw.estimate.outcome import Candidate, Change
from amphw.estimate.play.events import Played
from amphw.estimate.sentences import (
    TO_CHANGE,
    accuracy_line,
    idle_links,
    idle_nodes,
    lateness,
    what_it_costs,
    what_limits,
    what_to_change,
    what_would_buy_more,
)
from tests.estimate.network.test_network import FIRST, KHZ, two


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


@pytest.mark.parametrize(
    "network, keys, option",
    [
        (KHZ, 100, "--devices"),
        (replace(KHZ, bandwidth=64.0), 100, "--link"),
        (replace(KHZ, latency=100.0), 2, "--keys"),
    ],
)
def test_what_limits_says_what_to_change(network, keys, option) -> None:
    found = what_to_change(two(network, keys=keys))
    assert option in found and "--compare" in found
    assert [other for other in TO_CHANGE.values() if found.startswith(other)] == [
        TO_CHANGE[two(network, keys=keys).bottleneck.of]
    ]


def test_nodes_with_parameters_that_never_fired_are_named() -> None:
    of = two(KHZ)
    assert idle_nodes(of) == ""
    never = [replace(node, firings=Spread.of([0.0])) for node in of.per_node]
    # The loss, which has no parameters, is no waste.
    assert idle_nodes(replace(of, per_node=never)) == (
        "Never fired on the 1 instances that are counted: layer0, layer1."
    )


def test_how_late_gradients_are_or_why_there_are_none() -> None:
    first, second, loss = two(KHZ).per_node
    played = Played(1.0, 1.0, 1.0, 1, 1, [], {}, {}, [], [], {"layer0": 0.5})
    assert lateness(played, first) == "0.5"
    assert lateness(played, second) == "no gradient"
    assert lateness(played, replace(second, firings=Spread.of([0.0]))) == "never fired"
    assert lateness(played, loss) == "no parameters"


def test_links_that_nothing_crosses_are_counted() -> None:
    of = two(KHZ)
    assert idle_links(of) == "" and len(of.links) == len(of.crossed) == 2
    there, back = of.links
    idle = replace(of, links=[there, replace(back, bytes=0.0)])
    assert idle.crossed == [there]
    assert idle_links(idle).startswith("Left out: 1 link that nothing crosses")
    none = replace(of, links=[replace(there, bytes=0.0), replace(back, bytes=0.0)])
    assert idle_links(none).startswith("Left out: 2 links that nothing crosses")


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
