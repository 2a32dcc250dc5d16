"""Collective operations over a transport's `send` and `receive`; all ranks call them in the same order.

The ring is that of Patarasuk and Yuan (2009): each rank sends and receives 2 (N - 1) / N of the bytes, in
2 (N - 1) steps. A range is added up along the ring and its sum copied, so that all ranks end with the same
bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from amphw.replicas.transport import Transport
from amphw.replicas.wire import coded_kind, decode, encode


def ranges(size: int, ranks: int) -> list[slice]:
    """`size` numbers in as many contiguous ranges as there are ranks, equal to within one."""
    ends = [size * k // ranks for k in range(ranks + 1)]
    return [slice(a, b) for a, b in zip(ends, ends[1:], strict=False)]


def ring(rank: int, ranks: int) -> Iterator[tuple[int, int, bool]]:
    """The steps of a rank: which range it sends to the next one, which it receives from the one before, and
    whether that is added to its own or takes its place."""
    for step in range(ranks - 1):  # afterwards this rank has the whole sum of range rank + 1
        yield (rank - step) % ranks, (rank - step - 1) % ranks, True
    for step in range(ranks - 1):
        yield (rank + 1 - step) % ranks, (rank - step) % ranks, False


def all_reduce(transport: Transport, values: np.ndarray, wire: str = "full") -> None:
    """In place, the sum of all ranks' contiguous one-dimensional arrays, which have the same length.

    wire: as in `wire.encode`; all ranks end with the same bits all the same.
    """
    t, n = transport, transport.ranks
    parts, after, before = ranges(values.size, n), (t.rank + 1) % n, (t.rank - 1) % n
    room = np.empty(max(p.stop - p.start for p in parts), coded_kind(values.dtype, wire))
    for mine, theirs, adds in ring(t.rank, n):
        coded = encode(values[parts[mine]], wire)
        t.send(after, coded)
        into, got = values[parts[theirs]], room[: parts[theirs].stop - parts[theirs].start]
        if not adds and wire != "full":
            # Whoever sends a sum keeps what the others get, which is coded without another loss.
            values[parts[mine]] = decode(coded, wire, values.dtype)
        t.receive(before, got)
        if adds:
            into += decode(got, wire, values.dtype)
        else:
            into[...] = decode(got, wire, values.dtype)


def ring_traffic(size: int, extent: slice, rank: int, ranks: int) -> tuple[int, int]:
    """How many of the numbers `extent` of an `all_reduce` of `size` a rank sends and how many it receives."""
    return _ring_traffic(size, extent.start, extent.stop, rank, ranks)


@lru_cache(maxsize=4096)
def _ring_traffic(size: int, start: int, stop: int, rank: int, ranks: int) -> tuple[int, int]:
    """It is asked with every exchange, of every parameter, and changes with none."""
    parts, extent = ranges(size, ranks), slice(start, stop)
    sent = received = 0
    for mine, theirs, _ in ring(rank, ranks):
        sent += _shared(parts[mine], extent)
        received += _shared(parts[theirs], extent)
    return sent, received


def _shared(a: slice, b: slice) -> int:
    return max(0, min(a.stop, b.stop) - max(a.start, b.start))


def all_gather(transport: Transport, values: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """Every rank's contiguous one-dimensional array; sizes: how long each is, as all know."""
    t, n = transport, transport.ranks
    found = [np.empty(size, values.dtype) for size in sizes]
    found[t.rank][...] = values
    for step in range(n - 1):
        t.send((t.rank + 1) % n, found[(t.rank - step) % n])
        t.receive((t.rank - 1) % n, found[(t.rank - step - 1) % n])
    return found
