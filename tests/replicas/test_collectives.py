"""Rings over threads: sums, copies, and how many bytes each rank sends and receives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amphw.ir.errors import AmphwError
from amphw.replicas.collectives import all_gather, all_reduce, ranges, ring_traffic
from amphw.replicas.threads import ThreadGroup, ThreadTransport
from amphw.replicas.transport import RankLostError


def on_each(ranks: int, do: Callable[[ThreadTransport], None]) -> list[ThreadTransport]:
    transports = ThreadGroup(ranks).transports()
    threads = [threading.Thread(target=do, args=(t,)) for t in transports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return transports


@settings(max_examples=40)
@given(st.integers(1, 5), st.integers(0, 23), st.integers(0, 2**31))
def test_a_ring_gives_all_ranks_the_sum_and_the_same_bits(ranks: int, size: int, seed: int) -> None:
    given = np.random.default_rng(seed).normal(size=(ranks, size)).astype(np.float32)
    found = given.copy()
    transports = on_each(ranks, lambda t: all_reduce(t, found[t.rank]))
    np.testing.assert_allclose(found[0], given.sum(axis=0), rtol=1e-5, atol=1e-5)
    assert all(np.array_equal(found[0], other) for other in found)
    sizes = [4 * (part.stop - part.start) for part in ranges(size, ranks)]
    for t in transports:  # all ranges but one, twice
        assert t.sent == 2 * sum(sizes) - sizes[(t.rank + 1) % ranks] - sizes[(t.rank + 2) % ranks]
        assert t.received == 2 * sum(sizes) - sizes[t.rank] - sizes[(t.rank + 1) % ranks] or ranks == 1
    assert sum(t.sent for t in transports) == 2 * (ranks - 1) * 4 * size
    cuts = sorted({0, size // 3, size // 2, size})
    for t in transports:  # what is counted for each piece of an array is what went over the carrier
        pieces = [ring_traffic(size, slice(a, b), t.rank, ranks) for a, b in pairwise(cuts)]
        assert (4 * sum(s for s, _ in pieces), 4 * sum(r for _, r in pieces)) == (t.sent, t.received)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_arrays_of_any_length_are_gathered(sizes: list[int]) -> None:
    found: dict[int, list[np.ndarray]] = {}

    def gather(t: ThreadTransport) -> None:
        found[t.rank] = all_gather(t, np.full(sizes[t.rank], t.rank, np.float32), sizes)

    transports = on_each(len(sizes), gather)
    for t in transports:
        assert [a.tolist() for a in found[t.rank]] == [[float(r)] * n for r, n in enumerate(sizes)]
        assert t.received == 4 * (sum(sizes) - sizes[t.rank])


def test_whoever_waits_for_a_rank_that_fails_is_told() -> None:
    told: list[str] = []

    def do(t: ThreadTransport) -> None:
        if t.rank == 1:
            t.fail(AmphwError("no more"))
            return
        with pytest.raises(RankLostError) as lost:
            all_reduce(t, np.zeros(4, np.float32))
        told.append(str(lost.value))

    on_each(3, do)
    assert told == ["rank 1 has failed: no more"] * 2
