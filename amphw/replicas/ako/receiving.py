"""What becomes of a range of another member's gradients: an update of its own, or a part of the next one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from amphw.ir.exchange import NodeGradient
from amphw.ir.received import Received
from amphw.ir.update import UpdateRule
from amphw.replicas.ako.flat import Flat
from amphw.replicas.ako.message import Message


def ranges(flat: Flat, messages: Iterable[Message]) -> Iterator[Received]:
    """What of which parameter messages have, in their order."""
    for message in messages:
        if message.values is None:
            continue
        for piece in flat.inside(message.layout.part(message.partition)):
            rows, updates = message.counts[piece.node].tolist()
            values = message.values[piece.at]
            yield Received(flat.nodes[piece.node], piece.name, piece.inside, values, rows, updates)


class Joined:
    """Ranges that join the next update: its gradient is then the mean over all rows, its own and received,
    of which each number has as many as came for it."""

    def __init__(self, flat: Flat, rules: Mapping[str, UpdateRule]):
        self._flat, self._rules = flat, rules
        self._sums = np.zeros(flat.size, flat.kind)
        self._rows = np.zeros(flat.size, np.int64)

    def add(self, message: Message) -> None:
        if message.values is None:
            return
        part = message.layout.part(message.partition)
        self._sums[part] += message.values
        for piece in self._flat.inside(part):
            self._rows[part][piece.at] += message.counts[piece.node, 0]

    def into(self, gradients: Mapping[str, NodeGradient]) -> bool:
        """In place: what nodes apply next -> whether anything had been received.

        Whatever a node divides by, the result is the mean over the rows of each number, or the sum where its
        rule takes sums.
        """
        joined = False
        for number, node in enumerate(self._flat.nodes):
            pieces = [piece for piece in self._flat.pieces if piece.node == number]
            most = max((int(self._rows[piece.at].max(initial=0)) for piece in pieces), default=0)
            if not most:
                continue
            given, mean = gradients[node], self._rules[node].reduce == "mean"
            rows = given.rows or most
            for piece in pieces:
                gradient = given.arrays[piece.name]
                received, counts = (a[piece.at].reshape(gradient.shape) for a in (self._sums, self._rows))
                gradient += received
                if mean:
                    gradient *= (rows / np.maximum(given.rows + counts, 1)).astype(gradient.dtype)
            given.rows, joined = rows, True
        self._sums[:] = 0
        self._rows[:] = 0
        return joined
