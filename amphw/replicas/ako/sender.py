"""What a member owes the others, and when it is sent: partitions of sums of gradients, in turn.

In round t a peer i gets partition (i + t) mod p of the sum of all gradients since it last got that partition:
p rounds. So in p consecutive rounds each peer gets all that p gradients add up to, in messages of a p-th of
the parameters, and every element of every gradient reaches every peer exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from amphw.replicas.ako.latest import Latest
from amphw.replicas.ako.message import Layout, Member, Message


class Sender:
    """Pure accounting: it is given gradients, and gives messages in the order in which they are to be sent.

    me, peers: who sends, and to whom. spans: of each node, which numbers of a flattened gradient are its own.
    partitions: p, 1 or more; with 1 every peer gets every gradient whole (all-to-all).
    layout: the present one, in which `peers` are owed. accumulates: False: a message has the gradient of its
    last round alone, and those before it are lost to its receiver (Ako, Figure 13).
    """

    def __init__(
        self,
        me: Member,
        peers: Iterable[Member],
        spans: Sequence[slice],
        partitions: int,
        kind: np.dtype,
        accumulates: bool = True,
    ):
        self.round = 0  # rounds made so far
        self._accumulates = accumulates
        self._me, self._spans, self._kind = me, list(spans), kind
        self._size = max((span.stop for span in self._spans), default=0)
        self._begin(list(peers), partitions, 0)

    def _begin(self, peers: list[Member], partitions: int, number: int) -> None:
        """A layout in which nothing is owed yet."""
        self.peers = peers
        self.layout = Layout(number, self.round + 1, partitions, self._size)
        self._latest = Latest(partitions, self._size, self._kind)
        self._counts = Latest(partitions, 2 * len(self._spans), np.dtype(np.int64))
        self._sent = {(peer, k): self.round for peer in peers for k in range(partitions)}

    def advance(self, gradient: np.ndarray, counts: np.ndarray) -> list[Message]:
        """The next round. gradient: flattened, summed over rows. counts: as in `Message`; a round in which no
        node had rows is one, too, and is announced."""
        self._latest.add(gradient)
        self._counts.add(counts.reshape(-1))
        self.round += 1
        return [self._message(peer, self.layout.turn(peer.number, self.round)) for peer in self.peers]

    def drain(self) -> list[Message]:
        """All that is owed. What follows belongs to another layout, as `resplit` begins one."""
        return self.resplit(self.layout.partitions, self.peers)

    def resplit(self, partitions: int, peers: Iterable[Member]) -> list[Message]:
        """Begin another layout, with as many partitions, for these peers -> what the old one owes to those
        that stay. A peer that has come back is a new one, which is owed nothing of earlier rounds."""
        peers = list(peers)
        owed = [
            self._message(peer, self.layout.turn(peer.number, round))
            for round in range(self.round + 1, self.round + 1 + self.layout.partitions)
            for peer in self.peers
            if peer in peers and self._sent[peer, self.layout.turn(peer.number, round)] < self.round
        ]
        self._begin(peers, partitions, self.layout.number + 1)
        return owed

    def _message(self, peer: Member, partition: int) -> Message:
        first, self._sent[peer, partition] = self._sent[peer, partition] + 1, self.round
        rounds = self.round + 1 - first if self._accumulates else 1
        counts = self._counts.total(rounds, slice(None)).reshape(-1, 2)
        part = self.layout.part(partition)
        inside = [k for k, s in enumerate(self._spans) if s.start < part.stop and part.start < s.stop]
        values = self._latest.total(rounds, part) if counts[inside, 0].any() else None
        return Message(self._me, peer, self.layout, partition, first, self.round, counts, values)


class Outbox:
    """What is to be sent to one peer and could not be yet. A slow peer never blocks: a partition that waits
    is merged with the next of its range, so at most one gradient's worth waits in each layout."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int], Message] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: Message) -> None:
        key = message.layout.number, message.partition
        waiting = self._waiting.get(key)
        self._waiting[key] = waiting.merged(message) if waiting is not None else message

    def next(self) -> Message:
        """The one that has waited longest."""
        return self._waiting.pop(next(iter(self._waiting)))
