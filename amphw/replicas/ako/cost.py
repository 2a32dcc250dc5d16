"""How many partitions keep the network busy and never overloaded (Ako, section 3.3)."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from amphw.replicas.transport import Transport

PROBE_BYTES, PROBES = 131_072, 4
"""Of a message to each other rank, and how many are timed."""
DRIFT = 1.25
"""By how much the rate of gradients, or what is carried, has to be off before partitions are cut again."""
SETTLES = 10.0
"""To cut anew sends a whole gradient to everybody. So many times as long as that takes has to pass before it
is done again, and gamma is measured over as much: on slow links, which hold ranks up most of the time, what
two seconds show of it differs by several times."""
MOST_HELD = 10.0
"""A rank that the bound holds nearly all the time is taken to compute this many times as fast as it makes
rounds, at most, as what is left to measure is too short to tell."""


def partitions_for(rate: float, size: float, ranks: int, bandwidth: float) -> int:
    """p = ceil(gamma m (n - 1) / B), at least 1.

    rate: gamma, gradients a second of one rank. size: m, bytes of one. bandwidth: B, bytes a second that a
    rank can send. In a round a rank sends m (n - 1) / p bytes, and it makes gamma rounds a second.
    """
    return max(1, math.ceil(rate * size * (ranks - 1) / bandwidth))


def gamma(rounds: float, seconds: float, held: float) -> float:
    """Gradients a second of a rank that has made so many in these seconds, in `held` of which the bound held
    it. They do not count: with too few partitions links hold ranks up, who would otherwise find that these
    are enough for the rounds that they make."""
    return rounds / max(seconds - held, seconds / MOST_HELD)


def sent_per_s(rounds_per_s: float, size: float, ranks: int, partitions: int, epoch_seconds: float) -> float:
    """Bytes a second that a rank sends: a partition to each of the others in every round, and at the end of
    an epoch, where ranks meet, what it owes: all but one of them. size: bytes of a gradient."""
    return size * (ranks - 1) * (rounds_per_s / partitions + (1 - 1 / partitions) / epoch_seconds)


def probed(transport: Transport) -> float:
    """Bytes a second that this rank sends while all ranks send to all others; all call it together."""
    message, into = np.zeros(PROBE_BYTES, np.uint8), np.empty(PROBE_BYTES, np.uint8)
    others = [rank for rank in range(transport.ranks) if rank != transport.rank]
    began = 0.0
    for number in range(1 + PROBES):
        if number == 1:  # the first message finds connections that are not open, or slow yet
            began = transport.now()
        for to in others:
            transport.send(to, message)
        for source in others:
            transport.receive(source, into)
    transport.flush()
    seconds = transport.now() - began
    return PROBES * len(others) * PROBE_BYTES / seconds if others and seconds > 0.0 else math.inf


@dataclass
class Measured:
    """Chooses p from the rate of gradients and what a rank can send, as they are measured.

    bandwidth: bytes a second; None: `probe` finds out. seconds: over which is measured. clock: in seconds,
    such as `Transport.now`.
    """

    bandwidth: float | None
    seconds: float
    clock: Callable[[], float] = time.perf_counter
    _rate: float = field(default=0.0, init=False)
    _cut: float = field(default=-math.inf, init=False)  # when partitions were cut
    _lately: deque[tuple[int, float, float]] = field(default_factory=deque, init=False)
    _began: float | None = field(default=None, init=False)
    _rounds: int = field(default=0, init=False)
    _waits: int = field(default=0, init=False)
    _sent: float = field(default=0.0, init=False)
    _held: float = field(default=0.0, init=False)

    def probe(self, transport: Transport) -> None:
        """Before the first round; all ranks call it."""
        self.clock = transport.now
        if self.bandwidth is None:
            self.bandwidth = probed(transport)

    def round(
        self, size: float, ranks: int, sent: float = 0.0, waits: bool = False, held: float = 0.0
    ) -> int | None:
        """A round was made, of a gradient of `size` bytes -> p where it is to be another one.

        sent: bytes so far. waits: whether something could not be sent yet. Where that is so after every
        round, the link is never idle, and what it carries is B. To raise B again where it is idle now and
        then would cut partitions anew, time after time, each of which costs about p rounds. held: seconds so
        far for which the bound has held the rank.
        """
        now = self.clock()
        assert self.bandwidth is not None, "`probe` comes first"
        if self._began is None:
            self._began, self._sent, self._held = now, sent, held
            return None
        self._rounds += 1
        self._waits += waits
        if now - self._began < self.seconds:
            return None
        seconds = now - self._began
        self._lately.append((self._rounds, seconds, held - self._held))
        settled = SETTLES * size * (ranks - 1) / self.bandwidth
        while sum(each[1] for each in self._lately) - self._lately[0][1] >= max(settled, self.seconds):
            self._lately.popleft()
        rate = gamma(*(sum(each) for each in zip(*self._lately, strict=True)))
        carried = (sent - self._sent) / seconds
        drifted = not self._rate or (_apart(rate, self._rate) and now - self._cut >= settled)
        if self._waits == self._rounds and carried > 0.0 and _apart(carried, self.bandwidth):
            self.bandwidth, drifted = carried, True
        self._began, self._sent, self._held, self._rounds, self._waits = now, sent, held, 0, 0
        if not drifted:
            return None
        self._rate, self._cut = rate, now
        return partitions_for(rate, size, ranks, self.bandwidth)

    def pause(self) -> None:
        """What passes until the next round is no training."""
        self._began, self._rounds, self._waits = None, 0, 0


def _apart(one: float, other: float) -> bool:
    return max(one / other, other / one) >= DRIFT
