"""Rounding by a shift that is known only when it happens."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.vector.command import SHIFT_BITS
from amphw.rtl.numbers.formats import BITS

LATENCY = 3


class Narrow(wiring.Component):
    """y = narrow(x, shift, BITS) of `rtl.numbers.arithmetic`, LATENCY cycles later; x has `bits` bits."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        super().__init__({"x": In(signed(bits)), "shift": In(SHIFT_BITS), "y": Out(signed(BITS))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Bit 0 is half of the last place: what decides about rounding, with whether anything was lost
        # behind it.
        x = Cat(Const(0, 1), self.x).as_signed()

        # By 0, 8, 16 or 24.
        steps, rest = self.shift[3:], self.shift[:3]
        coarse, sticky, fine = Signal(signed(self.bits + 1)), Signal(), Signal(3)
        m.d.sync += fine.eq(rest)
        with m.Switch(steps):
            for step in range(4):
                with m.Case(step):
                    m.d.sync += [coarse.eq(x >> 8 * step), sticky.eq(x[: 8 * step].any())]

        # By 0 to 7. It only matters whether the bits from the result's sign on are all the same.
        sign = coarse[-1]
        rounded = Signal(BITS + 1)
        lost, too_large, negative = Signal(), Signal(), Signal()
        passed = [fine > bit for bit in range(7)]
        beyond = [coarse[BITS + bit] ^ sign for bit in range(7)]
        m.d.sync += [
            rounded.eq(coarse >> fine),
            lost.eq(sticky | Cat(coarse[bit] & passed[bit] for bit in range(7)).any()),
            too_large.eq(
                Cat(bit ^ sign for bit in coarse[BITS + 7 :]).any()
                | Cat(beyond[bit] & ~passed[bit] for bit in range(7)).any()
            ),
            negative.eq(sign),
        ]

        half, value = rounded[0], rounded[1:].as_signed()
        up = Signal(signed(BITS + 1))
        m.d.comb += up.eq(value + (half & (lost | value[0])))
        overflow = too_large | (~negative & up[BITS - 1])
        m.d.sync += self.y.eq(
            Mux(overflow, Cat((~negative).replicate(BITS - 1), negative).as_signed(), up[:BITS].as_signed())
        )
        return m
