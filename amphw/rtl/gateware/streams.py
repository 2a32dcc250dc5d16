"""What streams of a device pass through: a cut of long paths, queues, an arbiter, a demultiplexer, a join.

Every stream keeps the rules of `amaranth.lib.stream`: a payload is transferred in each cycle in which `valid`
and `ready` are set; `valid` does not wait for `ready`; and what is offered stays offered, unchanged, until it
is taken. Tests prove these and the order of the payloads, up to a depth, for every component here.
"""

from __future__ import annotations

from typing import Any, Literal

from amaranth.hdl import Module, Mux, Shape, Signal, unsigned
from amaranth.lib import data, stream, wiring
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


class Arbiter(wiring.Component):
    """Several streams into one, in turn: a stream waits for at most one turn of each other one.

    packets: a turn is a packet, up to the payload whose field `last` is set; else it is one payload.
    `source` is the number of the input that the payload on offer comes from.
    """

    def __init__(self, shape: Any, inputs: int, *, packets: bool = False) -> None:
        if inputs < 1:
            raise GatewareError(f"An arbiter has at least one input, not {inputs}.")
        if packets:
            _field(shape, "last", "An arbiter of packets")
        self.packets = packets
        super().__init__(
            {
                "i": In(stream.Signature(shape)).array(inputs),
                "o": Out(stream.Signature(shape)),
                "source": Out(range(inputs)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        count = len(self.i)
        held = Signal.like(self.source)  # whose turn it is, or was last
        locked = Signal()
        m.d.comb += self.source.eq(held)
        with m.If(~locked), m.Switch(held):
            for turn in range(count):
                with m.Case(turn):
                    for candidate in reversed(range(turn + 1, turn + 1 + count)):  # the last assignment wins
                        with m.If(self.i[candidate % count].valid):
                            m.d.comb += self.source.eq(candidate % count)
        with m.Switch(self.source):
            for number, port in enumerate(self.i):
                with m.Case(number):
                    m.d.comb += [
                        self.o.valid.eq(port.valid),
                        self.o.payload.eq(port.payload),
                        port.ready.eq(self.o.ready),
                    ]
        with m.If(self.o.valid):
            over = self.o.payload.last if self.packets else 1
            m.d.sync += [held.eq(self.source), locked.eq(~(self.o.ready & over))]
        return m


class Demultiplexer(wiring.Component):
    """One stream into several, by the payload's field `destination`; combinational.

    A payload for an output that does not exist is taken and dropped, and `stray` is set in that cycle.
    """

    def __init__(self, shape: Any, outputs: int, field: str = "destination") -> None:
        if outputs < 1:
            raise GatewareError(f"A demultiplexer has at least one output, not {outputs}.")
        _field(shape, field, "A demultiplexer")
        self.field = field
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)).array(outputs),
                "stray": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        destination = self.i.payload[self.field]
        for number, port in enumerate(self.o):
            m.d.comb += port.payload.eq(self.i.payload)
            if number < 1 << len(destination):  # others can never be meant
                with m.If(destination == number):
                    m.d.comb += [port.valid.eq(self.i.valid), self.i.ready.eq(port.ready)]
        if len(self.o) < 1 << len(destination):
            with m.If(destination >= len(self.o)):
                m.d.comb += [self.i.ready.eq(1), self.stray.eq(self.i.valid)]
        return m


class Join(wiring.Component):
    """Two streams into one of pairs; the two payloads of a pair have equal headers. Combinational.

    a, b: streams of {header, body}; o: a stream of {header, a, b} with both bodies.
    `mismatch` is set while the two inputs offer different headers. Neither moves then: their order was broken
    before, and no pair that can be made from here on is right.
    """

    def __init__(self, header: Any, a: Any, b: Any) -> None:
        super().__init__(
            {
                "a": In(stream.Signature(data.StructLayout({"header": header, "body": a}))),
                "b": In(stream.Signature(data.StructLayout({"header": header, "body": b}))),
                "o": Out(stream.Signature(data.StructLayout({"header": header, "a": a, "b": b}))),
                "mismatch": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        both, equal = Signal(), Signal()
        m.d.comb += [
            both.eq(self.a.valid & self.b.valid),
            equal.eq(self.a.payload.header == self.b.payload.header),
            self.mismatch.eq(both & ~equal),
            self.o.valid.eq(both & equal),
            self.o.payload.header.eq(self.a.payload.header),
            self.o.payload.a.eq(self.a.payload.body),
            self.o.payload.b.eq(self.b.payload.body),
            self.a.ready.eq(self.o.valid & self.o.ready),
            self.b.ready.eq(self.o.valid & self.o.ready),
        ]
        return m


def _field(shape: Any, name: str, who: str) -> None:
    members = getattr(shape, "members", {})
    if name not in members:
        known = ", ".join(map(str, members)) or "none"
        raise GatewareError(f"{who} needs payloads with a field {name}. Fields of this one: {known}.")
