"""A link with a rate and a latency, in the simulated device's own time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("amaranth")

from amphw.ir.device import LinkRate
from amphw.rtl.verilated.paced import PacedLink
from amphw.rtl.verilated.simulation import Simulation
from tests.rtl.verilated.components import Adder

CLOCK = 50e6
WORDS = np.arange(100, dtype=np.uint16)


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    with Simulation(Adder(), idle="idle") as made:
        yield made


def through(link: PacedLink, words: np.ndarray) -> np.ndarray:
    """All that comes back for words that are offered until the device has them."""
    came: list[np.ndarray] = []
    left = words
    while left.size or sum(c.size for c in came) < words.size:
        accepted, there = link.exchange(left, 100_000)
        left = left[accepted:]
        came.append(there)
    return np.concatenate(came)


@pytest.mark.parametrize("rate", ["1Mb/s", "100Mb/s+20us", "333Mb/s+1us", "10Gb/s"])
@pytest.mark.thorough
def test_what_comes_is_the_same_at_every_speed(simulation: Simulation, rate: str) -> None:
    link = PacedLink(simulation, LinkRate.parse(rate), CLOCK)
    np.testing.assert_array_equal(through(link, WORDS), WORDS + 3)
    assert (link.sent, link.came) == (100, 100)


@pytest.mark.parametrize(
    ("rate", "cycles"),
    [
        # 16 bits take 8 cycles at 50 MHz: all words in, the last one out, 20 us there and back
        ("100Mb/s+20us", 100 * 8 + 8 + 2 * 1000),
        ("100Mb/s", 100 * 8 + 8),
        ("30Mb/s", (100 + 1) * 80 / 3),  # no whole number of cycles
        ("10Gb/s", 100),  # faster than the device, which takes a word a cycle
    ],
)
@pytest.mark.thorough
def test_it_takes_its_time(simulation: Simulation, rate: str, cycles: float) -> None:
    link = PacedLink(simulation, LinkRate.parse(rate), CLOCK)
    through(link, WORDS)
    assert cycles <= link.now <= cycles + 12  # the device's own


def test_nothing_arrives_early(simulation: Simulation) -> None:
    link = PacedLink(simulation, LinkRate.parse("100Mb/s+20us"), CLOCK)
    accepted, came = link.exchange(WORDS[:1], 900)
    assert (accepted, came.size) == (0, 0) and simulation.cycles == 0
    while not came.size:
        accepted, came = link.exchange(WORDS[: 1 - accepted], 500)
    assert came.tolist() == [3] and 2016 <= link.now < 2030


def test_time_that_nothing_happens_in_is_not_simulated(simulation: Simulation) -> None:
    link = PacedLink(simulation, LinkRate.parse("100Mb/s+1s"), CLOCK)
    through(link, WORDS[:2])
    assert link.now >= 2 * CLOCK
    assert simulation.cycles < 5000 and link.now == simulation.cycles + link.skipped
