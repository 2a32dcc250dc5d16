"""Clipping: from the summed gradients of a parameter to the largest coefficient that their norm allows.

Gradients come one a cycle and are squared and added up. Root, product and quotient are found a bit a
cycle, since they are needed once for a whole parameter. The arithmetic is that of
`amphw.rtl.fixed.norm`.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import C, Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.fixed.norm import LIMIT_BITS, NORM_BITS, SQUARES_BITS, norm_shift
from amphw.rtl.fixed.parameters import COEFFICIENT_BITS
from amphw.rtl.gateware.lanes.multiply import positive
from amphw.rtl.gateware.lanes.pipeline import Pipeline
from amphw.rtl.numbers.arithmetic import round_shift
from amphw.rtl.numbers.formats import Formats

ROOT_BITS = SQUARES_BITS // 2
PRODUCT_BITS = COEFFICIENT_BITS + LIMIT_BITS


class Clipper(wiring.Component):
    """begin: a sweep begins. valid, gradient, last: its numbers. done: `ceiling` stands, for a cycle.

    scale, limit: the coefficient of one row and the limit of the norm; they must stay until `done`. ceiling:
    no coefficient may be above it; all ones where nothing is clipped, from the beginning and after `lift`.
    """

    def __init__(self, formats: Formats) -> None:
        self.formats = formats
        super().__init__(
            {
                "begin": In(1),
                "lift": In(1),
                "scale": In(COEFFICIENT_BITS),
                "limit": In(LIMIT_BITS),
                "valid": In(1),
                "last": In(1),
                "gradient": In(signed(formats.sums)),
                "done": Out(1),
                "ceiling": Out(COEFFICIENT_BITS, init=(1 << COEFFICIENT_BITS) - 1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        squares, added = self._squares(m)
        left, found = Signal(SQUARES_BITS), Signal(PRODUCT_BITS)
        rest = Signal(ROOT_BITS + 2)
        root, divisor = Signal(ROOT_BITS), Signal(ROOT_BITS)
        factor = Signal(LIMIT_BITS)
        step = Signal(range(PRODUCT_BITS))
        with m.If(self.lift | self.begin):
            m.d.sync += self.ceiling.eq(~0)
        m.d.sync += self.done.eq(0)
        with m.FSM(name="clipper"):
            with m.State("ADD"):
                m.d.sync += [left.eq(squares), rest.eq(0), root.eq(0), step.eq(0)]
                with m.If(added):
                    m.next = "ROOT"
            with m.State("ROOT"):  # the highest two bits of what is left join the rest
                here = Cat(left[-2:], rest[:ROOT_BITS])
                trial = Cat(C(1, 2), root)
                fits = here >= trial
                m.d.sync += [
                    left.eq(left << 2),
                    rest.eq(Mux(fits, here - trial, here)),
                    root.eq(Cat(fits, root)),
                    step.eq(step + 1),
                ]
                with m.If(step == ROOT_BITS - 1):
                    m.next = "ROOTED"
            with m.State("ROOTED"):
                m.d.sync += [divisor.eq(root), rest.eq(0), found.eq(0), factor.eq(self.limit), step.eq(0)]
                m.next = "MULTIPLY"
            with m.State("MULTIPLY"):  # a bit a cycle, too: no multiplier for what is needed once
                m.d.sync += [
                    found.eq((found << 1) + Mux(factor[-1], self.scale, 0)),
                    factor.eq(factor << 1),
                    step.eq(step + 1),
                ]
                with m.If(step == LIMIT_BITS - 1):
                    m.d.sync += step.eq(0)
                    m.next = "DIVIDE"
            with m.State("DIVIDE"):  # the quotient moves in from below as the dividend moves out above
                here = Cat(found[-1], rest[: ROOT_BITS + 1])
                fits = here >= divisor
                m.d.sync += [
                    rest.eq(Mux(fits, here - divisor, here)),
                    found.eq(Cat(fits, found)),
                    step.eq(step + 1),
                ]
                with m.If(step == PRODUCT_BITS - 1):
                    m.next = "FOUND"
            with m.State("FOUND"):  # over a norm of 0 it is all ones
                beyond = found[COEFFICIENT_BITS:].any()
                m.d.sync += [self.ceiling.eq(Mux(beyond, ~0, found[:COEFFICIENT_BITS])), self.done.eq(1)]
                m.next = "ADD"
        return m

    def _squares(self, m: Module) -> tuple[Signal, Signal]:
        """(the sum of the squares since `begin`, whether the last one has joined it)."""
        pipe = Pipeline(m, valid=self.valid, last=self.last, gradient=self.gradient)
        pipe.step(drop=("gradient",), whole=round_shift(pipe.gradient, norm_shift(self.formats)))
        pipe.step(drop=("whole",), size=Mux(pipe.whole < 0, -pipe.whole, pipe.whole)[:NORM_BITS])
        pipe.multiply(drop=("size",), square=(positive(pipe.size), pipe.size))
        squares, added = Signal(SQUARES_BITS), Signal()
        m.d.sync += added.eq(pipe.valid & pipe.last)
        with m.If(self.begin):
            m.d.sync += squares.eq(0)
        with m.Elif(pipe.valid):
            m.d.sync += squares.eq(squares + pipe.square.as_unsigned())
        return squares, added
