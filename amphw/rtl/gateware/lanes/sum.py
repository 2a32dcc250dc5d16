"""Sums of products over rows (FORWARD) and over lanes (gradients of inputs), each at full width."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Module, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.lanes.shape import LaneShape, beat_layout, tree_levels

GROUP = 4
"""Lanes that the first of two multiplexers chooses from."""


class Sums(wiring.Component):
    """Sums of the products of beats; `beat` belongs to `products`, and `sum` goes to address `y`."""

    def __init__(self, shape: LaneShape, product_bits: int) -> None:
        self.shape = shape
        self.bits = shape.formats.accumulator_bits
        super().__init__(
            {
                "beat": In(beat_layout(shape)),
                "products": In(data.ArrayLayout(signed(product_bits), shape.lanes)),
                "valid": Out(1),
                "sum": Out(signed(self.bits)),
                "y": Out(shape.address_bits),
            }
        )


class RowSums(Sums):
    """FORWARD: one accumulator a lane. A finished beat of sums is captured and leaves one lane a cycle.

    `sum` is `valid` 3 cycles later for lane 0, and so on to
    lane `tail`. The next beat of sums must not be finished before the last of these lanes has its turn.
    """

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        shape, beat = self.shape, self.beat
        captured = [
            Signal(signed(self.bits), name=f"captured{lane}", reset_less=True) for lane in range(shape.lanes)
        ]
        for lane in range(shape.lanes):
            accumulator = Signal(signed(self.bits), name=f"accumulator{lane}")
            total = (accumulator + self.products[lane])[: self.bits]
            with m.If(beat.forward):
                m.d.sync += accumulator.eq(total)
                with m.If(beat.last):
                    m.d.sync += [accumulator.eq(0), captured[lane].eq(total)]

        leaving = Signal()
        lane, tail = Signal(shape.lane_bits), Signal(shape.lane_bits)
        y = Signal(shape.address_bits)
        with m.If(beat.forward & beat.last):
            m.d.sync += [leaving.eq(1), lane.eq(0), tail.eq(beat.tail), y.eq(beat.y)]
        with m.Else():
            m.d.sync += [leaving.eq(leaving & (lane != tail)), lane.eq(lane + 1), y.eq(y + 1)]

        chosen, group = choose_lane(m, captured, lane, "captured_group")
        leaving1, y1 = Signal(), Signal(shape.address_bits)
        m.d.sync += [
            leaving1.eq(leaving),
            y1.eq(y),
            self.valid.eq(leaving1),
            self.y.eq(y1),
            self.sum.eq(Array(chosen)[group]),
        ]
        return m


def choose_lane(m: Module, lanes: list[Any], lane: Value, name: str) -> tuple[list[Signal], Value]:
    """First of two steps that choose a lane: registers, one a group of lanes, and which of them to take."""
    low_bits = min(len(lane), (GROUP - 1).bit_length())
    chosen = []
    for start in range(0, len(lanes), GROUP):
        group = lanes[start : start + GROUP]
        register = Signal(Value.cast(group[0]).shape(), name=f"{name}{start}", reset_less=True)
        m.d.sync += register.eq(Array(group)[lane[:low_bits]])
        chosen.append(register)
    high = Signal(max(1, len(lane) - low_bits), name=f"{name}_high")
    m.d.sync += high.eq(lane[low_bits:])
    return chosen, high


class LaneSum(Sums):
    """Gradients of inputs: the lanes of a beat are added up in a tree, and the beats of a row behind it.

    `sum` is `valid` `tree_levels + 1` cycles after the last beat of a row.
    """

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        terms: list[Value] = [self.products[lane][:32].as_signed() for lane in range(self.shape.lanes)]
        controls = [self.beat.input_gradient, self.beat.last, self.beat.y]
        for level in range(tree_levels(self.shape)):
            sums: list[Value] = []
            for i in range(0, len(terms), 2):
                total = Signal(signed(len(terms[i]) + 1), name=f"tree{level}_{i // 2}", reset_less=True)
                m.d.sync += total.eq(terms[i] + terms[i + 1] if len(terms) > 1 else terms[i])
                sums.append(total)
            terms = sums
            registers = [Signal(len(c), name=f"control{level}_{n}") for n, c in enumerate(controls)]
            m.d.sync += [register.eq(c) for register, c in zip(registers, controls, strict=True)]
            controls = list(registers)
        valid, last, y = controls

        accumulator = Signal(signed(self.bits))
        total = (accumulator + terms[0])[: self.bits]
        with m.If(valid):
            m.d.sync += accumulator.eq(total)
            with m.If(last):
                m.d.sync += accumulator.eq(0)
        m.d.sync += [self.valid.eq(valid & last), self.sum.eq(total), self.y.eq(y)]
        return m
