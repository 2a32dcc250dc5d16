"""Counters of an edge, beside a count in Python."""

from __future__ import annotations

import random
from typing import Any

import cocotb

from sim.bench import Bench, settings


class Edge:
    """Random cycles of an edge, and what should have been counted."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.restart()

    def restart(self) -> None:
        self.transfers = self.starved = self.blocked = self.most = 0
        for name in ("valid", "ready", "occupancy", "clear"):
            self.dut[name].value = 0

    def drive(self) -> None:
        self.valid, self.ready = random.random() < 0.6, random.random() < 0.4
        self.occupancy, self.clear = random.randrange(settings()["capacity"] + 1), random.random() < 0.005
        for name in ("valid", "ready", "occupancy", "clear"):
            self.dut[name].value = getattr(self, name)

    def sample(self) -> None:
        assert int(self.dut.counts.value) == self.expected(), (
            f"{self.transfers} {self.starved} {self.blocked}"
        )
        if self.clear:
            self.transfers = self.starved = self.blocked = self.most = 0
            return
        full = (1 << settings()["width"]) - 1
        self.transfers = min(full, self.transfers + (self.valid and self.ready))
        self.starved = min(full, self.starved + (self.ready and not self.valid))
        self.blocked = min(full, self.blocked + (self.valid and not self.ready))
        self.most = max(self.most, self.occupancy)

    def expected(self) -> int:
        width = settings()["width"]
        return self.transfers | self.starved << width | self.blocked << 2 * width | self.most << 3 * width


@cocotb.test()
async def every_cycle_is_counted(dut: Any) -> None:
    bench = Bench(dut, Edge(dut))
    await bench.start()
    await bench.step(3000)
    await bench.reset()
    await bench.step(500)
