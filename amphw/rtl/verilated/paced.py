"""A simulated device behind a link that has a bandwidth and a latency, in the device's own time.

The host takes no time: a word that reaches it is answered within QUANTUM cycles. While nothing is left to do
on the device and the next word is still on its way, time passes without being simulated, for in such cycles
nothing happens. What the device computes depends on the order in which words come, and on no clock: the same
words in the same order give the same numbers at every speed.
"""

from __future__ import annotations

import math

import numpy as np

from amphw.ir.device import LinkRate
from amphw.rtl.verilated.simulation import ONE, Pace, Simulation

QUANTUM = 1000
"""Cycles after which the host looks whether something has come."""


class PacedLink:
    """clock: the device's, in cycles a second.

    Each direction sends one word after another, at `rate`; each word arrives after the latency. Words that
    the device does not take yet wait at its end. now: cycles since the beginning; skipped: of these, those
    that were not simulated. sent, came: words that have set out, to the device and to the host.
    """

    def __init__(self, simulation: Simulation, rate: LinkRate, clock: float):
        self.simulation, self.rate, self.clock = simulation, rate, clock
        self.period = max(1, round(simulation.interface.word_bits * clock / rate.bits_per_s * ONE))
        self.latency = math.ceil(rate.latency * clock)
        self.now = self.skipped = self.sent = self.came = 0
        self._in_at = np.empty(0, np.int64)  # of words that the device has not taken
        self._in_free = self._out_free = 0  # ONEths of a cycle
        self._out_at, self._out = np.empty(0, np.int64), np.empty(0, simulation.word)

    def exchange(self, words: np.ndarray, cycles: int) -> tuple[int, np.ndarray]:
        """As `Simulation.exchange` with `until_idle` -> words accepted, and those that have reached the host.

        It returns once something has, and after `cycles` at the latest, or when the next word is there.
        """
        self._set_out(len(words) - len(self._in_at))
        accepted, end = 0, self.now + cycles
        while True:
            most = min(QUANTUM, end - self.now)
            pace = Pace(self._in_at - self.now, self.period, self._out_free - self.now * ONE)
            got = self.simulation.exchange(words[accepted:], most, until_idle=True, pace=pace)
            accepted += got.accepted
            self._in_at = self._in_at[got.accepted :]
            self._out_free = pace.out_free + self.now * ONE
            self._out_at = np.concatenate([self._out_at, pace.out_at + self.now + self.latency])
            self._out = np.concatenate([self._out, got.words])
            self.came += got.words.size
            self.now += got.cycles
            if got.cycles < most and not self._skip():
                break
            if self.now >= end or (self._out_at.size and self._out_at[0] <= self.now):
                break
        landed = int(np.searchsorted(self._out_at, self.now, side="right"))
        there, self._out = self._out[:landed], self._out[landed:]
        self._out_at = self._out_at[landed:]
        return accepted, there

    def _set_out(self, words: int) -> None:
        """So many further words leave the host now."""
        first = max(self._in_free, self.now * ONE)
        through = first + self.period * np.arange(1, words + 1, dtype=np.int64)
        if words:
            self._in_free = int(through[-1])
        self._in_at = np.concatenate([self._in_at, -(-through // ONE) + self.latency])
        self.sent += words

    def _skip(self) -> bool:
        """The device has nothing to do: on to the next word, in either direction -> whether there is one."""
        coming = [int(at[0]) for at in (self._in_at, self._out_at) if at.size]
        if not coming:
            return False
        self.skipped += max(0, min(coming) - self.now)
        self.now = max(self.now, min(coming))
        return True
