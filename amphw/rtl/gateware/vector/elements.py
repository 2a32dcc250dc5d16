"""The datapath of a vector unit: operands in, one result a cycle out.

Stages, counted from the memory's answer, which is READ_LATENCY behind the read: 1 operands, 2 chosen (the
curves' table answers), 3 factors, 4 product, 5 sum, then rounding: the result is at hand in stage 8.
"""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.fixed.curves import SEGMENTS, STEP_BITS
from amphw.rtl.gateware.vector.command import VectorShape
from amphw.rtl.gateware.vector.decode import controls_layout
from amphw.rtl.gateware.vector.round import Narrow
from amphw.rtl.isa.commands import CONSTANT_BITS
from amphw.rtl.numbers.formats import BITS

LINE = data.StructLayout({"start": signed(18), "slope": signed(18)})


class VectorElements(wiring.Component):
    """`element` says that a and b are operands; with `first` they begin a sum or a search for the largest.

    `controls` are copied with `fresh`, and hold from that element on.
    """

    def __init__(self, shape: VectorShape) -> None:
        self.shape = shape
        super().__init__(
            {
                "a": In(signed(BITS)),
                "b": In(signed(BITS)),
                "element": In(1),
                "first": In(1),
                "fresh": In(1),
                "controls": In(controls_layout(shape)),
                "y": Out(signed(BITS)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape = self.shape

        # Stage 1: operands, and what to do with them.
        a, b = Signal(signed(BITS), reset_less=True), Signal(signed(BITS), reset_less=True)
        do = Signal(controls_layout(shape))
        valid, first = Signal(), Signal()
        count = Signal(shape.count_bits)
        m.d.sync += [a.eq(self.a), b.eq(self.b), valid.eq(self.element), first.eq(self.first)]
        with m.If(self.fresh):
            m.d.sync += do.eq(self.controls)
        with m.If(self.element):
            m.d.sync += count.eq(Mux(self.first, 0, count + 1))

        # Stage 2: comparisons are decided; the largest so far stays where it is.
        chosen, addend = Signal(signed(BITS)), Signal(signed(BITS))
        factor = Signal(signed(CONSTANT_BITS))
        condition = Signal(signed(2))
        other = Mux(do.first_largest, chosen, Mux(do.if_above, do.constant, b))
        above, positive, b_positive = Signal(), Signal(), Signal()
        m.d.comb += [
            above.eq((other - a)[-1]),  # a > other, in one carry chain
            positive.eq(~a[-1] & a.any()),
            b_positive.eq(~b[-1] & b.any()),
        ]
        holds = (
            do.if_sign & a.any()
            | do.if_positive & positive
            | do.if_b_positive & b_positive
            | do.if_equal & (a == b)
            | do.if_above & above
            | do.always
        )
        segment, position = self._locate(a, do.table)
        with m.If(valid & ~(do.first_largest & ~first & ~above)):
            m.d.sync += [
                chosen.eq(Mux(do.first_b | do.first_larger & ~above, b, a)),
                addend.eq(Mux(do.plus_a, a, Mux(do.plus_count, count, 0))),
            ]
        m.d.sync += [
            condition.eq(Cat(holds, do.if_sign & a[-1])),
            factor.eq(Mux(do.times_a, a, Mux(do.is_line, position, do.factor))),
        ]
        line = self._table(m, segment, do.table)
        is_line, is_condition = Signal(), Signal()
        m.d.sync += [is_line.eq(do.is_line), is_condition.eq(do.is_condition)]

        # Stages 3 to 5: what becomes the result, rounded. The table's answer comes late and goes straight to
        # registers; they and those of the other operations are 0 when it is not their turn.
        left, right = Signal(signed(18)), Signal(signed(18), reset_less=True)
        slope, start, plus = Signal(signed(18)), Signal(signed(18)), Signal(signed(BITS))
        m.d.sync += right.eq(factor)
        with m.If(is_line):
            m.d.sync += [slope.eq(line.slope), start.eq(line.start), left.eq(0), plus.eq(0)]
        with m.Else():
            m.d.sync += [
                slope.eq(0),
                start.eq(0),
                left.eq(Mux(is_condition, condition, chosen)),
                plus.eq(addend),
            ]
        product, plus_5 = Signal(signed(36), reset_less=True), Signal(signed(18 + STEP_BITS), reset_less=True)
        m.d.sync += [
            product.eq((left | slope).as_signed() * right),
            plus_5.eq((start << STEP_BITS) | plus),
        ]
        # Wide enough for the product of a value and a constant, and for the longest sum.
        total = Signal(signed(max(BITS + CONSTANT_BITS, BITS + shape.count_bits)), reset_less=True)
        sums, goes_on = self._later(m, do.plus_sum, 3), self._later(m, ~first, 3)
        with m.If(self._later(m, valid, 3)):
            m.d.sync += total.eq(product + Mux(sums & goes_on, total, plus_5))

        m.submodules.narrow = narrow = Narrow(len(total))
        m.d.comb += [
            narrow.x.eq(total),
            narrow.shift.eq(self._later(m, do.shift, 4)),
            self.y.eq(narrow.y),
        ]
        return m

    def _locate(self, x: Value, table: Value) -> tuple[Value, Value]:
        """The line of x in a table, and where on it x is."""
        if not self.shape.curves:
            return Const(0), Const(0)
        places = [curve.locate(x, Mux) for curve in self.shape.curves]
        width = SEGMENTS.bit_length() - 1
        segments = Array(segment[:width] for segment, _ in places)
        positions = Array(position[:STEP_BITS] for _, position in places)
        return segments[table], positions[table]

    def _table(self, m: Module, segment: Value, table: Value) -> data.View:
        """The line of that number, a cycle later."""
        curves = self.shape.curves
        if not curves:
            return Signal(LINE)
        m.submodules.lines = lines = memory.Memory(
            shape=LINE,
            depth=SEGMENTS * len(curves),
            init=[
                {"start": t, "slope": s} for curve in curves for t, s in zip(curve.T, curve.S, strict=True)
            ],
        )
        port = lines.read_port()
        m.d.comb += port.addr.eq(Cat(segment, table))
        return port.data

    @staticmethod
    def _later(m: Module, value: Value, cycles: int) -> Value:
        for _ in range(cycles):
            before, value = value, Signal(value.shape(), name="later")
            m.d.sync += value.eq(before)
        return value
