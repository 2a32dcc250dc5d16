"""The device's counters beside a count of what was told them, cycle by cycle."""

from __future__ import annotations

import random
from typing import Any

import cocotb

from amphw.rtl.isa.counters import CYCLES, LEVELS
from sim.bench import Bench, counted, settings

SETTLED = 6
"""Cycles after which the value of a counter stands, whatever is sent meanwhile."""


class Events:
    """Something happens in each cycle with a chance, and is counted here, too.

    still: only messages are sent, on path 0.
    """

    def __init__(self, dut: Any, chance: float) -> None:
        self.dut, self.chance, self.paths = dut, chance, settings()["paths"]
        self.level_bits = settings()["level_bits"]
        self.counts = [0] * (len(CYCLES) + len(LEVELS) + self.paths)
        self.restart()

    def restart(self) -> None:
        self.still, self._sent = True, False
        self._set(0, [0] * len(LEVELS), False, 0)

    def _set(self, events: int, levels: list[int], sent: bool, path: int) -> None:
        self.dut.events.value, self.dut.sent.value, self.dut.path.value = events, sent, path
        for name, level in zip(LEVELS, levels, strict=True):
            self.dut[name].value = level
        self._now = events, levels, sent, path
        self._sent = sent  # between two messages there is a cycle without

    def drive(self) -> None:
        if self.still:
            self._set(0, [0] * len(LEVELS), not self._sent and random.random() < 0.5, 0)
            return
        events = sum(1 << k for k in range(len(CYCLES)) if random.random() < self.chance)
        bits = self.level_bits
        levels = [random.getrandbits(bits) >> random.randrange(bits) for _ in LEVELS]
        sent = not self._sent and random.random() < self.chance
        self._set(events, levels, sent, random.randrange(self.paths))

    def sample(self) -> None:
        events, levels, sent, path = self._now
        for k in range(len(CYCLES)):
            self.counts[k] += events >> k & 1
        for k, level in enumerate(levels, len(CYCLES)):
            self.counts[k] = max(self.counts[k], level)
        if sent:
            self.counts[len(CYCLES) + len(LEVELS) + path] += 1


async def value(bench: Bench, index: int) -> int:
    bench.dut.index.value = index
    await bench.step(SETTLED)
    return int(bench.dut.value.value)


@cocotb.test()
@cocotb.parametrize(chance=[0.5, 0.95])
async def counts_what_happens(dut: Any, chance: float) -> None:
    """Every counter, again and again, some of them while messages are sent; they wrap."""
    events = Events(dut, chance)
    bench, given = Bench(dut, events), settings()
    await bench.start()
    messages, most = len(CYCLES) + len(LEVELS), 1 << given["bits"]
    # A reset leaves a memory as it is: messages are counted on from there.
    for path in range(1, given["paths"]):
        events.counts[messages + path] = await value(bench, messages + path)
    for number in range(given["rounds"]):
        events.still = False
        events.level_bits = min(given["level_bits"], 1 + number // 4)  # small ones are seen, too
        await bench.step(random.randrange(1, given["cycles"]))
        events.still = True
        # Path 0 sends while others are looked at.
        index = random.choice([k for k in range(len(events.counts)) if k != messages])
        found = await value(bench, index)
        assert found == events.counts[index] % most, f"counter {index}: {found}, not {events.counts[index]}"
        counted("counters looked at", 1)
