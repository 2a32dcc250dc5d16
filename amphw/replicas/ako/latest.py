"""The sum of the latest rounds: a window that slides without ever subtracting.

Ako's algorithm 1 adds the newest gradient to a sum and subtracts the one that leaves; each subtraction leaves
a rounding error behind, and they add up for as long as a run lasts. Here time is cut into blocks of `length`
rounds. The sum of a window is that of the rounds of the present block so far and of the last rounds of the
block before, for which the block's rounds have been turned into sums up to its end. A number is therefore the
sum of `length` numbers and of nothing else, in three additions a round, and cannot drift.
"""

from __future__ import annotations

import numpy as np


class Latest:
    """Sums of the latest up to `length` rounds, each an array of `size` numbers."""

    def __init__(self, length: int, size: int, kind: np.dtype):
        self._length, self._at = length, 0
        # Of the present block the rounds, then of the block before what its rounds add up to until its end.
        self._rounds = [np.zeros(size, kind) for _ in range(length)]
        self._present = np.zeros(size, kind)

    def add(self, values: np.ndarray) -> None:
        """Another round."""
        if self._at == self._length:
            for k in range(self._length - 2, -1, -1):
                self._rounds[k] += self._rounds[k + 1]
            self._present[:] = 0
            self._at = 0
        self._rounds[self._at][:] = values
        self._present += values
        self._at += 1

    def total(self, rounds: int, part: slice) -> np.ndarray:
        """Of the latest `rounds` rounds, at most `length`, the sum of this part; an array of its own."""
        assert 0 <= rounds <= self._length, (rounds, self._length)
        before = rounds - self._at
        if before > 0:  # the block before is complete, or there have been fewer rounds, and these are zero
            return np.asarray(self._rounds[self._length - before][part] + self._present[part])
        if before == 0:
            return self._present[part].copy()
        out = np.zeros_like(self._present[part])
        for values in self._rounds[self._at - rounds : self._at]:
            out += values[part]
        return out
