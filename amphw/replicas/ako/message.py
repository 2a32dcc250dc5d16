"""What goes from a member to another: a part of the gradient, over a range of rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from amphw.replicas.collectives import ranges


class Member(NamedTuple):
    """One that takes part. incarnation: goes up whenever it comes back, so that what is late is refused."""

    number: int
    incarnation: int = 0


@dataclass(frozen=True)
class Layout:
    """How a member cuts its gradients from some round on.

    number: goes up with each of its layouts. first: the round with which this one begins, from 1.
    partitions: p. size: numbers of a whole gradient.
    """

    number: int
    first: int
    partitions: int
    size: int

    def turn(self, peer: int, round: int) -> int:
        """The partition that goes to this peer in a round.

        Algorithm 1 prints i mod p, which would never rotate; section 3.1 says round-robin.
        """
        return (peer + round) % self.partitions

    def part(self, partition: int) -> slice:
        """Contiguous, and empty where there are more partitions than numbers."""
        return ranges(self.size, self.partitions)[partition]


@dataclass(frozen=True)
class Message:
    """One partition of the sum of a sender's gradients in the rounds `first .. last`.

    counts: int64 [nodes, 2], of every node the rows and the updates that the sum is over. values: what
    `layout.part(partition)` says; None: all zero, as no node with a part in it had any rows.
    """

    source: Member
    to: Member
    layout: Layout
    partition: int
    first: int
    last: int
    counts: np.ndarray
    values: np.ndarray | None

    def follows(self, other: Message) -> bool:
        """Whether this is what comes next of the same part, so that both can be one message."""
        same = (self.source, self.to, self.layout, self.partition)
        return (
            same == (other.source, other.to, other.layout, other.partition) and self.first == other.last + 1
        )

    def merged(self, later: Message) -> Message:
        """Both as one. Their rounds are disjoint, so values and rows add up."""
        assert later.follows(self), (self, later)
        values = [v for v in (self.values, later.values) if v is not None]
        both = values[0] if len(values) == 1 else values[0] + values[1] if values else None
        return replace(self, last=later.last, counts=self.counts + later.counts, values=both)
