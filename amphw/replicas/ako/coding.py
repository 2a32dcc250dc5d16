"""Messages as bytes: a header of integers, the counts of each node, and the values."""

from __future__ import annotations

import numpy as np

from amphw.replicas.ako.message import Layout, Member, Message
from amphw.replicas.wire import coded_kind, decode, encode

_HEADER = 11
"""Integers of 64 bits; in this order: who sends to whom with their incarnations, the layout with its first
round and p, the partition, its rounds, and whether there are values."""


def coded(message: Message, wire: str) -> list[np.ndarray]:
    """Arrays that are packed one after the other; the last one has the values. wire: as in `encode`."""
    m, layout = message, message.layout
    header = [*m.source, *m.to, layout.number, layout.first, layout.partitions, m.partition, m.first, m.last]
    out = [np.array([*header, m.values is not None], np.int64), m.counts.reshape(-1)]
    return out if m.values is None else [*out, encode(m.values, wire)]


def decoded(body: np.ndarray, nodes: int, size: int, wire: str, kind: np.dtype) -> Message:
    """What `coded` has made. nodes, size: of the receiver's gradient. kind: of its numbers. Raises ValueError
    for what it cannot have made of such a gradient."""
    numbers = body[: 8 * (_HEADER + 2 * nodes)].copy().view(np.int64)
    a, b, c, d, number, begins, partitions, partition, first, last, full = numbers[:_HEADER].tolist()
    layout = Layout(number, begins, partitions, size)
    if not 0 <= partition < partitions or first > last:
        raise ValueError(f"there is no partition {partition} of {partitions} of rounds {first} to {last}")
    counts = numbers[_HEADER:].reshape(nodes, 2)
    values = None
    if full:
        values = decode(body[numbers.nbytes :].copy().view(coded_kind(kind, wire)), wire, kind)
        part = layout.part(partition)
        if values.size != part.stop - part.start:
            raise ValueError(f"partition {partition} has {part.stop - part.start} values, not {values.size}")
    return Message(Member(a, b), Member(c, d), layout, partition, first, last, counts, values)
