"""What an edge of a device does, in numbers: how a report tells the bottleneck from those who wait for it."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out


def counts(width: int, occupancy: Any) -> data.StructLayout:
    """transfers, starved and blocked in cycles, and the largest occupancy."""
    number = unsigned(width)
    return data.StructLayout(
        {"transfers": number, "starved": number, "blocked": number, "most": occupancy},
    )


class Counters(wiring.Component):
    """Watches one stream's `valid` and `ready`, and the occupancy of the queue behind it.

    transfers: cycles in which a payload moved. starved: the receiver waited (`ready` alone). blocked: the
    sender waited (`valid` alone). most: the largest occupancy seen. All are since reset or `clear`, up to and
    including the cycle before. A counter that is full stays so: what it shows is then a lower bound.
    """

    def __init__(self, capacity: int = 0, width: int = 32) -> None:
        occupancy = range(capacity + 1)
        super().__init__(
            {
                "valid": In(1),
                "ready": In(1),
                "occupancy": In(occupancy),
                "clear": In(1),
                "counts": Out(counts(width, occupancy)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        seen = self.counts
        events = (
            (seen.transfers, self.valid & self.ready),
            (seen.starved, ~self.valid & self.ready),
            (seen.blocked, self.valid & ~self.ready),
        )
        for counter, event in events:
            with m.If(event & ~counter.all()):
                m.d.sync += counter.eq(counter + 1)
        with m.If(self.occupancy > seen.most):
            m.d.sync += seen.most.eq(self.occupancy)
        with m.If(self.clear):
            m.d.sync += seen.eq(0)
        return m
