"""What streams of a device pass through: a cut of long paths, and queues.

Every stream keeps the rules of `amaranth.lib.stream`: a payload is transferred in each cycle in which `valid`
and `ready` are set; `valid` does not wait for `ready`; and what is offered stays offered, unchanged, until it
is taken. Tests prove these and the order of the payloads for every component here.
"""

from __future__ import annotations

from typing import Any, Literal

from amaranth.hdl import Module, Mux, Shape, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from amphw.ir.errors import AmphwError
from amphw.rtl.gateware.ports import NO_COLLISION


class GatewareError(AmphwError):
    """A component cannot be built with these parameters. The message says which, and what is possible."""


class SkidBuffer(wiring.Component):
    """One cycle of delay without loss of throughput, and no combinational path from any input to any output.

    Both `i.ready` and `o.valid` come from registers. The word that arrives in the cycle in which the output
    stops is kept in a second register: `i.ready` tells the sender one cycle later.
    """

    def __init__(self, shape: Any) -> None:
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        spare = Signal.like(self.o.payload)
        spare_valid = Signal()
        m.d.comb += self.i.ready.eq(~spare_valid)
        with m.If(self.o.ready | ~self.o.valid):
            m.d.sync += spare_valid.eq(0)
            m.d.sync += self.o.valid.eq(self.i.valid | spare_valid)
            m.d.sync += self.o.payload.eq(Mux(spare_valid, spare, self.i.payload))
        with m.Elif(self.i.valid & self.i.ready):
            m.d.sync += [spare.eq(self.i.payload), spare_valid.eq(1)]
        return m


class Hold(wiring.Component):
    """A register for a payload, with no combinational path from any input to any output.

    It takes a payload in every other cycle at most, and half of what a `SkidBuffer` does.
    """

    def __init__(self, shape: Any) -> None:
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.d.comb += self.i.ready.eq(~self.o.valid)
        # While it is empty, it takes whatever stands there: a payload's registers wait for no `valid`.
        with m.If(~self.o.valid):
            m.d.sync += [self.o.payload.eq(self.i.payload), self.o.valid.eq(self.i.valid)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        return m


class Queue(wiring.Component):
    """A first-in first-out queue of `depth` payloads; `level` is how many it holds.

    storage: "block" for block RAM, with two cycles from input to output; "lut" for memory made of logic, with
    one. Both take and give a payload in every cycle. `ready` and `valid` come from registers and comparisons.
    """

    def __init__(self, shape: Any, depth: int, storage: Literal["block", "lut"] = "block") -> None:
        if depth < 1:
            raise GatewareError(f"A queue holds at least one payload, not {depth}.")
        if storage not in ("block", "lut"):
            raise GatewareError(f"A queue's storage is 'block' or 'lut', not {storage!r}.")
        self.shape, self.depth, self.storage = shape, depth, storage
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        # Without the attribute a small queue becomes logic even where block RAM was asked for.
        # Nothing is fetched in the cycle in which it comes.
        attributes = {"ram_style": "block", **NO_COLLISION} if self.storage == "block" else {}
        memory = Memory(
            shape=unsigned(Shape.cast(self.shape).width), depth=self.depth, init=[], attrs=attributes
        )
        m.submodules.memory = memory
        write = memory.write_port()
        into, out_of = Signal(range(self.depth)), Signal(range(self.depth))
        push, pop, fetch = Signal(), Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(self.level != self.depth),
            push.eq(self.i.valid & self.i.ready),
            pop.eq(self.o.valid & self.o.ready),
            write.addr.eq(into),
            write.data.eq(self.i.payload),
            write.en.eq(push),
        ]
        if self.storage == "block":
            # The memory's output register holds the payload on offer: it is read ahead.
            read = memory.read_port()
            stored = Signal.like(self.level)  # not yet read
            m.d.comb += [
                fetch.eq((stored != 0) & (self.o.ready | ~self.o.valid)),
                read.en.eq(fetch),
            ]
            m.d.sync += [
                stored.eq(stored + push - fetch),
                self.o.valid.eq(fetch | (self.o.valid & ~self.o.ready)),
            ]
        else:
            read = memory.read_port(domain="comb")
            m.d.comb += [fetch.eq(pop), self.o.valid.eq(self.level != 0)]
        m.d.comb += [read.addr.eq(out_of), self.o.payload.eq(read.data)]
        m.d.sync += self.level.eq(self.level + push - pop)
        for pointer, step in ((into, push), (out_of, fetch)):
            with m.If(step):
                m.d.sync += pointer.eq(Mux(pointer == self.depth - 1, 0, pointer + 1))
        return m
