"""Products: the lanes' multipliers, and a pipelined one for wide operands."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.lanes.shape import BROADCAST_BITS, LaneShape
from amphw.rtl.numbers.formats import BITS

CHUNK = 17
"""Bits of an unsigned part of a wide operand: a multiplier takes 18, signed."""


class LaneProducts(wiring.Component):
    """One multiplier a lane: weight * x, dz * x (`weight_gradient`) or weight * dz (`input_gradient`).

    Operands and selection are taken in the same cycle; `products` follow three cycles later. With `bias`, and
    only where 1.0 is too large for an operand, a product is shifted left by `shape.bias_shift`.
    """

    def __init__(self, shape: LaneShape) -> None:
        self.shape = shape
        words = data.ArrayLayout(signed(BITS), shape.lanes)
        self.bits = BITS + BROADCAST_BITS + shape.bias_shift
        super().__init__(
            {
                "weights": In(words),
                "dz": In(words),
                "x": In(signed(BROADCAST_BITS)),
                "weight_gradient": In(1),
                "input_gradient": In(1),
                "bias": In(1),
                "products": Out(data.ArrayLayout(signed(self.bits), shape.lanes)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        bias = Signal()
        m.d.sync += bias.eq(self.bias)
        for lane in range(self.shape.lanes):
            a = Signal(signed(BITS), name=f"a{lane}", reset_less=True)
            b = Signal(signed(BROADCAST_BITS), name=f"b{lane}", reset_less=True)
            product = Signal(signed(self.bits), name=f"product{lane}", reset_less=True)
            # Multipliers lie in a few rows of a chip: one cycle for the way from there.
            delivered = Signal(signed(self.bits), name=f"delivered{lane}", reset_less=True)
            shifted = (a * b) << self.shape.bias_shift
            m.d.sync += [
                a.eq(Mux(self.weight_gradient, self.dz[lane], self.weights[lane])),
                b.eq(Mux(self.input_gradient, self.dz[lane], self.x)),
                product.eq(Mux(bias, shifted, a * b) if self.shape.bias_shift else a * b),
                delivered.eq(product),
            ]
            m.d.comb += self.products[lane].eq(delivered)
        return m


def wide_product(m: Module, a: Value, b: Value, name: str) -> tuple[Signal, int]:
    """(a * b, cycles it takes), a signed and b unsigned, each split into parts that a multiplier takes."""
    terms: list[tuple[Value, int]] = []
    for a_part, a_at in _parts(a, top_signed=True):
        for b_part, b_at in _parts(b, top_signed=False):
            term = Signal(signed(len(a_part) + len(b_part)), name=f"{name}_{a_at}_{b_at}", reset_less=True)
            m.d.sync += term.eq(a_part * b_part)
            terms.append((term, a_at + b_at))
    cycles = 1
    terms.sort(key=lambda term: term[1])
    while len(terms) > 1:
        sums: list[tuple[Value, int]] = []
        for (low, low_at), *high in (terms[i : i + 2] for i in range(0, len(terms), 2)):
            total = low + (high[0][0] << (high[0][1] - low_at)) if high else low
            label = f"{name}_sum{cycles}_{low_at}_{len(sums)}"
            register = Signal(signed(len(total)), name=label, reset_less=True)
            m.d.sync += register.eq(total)
            sums.append((register, low_at))
        terms, cycles = sums, cycles + 1
    return terms[0][0], cycles


def _parts(value: Value, top_signed: bool) -> list[tuple[Value, int]]:
    """[(signed part, its lowest bit)]; all but a signed value's top one get a 0 as their sign."""
    limit = CHUNK + 1 if top_signed and len(value) <= CHUNK + 1 else CHUNK
    count = -(-len(value) // limit)
    size = -(-len(value) // count)
    parts = []
    for at in range(0, len(value), size):
        part = value[at : at + size]
        top = at + size >= len(value)
        parts.append((part.as_signed() if top and top_signed else positive(part), at))
    return parts


def positive(part: Value) -> Value:
    """The same number with a sign."""
    return Cat(part, C(0, 1)).as_signed()
