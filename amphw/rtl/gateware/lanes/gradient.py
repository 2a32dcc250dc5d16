"""Summed gradients of the parameters: products are added to a beat of them, which is written back."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.lanes.memory import BeatMemory
from amphw.rtl.gateware.lanes.shape import LaneShape
from amphw.rtl.numbers.arithmetic import saturate


class GradientSums(wiring.Component):
    """The memory of summed gradients with an adder a lane.

    `addr` is read, and stands in `data` two cycles later; in that cycle come its `products`, and a cycle
    later, with `write`, the sum goes to `write_addr`. With `serial` sums are 0 from the next cycle on; then
    lanes in `serial_lanes` are written with `poke`, which must be 0 at any other time.
    """

    def __init__(self, shape: LaneShape, product_bits: int) -> None:
        self.shape = shape
        bits = shape.formats.sums
        self.store = BeatMemory(shape.beats, shape.lanes, bits)
        super().__init__(
            {
                "addr": In(shape.beat_bits),
                "products": In(data.ArrayLayout(signed(product_bits), shape.lanes)),
                "data": Out(data.ArrayLayout(signed(bits), shape.lanes)),
                "write": In(1),
                "write_addr": In(shape.beat_bits),
                "serial": In(1),
                "serial_lanes": In(shape.lanes),
                "poke": In(signed(bits)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.store = store = self.store
        bits = self.shape.formats.sums
        m.d.comb += [
            store.addr.eq(self.addr),
            self.data.eq(store.data),
            store.write_addr.eq(self.write_addr),
            store.write_lanes.eq(Mux(self.write, -1, self.serial_lanes)),
        ]
        for lane in range(self.shape.lanes):
            width = max(bits, len(self.products[lane])) + 1
            total = Signal(signed(width), name=f"total{lane}", reset_less=True)
            m.d.sync += total.eq(store.data[lane] + self.products[lane])
            with m.If(self.serial):
                m.d.sync += total.eq(0)
            # The gate that saturates has an input to spare: writing any other value costs nothing.
            m.d.comb += store.write_data[lane].eq(saturate(total, bits, Mux) | self.poke)
        return m
