"""Ranks that decide as they go, in simulated time: what is posted, polled and waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from amphw.ir.errors import AmphwError
from amphw.replicas.collectives import all_reduce
from amphw.replicas.live import Live, LiveTransport
from amphw.replicas.simulated import Machines


def ran(works: list[Callable[[LiveTransport], Any]], machines: Machines, scale: float = 1.0) -> list[Any]:
    """What each rank has found."""
    found: dict[int, Any] = {}

    def work(mine: LiveTransport) -> None:
        found[mine.rank] = works[mine.rank](mine)

    Live(len(works), machines, scale).run(work)
    return [found[rank] for rank in range(len(works))]


def waited_for(mine: LiveTransport, source: int = 0) -> tuple[float, list[int]]:
    """When the next message of another one is there, and what it has."""
    while (message := mine.poll(source)) is None:
        mine.nap()
    return mine.now(), message.tolist()


MESSAGE = np.arange(100, dtype=np.uint8)


def test_a_posted_message_takes_its_bytes_over_the_rate_and_the_latency() -> None:
    def posts(mine: LiveTransport) -> list[float]:
        mine.compute(1.0)
        mine.post(1, MESSAGE)
        mine.post(1, MESSAGE[:50])
        return [mine.now(), mine.posted(1)]

    def takes(mine: LiveTransport) -> list[Any]:
        return [waited_for(mine), waited_for(mine), mine.spent.wait, mine.received]

    first, second = ran([posts, takes], Machines([0, 1], nic=100, latency=0.5))
    assert first == [1.0, 2], "nobody waits when posting"
    assert second == [(2.5, MESSAGE.tolist()), (3.0, MESSAGE[:50].tolist()), 3.0, 150]


def test_whoever_computes_finds_a_message_afterwards_and_it_is_posted_no_more() -> None:
    def posts(mine: LiveTransport) -> list[int]:
        mine.post(1, MESSAGE)
        before = mine.posted(1)
        mine.compute(0.9)
        on_its_way = mine.posted(1)
        mine.compute(0.2)
        return [before, on_its_way, mine.posted(1)]

    def computes(mine: LiveTransport) -> list[Any]:
        mine.compute(0.5)
        early = mine.poll(0)
        mine.compute(4.5)
        return [early, waited_for(mine)]

    first, second = ran([posts, computes], Machines([0, 1], nic=100))
    assert first == [1, 1, 0]
    assert second == [None, (5.0, MESSAGE.tolist())]


def test_whoever_naps_wakes_when_its_own_message_has_left() -> None:
    def posts(mine: LiveTransport) -> float:
        mine.post(1, MESSAGE)
        while mine.posted(1):
            mine.nap()
        return mine.now()

    assert ran([posts, lambda mine: None], Machines([0, 1], nic=100))[0] == 1.0


def test_messages_are_handled_at_both_ends_and_stand_for_larger_ones() -> None:
    machines = Machines([0, 1], nic=1000, handling=500)
    _, (there, _) = ran([lambda mine: mine.post(1, MESSAGE), waited_for], machines, scale=10.0)
    assert there == 2.0 + 1.0 + 2.0


def test_collectives_are_as_they_were_written_down() -> None:
    def adds(mine: LiveTransport) -> tuple[float, float]:
        values = np.full(120, mine.rank, np.float32)
        all_reduce(mine, values)
        return float(values[0]), mine.now()

    found = ran([adds] * 3, Machines(range(3), nic=480))
    assert [value for value, _ in found] == [3.0, 3.0, 3.0]
    assert [time for _, time in found] == pytest.approx([4 / 3] * 3)


def test_ranks_that_wait_for_each_other_for_ever_are_named() -> None:
    with pytest.raises(AmphwError, match="rank 0 waits for others, of which none sends anything"):
        ran([waited_for, lambda mine: waited_for(mine, 0)], Machines([0, 1]))


def test_an_error_of_one_rank_ends_all() -> None:
    def fails(mine: LiveTransport) -> None:
        mine.compute(1.0)
        raise RuntimeError("out of order")

    with pytest.raises(RuntimeError, match="out of order"):
        ran([waited_for, fails, lambda mine: mine.compute(5.0)], Machines(range(3)))
