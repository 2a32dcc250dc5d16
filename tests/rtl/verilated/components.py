"""Small devices to simulate."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

TOTALS = data.StructLayout({"words": unsigned(40), "sum": signed(40)})


class Adder(wiring.Component):
    """Each word plus a constant, behind a queue; totals to look at.

    traced: with a stream `sums` of every sum and its number.
    """

    def __init__(self, bits: int = 16, depth: int = 8, plus: int = 3, traced: bool = False) -> None:
        self.bits, self.depth, self.plus, self.traced = bits, depth, plus, traced
        sums = Out(stream.Signature(data.StructLayout({"number": 16, "sum": bits})))
        super().__init__(
            {
                "link_in": In(stream.Signature(unsigned(bits))),
                "link_out": Out(stream.Signature(unsigned(bits))),
                "totals": Out(TOTALS),
                "held": Out(range(depth + 1)),
                "idle": Out(1),
                **({"sums": sums} if traced else {}),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.queue = queue = SyncFIFOBuffered(width=self.bits, depth=self.depth)
        taken = Signal()
        m.d.comb += [
            queue.w_stream.payload.eq(self.link_in.payload + self.plus),
            queue.w_stream.valid.eq(self.link_in.valid),
            self.link_in.ready.eq(queue.w_stream.ready),
            self.link_out.payload.eq(queue.r_stream.payload),
            self.link_out.valid.eq(queue.r_stream.valid),
            queue.r_stream.ready.eq(self.link_out.ready),
            taken.eq(self.link_out.valid & self.link_out.ready),
            self.held.eq(queue.level),
            self.idle.eq(queue.level == 0),
        ]
        if self.traced:
            m.d.comb += [
                self.sums.valid.eq(taken),
                self.sums.payload.number.eq(self.totals.words),
                self.sums.payload.sum.eq(self.link_out.payload),
            ]
        with m.If(taken):
            m.d.sync += [
                self.totals.words.eq(self.totals.words + 1),
                self.totals.sum.eq(self.totals.sum - self.link_out.payload),
            ]
        return m
