"""The order of a vector unit's reads and writes: when an element may read, and where its result goes."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.vector.command import VectorShape
from amphw.rtl.gateware.vector.loops import item_layout
from amphw.rtl.isa.memory import READ_LATENCY

LATENCY = READ_LATENCY + 8
"""Cycles from the read of an element's operands to the write of its result."""


class VectorIssue(wiring.Component):
    """Items in; addresses and enables of reads and, LATENCY cycles later, of writes.

    The outputs `element`, `first`, `fresh` and `fetch` are those of the item whose operands the memory now
    gives; `taking` is `fresh` a cycle earlier. `done` comes when what a command wrote can be read, a cycle
    after `ends`.
    """

    def __init__(self, shape: VectorShape) -> None:
        self.shape = shape
        address = shape.address_bits
        super().__init__(
            {
                "items": In(stream.Signature(item_layout(shape))),
                "read_a": Out(1),
                "read_b": Out(1),
                "address_a": Out(address),
                "address_b": Out(address),
                "element": Out(1),
                "first": Out(1),
                "fresh": Out(1),
                "taking": Out(1),
                "fetch": Out(1),
                "write": Out(1),
                "address_d": Out(address),
                "ends": Out(1),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Stage k is what reads or read k cycles ago.
        stages = range(LATENCY + 1)
        occupied = [Signal(name=f"occupied_{k}") for k in stages]
        writes = [Signal(name=f"writes_{k}") for k in stages]
        final = [Signal(name=f"final_{k}") for k in stages]
        d = [Signal(self.shape.address_bits, name=f"d_{k}", reset_less=True) for k in stages]

        # The item that is next to read, unless it is `stuck`. What is in the last stage is written before
        # it reads.
        item, valid, stuck, accept = Signal(item_layout(self.shape)), Signal(), Signal(), Signal()
        clash = Signal(LATENCY)
        m.d.comb += [accept.eq(valid & ~stuck), self.items.ready.eq(~valid | ~stuck)]
        # That is decided a cycle ahead, with the stages as they will be then. Bit k of `clash`: stage k
        # writes where the item adds.
        behind = self.items.payload
        leaves = valid & item.element & item.write
        ahead = [(leaves, item.d), *zip(writes[:-2], d[:-2], strict=True)]
        clashes = Cat(flag & (where == behind.d) for flag, where in ahead)
        with m.If(self.items.ready):
            m.d.sync += [
                item.eq(behind),
                valid.eq(self.items.valid),
                clash.eq(clashes),
                stuck.eq(behind.waits & (valid | Cat(occupied[:-2]).any()) | behind.adds & clashes.any()),
            ]
        with m.Else():
            m.d.sync += [
                clash.eq(clash << 1),
                stuck.eq(item.waits & Cat(occupied[:-2]).any() | item.adds & clash[:-1].any()),
            ]

        # What the memory's answer belongs to, on its way beside it.
        asked = Cat(accept & item.element, item.first, accept & item.fresh, accept & item.fetch)
        for cycle in range(READ_LATENCY):
            register = Signal(len(asked), name=f"asked_{cycle}")
            m.d.sync += register.eq(asked)
            asked = register
        m.d.comb += self.taking.eq(asked[2])
        m.d.sync += [
            self.read_a.eq(accept & item.reads_a),
            self.read_b.eq(accept & item.reads_b),
            self.address_a.eq(item.a),
            self.address_b.eq(item.b),
            occupied[0].eq(accept),
            writes[0].eq(accept & item.element & item.write),
            final[0].eq(accept & item.final),
            d[0].eq(item.d),
            Cat(self.element, self.first, self.fresh, self.fetch).eq(asked),
            self.done.eq(self.ends),
        ]
        for chain in (occupied, writes, final, d):
            m.d.sync += [after.eq(before) for before, after in zip(chain, chain[1:], strict=False)]
        m.d.comb += [
            self.write.eq(writes[-1]),
            self.address_d.eq(d[-1]),
            self.ends.eq(final[-1]),
        ]
        return m
