"""Both ends of the link inside the device: words become messages, messages become words.

Receiving never waits for sending, except to report a fault: a payload goes to memory that the host has
reserved, and what the message says goes to whom it concerns.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Signal, signed, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from amphw.rtl.gateware.controller.memory import ADDRESS, ControlShape
from amphw.rtl.gateware.controller.ports import Free, Job, MessageLayout
from amphw.rtl.gateware.streams import Queue, SkidBuffer
from amphw.rtl.isa.commands import Bank
from amphw.rtl.isa.memory import READ_LATENCY
from amphw.rtl.isa.wire import HEADER_WORDS, WORD, Fault, Kind, Register


class Generations(wiring.Component):
    """The generation of each slot: a message of another one is late."""

    def __init__(self, slots: int):
        self.slots = max(2, slots)
        slot = ceil_log2(self.slots)
        super().__init__(
            {
                "en": In(1),
                "slot": In(8),
                "generation": In(8),
                **{name: In(slot) for name in ("slot_in", "slot_out")},
                "held": Out(8),
                "out": Out(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=unsigned(8), depth=self.slots, init=[])
        write = memory.write_port()
        m.d.comb += [write.en.eq(self.en), write.addr.eq(self.slot), write.data.eq(self.generation)]
        for name, kept in (("in", self.held), ("out", self.out)):
            read = memory.read_port(domain="comb")
            m.d.comb += [read.addr.eq(getattr(self, f"slot_{name}")), kept.eq(read.data)]
        return m


class Receiver(wiring.Component):
    """words: from the host. event: for the controller, its payload in memory. request: for the keeper.

    fault: what was dropped. receive: payload memory. table_*: table memory. begins: an instance takes a slot.
    """

    def __init__(self, shape: ControlShape, payload_depth: int):
        self.shape, self.payload_depth = shape, payload_depth
        super().__init__(
            {
                "words": In(stream.Signature(unsigned(WORD))),
                "event": Out(stream.Signature(MessageLayout())),
                "request": Out(stream.Signature(MessageLayout())),
                "fault": Out(stream.Signature(MessageLayout())),
                "receive": Out(Free(write=True)),
                "table_en": Out(1),
                "table_addr": Out(ceil_log2(shape.table)),
                "table_data": Out(signed(WORD)),
                "slot": Out(8),
                "generation": In(8),
                "begins": Out(1),
                "begins_generation": Out(8),
                "resting": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        header = Signal(MessageLayout())
        words = Array([Signal(WORD, name=f"word{k}") for k in range(HEADER_WORDS)])
        at = Signal(range(HEADER_WORDS + 1))
        left, address = Signal(ADDRESS), Signal(ADDRESS)
        code = Signal(Fault)
        late, outside, too_long = Signal(), Signal(), Signal()
        m.d.comb += [header.as_value().eq(Cat(*words)), self.slot.eq(header.slot)]
        m.d.comb += [self.event.payload.eq(header), self.request.payload.eq(header)]
        m.d.comb += [self.receive.addr.eq(address), self.receive.data.eq(self.words.payload)]
        m.d.comb += [self.table_addr.eq(address), self.table_data.eq(self.words.payload)]
        m.d.comb += self.begins_generation.eq(header.generation)
        # What follows the header of a kind without words would be taken for headers.
        bare = (Kind.BEGIN, Kind.FIRINGS, Kind.POKE, Kind.PEEK, Kind.UPDATE)
        m.d.sync += [
            late.eq(header.generation != self.generation),
            outside.eq(self._outside(m, header)),
            too_long.eq(header.kind.matches(*bare) & (header.words != 0)),
        ]
        with m.FSM(name="receiver") as fsm:
            m.d.comb += self.resting.eq(fsm.ongoing("HEADER") & (at == 0))
            with m.State("HEADER"):
                m.d.comb += self.words.ready.eq(1)
                with m.If(self.words.valid):
                    m.d.sync += [words[at].eq(self.words.payload), at.eq(at + 1)]
                    with m.If(at == HEADER_WORDS - 1):
                        m.d.sync += at.eq(0)
                        m.next = "JUDGE"
            with m.State("JUDGE"):  # what is wrong with it is found out
                m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += [left.eq(header.words), address.eq(header.payload)]
                with m.Switch(header.kind):
                    with m.Case(Kind.FORWARD, Kind.BACKWARD, Kind.TABLE, Kind.FIRINGS):
                        m.next = "WORDS"
                        with m.If(late):
                            self._drop(m, code, Fault.LATE)
                    with m.Case(Kind.BEGIN):
                        m.d.comb += self.begins.eq(~outside & ~too_long)
                        m.next = "EVENT"
                    with m.Case(Kind.POKE, Kind.PEEK, Kind.UPDATE):
                        m.next = "REQUEST"
                    with m.Default():
                        self._drop(m, code, Fault.UNKNOWN)
                with m.If(outside):
                    self._drop(m, code, Fault.OUTSIDE)
                with m.If(too_long):
                    self._drop(m, code, Fault.LENGTH)
            with m.State("WORDS"):
                with m.If(left == 0):
                    m.next = "EVENT"
                    with m.If(header.kind == Kind.TABLE):
                        m.next = "HEADER"
                with m.Elif(header.kind == Kind.TABLE):
                    m.d.comb += [self.words.ready.eq(1), self.table_en.eq(self.words.valid)]
                with m.Else():
                    m.d.comb += [
                        self.receive.en.eq(self.words.valid),
                        self.words.ready.eq(self.receive.done),
                    ]
                self._count(m, left, address)
            with m.State("DROP"):
                m.d.comb += self.words.ready.eq(left != 0)
                self._count(m, left, address)
                with m.If(left == 0):
                    m.next = "FAULT"
            for name, port in (("EVENT", self.event), ("REQUEST", self.request), ("FAULT", self.fault)):
                with m.State(name):
                    m.d.comb += port.valid.eq(1)
                    with m.If(port.ready):
                        m.next = "HEADER"
        m.d.comb += [
            self.fault.payload.eq(header),
            self.fault.payload.kind.eq(Kind.FAULT),
            self.fault.payload.output.eq(code),
            self.fault.payload.words.eq(0),
        ]
        return m

    def _outside(self, m: Module, header: Any) -> Signal:
        """Whether a message names what this device does not have."""
        s = self.shape
        end = Signal(ADDRESS + 1)
        last = Signal(ADDRESS + 1)
        m.d.comb += [end.eq(header.payload + header.words), last.eq(header.firing + header.copy)]
        outside, elsewhere = Signal(), Signal()
        m.d.comb += elsewhere.eq(header.slot >= s.slots)
        with m.Switch(header.kind):
            with m.Case(Kind.FORWARD, Kind.BACKWARD):
                m.d.comb += outside.eq(
                    elsewhere
                    | (end > self.payload_depth)
                    | (header.firing >= s.firings)
                    | (header.place >= s.places)
                    | (header.output >= max(1, s.outputs))
                )
            with m.Case(Kind.TABLE):
                m.d.comb += outside.eq(elsewhere | (end > s.table))
            with m.Case(Kind.FIRINGS):
                m.d.comb += outside.eq(elsewhere | (last > s.firings) | (header.unit >= s.units))
            with m.Case(Kind.BEGIN):
                m.d.comb += outside.eq(elsewhere)
            with m.Case(Kind.POKE):
                written = header.place.matches(*Bank, Register.VERSION, Register.ROWS)
                m.d.comb += outside.eq((header.unit >= s.units) | ~written)
            with m.Case(Kind.PEEK):
                m.d.comb += outside.eq((header.unit >= s.units) | ~header.place.matches(*Bank, *Register))
            with m.Case(Kind.UPDATE):
                m.d.comb += outside.eq(header.unit >= s.units)
        return outside

    def _drop(self, m: Module, code: Any, fault: Fault) -> None:
        m.d.sync += code.as_value().eq(int(fault)) if hasattr(code, "as_value") else code.eq(int(fault))
        m.next = "DROP"

    def _count(self, m: Module, left: Any, address: Any) -> None:
        with m.If(self.words.valid & self.words.ready):
            m.d.sync += [left.eq(left - 1), address.eq(address + 1)]


AHEAD = 8
"""Words of a payload that the sender reads ahead, more than are on their way from memory at a time."""


class Sender(wiring.Component):
    """jobs: messages, their payload in payload memory. words: to the host. slot, generation: looked up."""

    def __init__(self) -> None:
        super().__init__(
            {
                "jobs": In(stream.Signature(Job())),
                "send": Out(Free(write=False)),
                "words": Out(stream.Signature(unsigned(WORD))),
                "slot": Out(8),
                "generation": In(8),
                "resting": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        job = Signal(Job())
        at = Signal(range(HEADER_WORDS))
        left = Signal(ADDRESS)  # words of the payload that have not left
        header = Signal(MessageLayout())
        m.submodules.out = out = SkidBuffer(unsigned(WORD))
        wiring.connect(m, out.o, wiring.flipped(self.words))
        begins = Signal()
        fetched = self._fetch(m, begins, job)
        m.d.comb += self.slot.eq(job.header.slot)
        words = Array(header.as_value().word_select(k, WORD) for k in range(HEADER_WORDS))
        with m.FSM(name="sender") as fsm:
            m.d.comb += self.resting.eq(fsm.ongoing("IDLE") & ~self.jobs.valid)
            with m.State("IDLE"):
                m.d.comb += self.jobs.ready.eq(1)
                m.d.sync += [job.eq(self.jobs.payload), at.eq(0)]
                with m.If(self.jobs.valid):
                    m.next = "LOOK UP"
            with m.State("LOOK UP"):
                m.d.comb += begins.eq(1)
                m.d.sync += [left.eq(job.header.words), header.eq(job.header)]
                with m.If((job.header.kind != Kind.FAULT) & (job.header.kind != Kind.VALUE)):
                    m.d.sync += header.generation.eq(self.generation)
                m.next = "HEADER"
            with m.State("HEADER"):
                m.d.comb += [out.i.valid.eq(1), out.i.payload.eq(words[at])]
                with m.If(out.i.ready):
                    m.d.sync += at.eq(at + 1)
                    with m.If(at == HEADER_WORDS - 1):
                        m.next = "WORDS"
            with m.State("WORDS"):
                m.d.comb += [
                    out.i.valid.eq(fetched.valid),
                    out.i.payload.eq(fetched.payload),
                    fetched.ready.eq(out.i.ready),
                ]
                with m.If(left == 0):
                    m.next = "LEAVES"
                with m.Elif(fetched.valid & fetched.ready):
                    m.d.sync += left.eq(left - 1)
            with m.State("LEAVES"):  # the next message begins when this one is gone
                with m.If(~self.words.valid):
                    m.next = "IDLE"
        return m

    def _fetch(self, m: Module, begins: Signal, job: Any) -> Any:
        """Reads a job's words ahead, while its header leaves -> a stream of them.

        A word is asked for only if there is room for it and for all that are on their way.
        """
        m.submodules.fetched = fetched = Queue(unsigned(WORD), AHEAD, storage="lut")
        unasked, address = Signal(ADDRESS), Signal(ADDRESS)
        coming, room = Signal(READ_LATENCY), Signal(range(AHEAD + 1), init=AHEAD)
        leaves = fetched.o.valid & fetched.o.ready
        # Known a cycle before: there was room for two.
        more, fits = Signal(), Signal()
        m.d.sync += fits.eq(room > 1)
        m.d.comb += [
            self.send.en.eq(more & fits),
            self.send.addr.eq(address),
            fetched.i.valid.eq(coming[-1]),
            fetched.i.payload.eq(self.send.data),
        ]
        m.d.sync += [coming.eq(Cat(self.send.done, coming)), room.eq(room - self.send.done + leaves)]
        with m.If(begins):
            m.d.sync += [unasked.eq(job.header.words), more.eq(job.header.words != 0)]
            m.d.sync += address.eq(job.source)
        with m.Elif(self.send.done):
            m.d.sync += [unasked.eq(unasked - 1), more.eq(unasked != 1), address.eq(address + 1)]
        return fetched.o
