"""How far a member that goes on after a pause has to have come, so that nobody stands still for it."""

from __future__ import annotations

from collections.abc import Iterable

from amphw.replicas.ako.message import Member


class Level:
    """The rounds that members have made, as far as they have told whenever they asked what to do.

    A member that has paused, or has joined, knows of few of the rounds that the others have made: links hold
    few messages, so that most of what was sent to it is still with its senders. If it went on from there,
    the bound would hold the others until it has trained on as many rounds. What they told before their
    present leases is at most a lease old; up to there it makes up with empty rounds, and the rest it has to
    train on. So a slow member, which does not pause, is not made up for. What is told to one that trains
    counts as made by it, too: it may be behind by what the bound lets the others lead, and no more.
    """

    def __init__(self) -> None:
        self._made: dict[Member, int] = {}

    def told(self, me: Member, rounds: int) -> None:
        """It has made so many, or is about to make up to there."""
        self._made[me] = max(rounds, self._made.get(me, 0))

    def of(self, going: Iterable[Member]) -> int:
        """What the slowest of these has made; 0 where nobody is known of."""
        return min((self._made[each] for each in going if each in self._made), default=0)
