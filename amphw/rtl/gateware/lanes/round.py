"""The one rounder of a lane engine: wide sums become values in the payload memory."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.lanes.shape import LaneShape
from amphw.rtl.gateware.ports import WritePort
from amphw.rtl.numbers.arithmetic import round_shift, saturate
from amphw.rtl.numbers.formats import BITS


class Rounder(wiring.Component):
    """A valid `sum` is rounded, saturated, and written to `y` two cycles later, one a cycle."""

    def __init__(self, shape: LaneShape) -> None:
        self.shape = shape
        super().__init__(
            {
                "valid": In(1),
                "sum": In(signed(shape.formats.accumulator_bits)),
                "y": In(shape.address_bits),
                "write": Out(WritePort(shape.address_bits)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        rounded_value = round_shift(self.sum, self.shape.formats.weight.frac)
        rounded = Signal(rounded_value.shape(), reset_less=True)
        valid, y = Signal(), Signal(self.shape.address_bits)
        m.d.sync += [
            rounded.eq(rounded_value),
            valid.eq(self.valid),
            y.eq(self.y),
            self.write.en.eq(valid),
            self.write.addr.eq(y),
            self.write.data.eq(saturate(rounded, BITS, Mux)),
        ]
        return m
