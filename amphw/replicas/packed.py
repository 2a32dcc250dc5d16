"""Many arrays as few messages: what goes around the ring at once, and which part of it is whose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amphw.replicas.collectives import all_reduce, ring_traffic
from amphw.replicas.transport import Transport
from amphw.replicas.wire import coded_kind


@dataclass
class Traffic:
    """Bytes that one rank has sent and received so far, by parameter (NODE.NAME), and in how many steps.

    touched: of tables that are exchanged by rows, the share of rows that had a gradient, added up over steps.
    wire: how gradients and moves go over the wire (`replicas.wire`). waited: seconds within exchanges in
    which this rank waited for messages of others. note: is told what went on beside the pump, for the trace:
    a name, and from when until when, in seconds of `perf_counter`. Whoever calls it is the only thread that
    counts traffic meanwhile.
    """

    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    touched: dict[str, float] = field(default_factory=dict)
    waited: float = 0.0
    wire: str = "full"
    note: Callable[[str, float, float], None] = lambda what, began, ended: None

    def count(self, name: str, sent: int, received: int) -> None:
        self.sent[name] = self.sent.get(name, 0) + sent
        self.received[name] = self.received.get(name, 0) + received

    def moved(self) -> dict[str, int]:
        """Sent and received together."""
        return {name: sent + self.received[name] for name, sent in self.sent.items()}


FEW = 1 << 14
"""Bytes up to which a sum of integers goes from every rank to every other at once."""


def packed(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """As one message: uint8, one array after the other."""
    parts = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays]
    return np.concatenate(parts) if parts else np.empty(0, np.uint8)


def unpacked(message: np.ndarray, parts: Sequence[tuple[np.dtype[Any], int]]) -> list[np.ndarray]:
    """What `packed` has put together, one-dimensional. parts: kinds of numbers, and how many there are."""
    found, at = [], 0
    for kind, size in parts:
        end = at + size * kind.itemsize
        found.append(message[at:end].copy().view(kind))  # a copy, as numbers may lie anywhere
        at = end
    return found


def add_up(transport: Transport, counts: np.ndarray) -> None:
    """In place, the sum of all ranks' one-dimensional arrays of integers, which have the same length.

    Few of them go from every rank to all others at once, which takes the time of one message, where a ring
    takes that of 2 (N - 1). The order in which integers are added up makes no difference.
    """
    assert counts.dtype.kind == "i", counts.dtype
    t = transport
    others = [(t.rank + k) % t.ranks for k in range(1, t.ranks)]
    if counts.nbytes * len(others) > FEW:
        all_reduce(t, counts)
        return
    for other in others:
        t.send(other, counts)
    theirs = np.empty_like(counts)
    for other in reversed(others):
        t.receive(other, theirs)
        counts += theirs


def all_reduce_packed(
    transport: Transport, arrays: Mapping[str, np.ndarray], traffic: Traffic, wire: str = "full"
) -> None:
    """In place, the sums of all ranks' arrays, which have the same names and shapes.

    There is one ring for each type of number.
    """
    for kind in sorted({str(a.dtype) for a in arrays.values()}):
        alike = {name: a for name, a in sorted(arrays.items()) if str(a.dtype) == kind}
        everything = np.concatenate([a.reshape(-1) for a in alike.values()])
        all_reduce(transport, everything, wire)
        at = 0
        for name, a in alike.items():
            extent = slice(at, at + a.size)
            a[...] = everything[extent].reshape(a.shape)
            sent, received = ring_traffic(everything.size, extent, transport.rank, transport.ranks)
            size = coded_kind(a.dtype, wire).itemsize
            traffic.count(name, sent * size, received * size)
            at += a.size
