"""How far the others are, as far as this member has heard, and how far ahead it may be.

A peer's clock is the highest round up to which everything that it sent in a round has come. It is read off
the rounds that messages carry: one that was merged stands for several, so to count them would tell less.
"""

from __future__ import annotations

from collections.abc import Iterable

from amphw.replicas.ako.message import Layout, Member, Message


class _Covered:
    """Of one partition, the rounds that have come. end: the highest up to which none is missing."""

    def __init__(self, end: int):
        self.end = end
        self._beyond: list[tuple[int, int]] = []

    def add(self, first: int, last: int) -> bool:
        """-> whether none of these rounds was here."""
        if first <= self.end or any(first <= b and a <= last for a, b in self._beyond):
            return False
        self._beyond = sorted([*self._beyond, (first, last)])
        while self._beyond and self._beyond[0][0] == self.end + 1:
            self.end = self._beyond.pop(0)[1]
        return True

    @property
    def broken(self) -> bool:
        """Whether later rounds have come than those that are missing."""
        return bool(self._beyond)


class Heard:
    """What this member, `me`, has heard from a peer. Nothing counts twice; what comes from an incarnation
    that has ended, or was sent to one, is refused.

    finished: the peer makes no more rounds for now, and nobody waits for its clock. begins: rounds that were
    behind it before it owed this member anything.
    """

    def __init__(self, me: Member, peer: Member):
        self._me, self._peer = me, peer
        self.finished, self.begins = False, 0
        self._begin()

    def _begin(self) -> None:
        self._layouts: dict[int, tuple[Layout, list[_Covered]]] = {}
        self._oldest = 0  # layout of which something may still come

    def take(self, message: Message) -> bool:
        """-> whether its gradients are to be applied."""
        if message.to != self._me or message.source.number != self._peer.number:
            return False
        if message.source.incarnation < self._peer.incarnation:
            return False
        if message.source != self._peer:
            self._peer, self.finished = message.source, False
            self._begin()
        layout = message.layout
        if layout.number < self._oldest:
            return False
        if layout.number not in self._layouts:
            fresh = [_Covered(layout.first - 1) for _ in range(layout.partitions)]
            self._layouts[layout.number] = layout, fresh
        known, covered = self._layouts[layout.number]
        if layout != known or not layout.first <= message.first <= message.last:
            return False
        new = covered[message.partition].add(message.first, message.last)
        self._forget_complete()
        return new

    def _forget_complete(self) -> None:
        """Layouts of which all has come that the peer owed before it began the next one."""
        numbers = sorted(self._layouts)
        for number, following in zip(numbers, numbers[1:], strict=False):
            end = self._layouts[following][0].first - 1
            if min(each.end for each in self._layouts[number][1]) < end:
                break
            del self._layouts[number]
            self._oldest = following

    @property
    def clock(self) -> int:
        """Rounds of the peer, from 1; `begins`: none is known of."""
        return self._within(*self._layouts[min(self._layouts)]) if self._layouts else self.begins

    @property
    def owes(self) -> bool:
        """Whether anything that the peer owed this member has come."""
        return bool(self._layouts)

    @property
    def broken(self) -> bool:
        """Whether something is missing, and will be: what the peer had sent before the last message that
        came.

        So it is for links that keep the order of messages, and lose what is under way where they break.
        """
        return len(self._layouts) > 1 or any(
            each.broken for _, covered in self._layouts.values() for each in covered
        )

    def _within(self, layout: Layout, covered: list[_Covered]) -> int:
        """A round is here if the partition that it sends to this member is."""
        p = layout.partitions
        missing = [each.end + 1 + (k - self._me.number - each.end - 1) % p for k, each in enumerate(covered)]
        return min(min(missing) - 1, max(each.end for each in covered))


class Clocks:
    """The staleness bound: nobody begins a round who is further ahead of the slowest *other* than `bound`.

    Algorithm 1 tests this with <= and then counts, so a lead may become bound + 1. leads: how often a round
    ended with which lead; with nobody to wait for there is none.
    """

    def __init__(self, me: Member, peers: Iterable[Member], bound: int):
        self.bound, self.own = bound, 0
        self.heard = {peer.number: Heard(me, peer) for peer in peers}
        self.leads: dict[int, int] = {}

    @property
    def slowest(self) -> int | None:
        """The least clock of the others that go on; None: none does."""
        return min((h.clock for h in self.heard.values() if not h.finished), default=None)

    def may_advance(self, due: int = 0) -> bool:
        """due: rounds that are over as well, and that are not made yet."""
        slowest = self.slowest
        return slowest is None or self.own + due - slowest <= self.bound

    def advance(self, begun: bool = True) -> None:
        """A round was made. One that was not begun tells what was left of others; it leads nobody."""
        self.own += 1
        if begun and (slowest := self.slowest) is not None:
            lead = max(0, self.own - slowest)
            self.leads[lead] = self.leads.get(lead, 0) + 1
