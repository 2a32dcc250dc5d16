"""How many partitions keep the network busy and never overloaded (Ako, section 3.3)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

DRIFT = 1.25
"""By how much the rate of gradients has to be off before partitions are cut again: to send in full what the
old layout owes costs about as much as p rounds."""


def partitions_for(rate: float, size: float, ranks: int, bandwidth: float) -> int:
    """p = ceil(gamma m (n - 1) / B), at least 1.

    rate: gamma, gradients a second of one rank. size: m, bytes of one. bandwidth: B, bytes a second that a
    rank can send. In a round a rank sends m (n - 1) / p bytes, and it makes gamma rounds a second.
    """
    return max(1, math.ceil(rate * size * (ranks - 1) / bandwidth))


@dataclass
class Measured:
    """Chooses p from the rate of gradients, as it is measured.

    bandwidth: bytes a second. seconds: over which the rate is measured. clock: in seconds, such as
    `Transport.now`.
    """

    bandwidth: float
    seconds: float
    clock: Callable[[], float] = time.perf_counter
    _rate: float = field(default=0.0, init=False)
    _began: float | None = field(default=None, init=False)
    _rounds: int = field(default=0, init=False)

    def round(self, size: float, ranks: int) -> int | None:
        """A round was made, of a gradient of `size` bytes -> p where it is to be another one."""
        now = self.clock()
        if self._began is None:
            self._began = now
            return None
        self._rounds += 1
        if now - self._began < self.seconds:
            return None
        rate = self._rounds / (now - self._began)
        self._began, self._rounds = now, 0
        if self._rate and max(rate / self._rate, self._rate / rate) < DRIFT:
            return None
        self._rate = rate
        return partitions_for(rate, size, ranks, self.bandwidth)

    def pause(self) -> None:
        """What passes until the next round is no training."""
        self._began, self._rounds = None, 0
