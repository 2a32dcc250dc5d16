"""Collective operations over a transport's `send` and `receive`; all ranks call them in the same order.

The ring is that of Patarasuk and Yuan (2009): each rank sends and receives 2 (N - 1) / N of the bytes, in
2 (N - 1) steps. A range is added up along the ring and its sum copied, so that all ranks end with the same
bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from amphw.replicas.transport import Transport


def ranges(size: int, ranks: int) -> list[slice]:
    """`size` numbers in as many contiguous ranges as there are ranks, equal to within one."""
    ends = [size * k // ranks for k in range(ranks + 1)]
    return [slice(a, b) for a, b in zip(ends, ends[1:], strict=False)]


def all_reduce(transport: Transport, values: np.ndarray) -> None:
    """In place, the sum of all ranks' contiguous one-dimensional arrays, which have the same length."""
    t, n = transport, transport.ranks
    if n == 1:
        return
    parts, after, before = ranges(values.size, n), (t.rank + 1) % n, (t.rank - 1) % n
    room = np.empty(max(p.stop - p.start for p in parts), values.dtype)
    for step in range(n - 1):  # afterwards this rank has the whole sum of part rank + 1
        mine, theirs = parts[(t.rank - step) % n], parts[(t.rank - step - 1) % n]
        t.send(after, values[mine])
        got = room[: theirs.stop - theirs.start]
        t.receive(before, got)
        values[theirs] += got
    for step in range(n - 1):
        mine, theirs = parts[(t.rank + 1 - step) % n], parts[(t.rank - step) % n]
        t.send(after, values[mine])
        t.receive(before, values[theirs])


def all_gather(transport: Transport, values: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """Every rank's contiguous one-dimensional array; sizes: how long each is, as all know."""
    t, n = transport, transport.ranks
    found = [np.empty(size, values.dtype) for size in sizes]
    found[t.rank][...] = values
    for step in range(n - 1):
        t.send((t.rank + 1) % n, found[(t.rank - step) % n])
        t.receive((t.rank - 1) % n, found[(t.rank - step - 1) % n])
    return found
