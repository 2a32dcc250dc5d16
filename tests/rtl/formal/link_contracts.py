"""What is proved about the ends of the link: every message is taken whole, told once, and sent whole."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, ResetSignal, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.isa.memory import READ_LATENCY
from amphw.rtl.isa.wire import Kind
from tests.rtl.formal.contracts import COUNT, Contract, keeps_offers, transfer, within

WORD, HEADER_WORDS, ADDRESS = 8, 4, 4
FIELDS = {
    "kind": 4,
    "words": 3,  # not in the last word
    "output": 2,
    "slot": 2,
    "generation": 2,
    "unit": 2,
    "firing": 3,
    "place": 4,
    "payload": 4,
    "copy": 3,
    "state": 3,
}


class MessageLayout(data.StructLayout):
    """A header of fewer bits, as a proof is a matter of minutes with the real one."""

    def __init__(self) -> None:
        super().__init__(FIELDS)


class Job(data.StructLayout):
    def __init__(self) -> None:
        super().__init__({"header": MessageLayout(), "source": ADDRESS})


SMALL = {
    "WORD": WORD,
    "HEADER_WORDS": HEADER_WORDS,
    "ADDRESS": ADDRESS,
    "MessageLayout": MessageLayout,
    "Job": Job,
}
"""Constants of the module of the link."""


class ThereAndBack(wiring.Component):
    """An encoder of words and its decoder, one behind the other."""

    def __init__(self, encoder: type, decoder: type) -> None:
        self.encoder, self.decoder = encoder, decoder
        word = stream.Signature(unsigned(16))
        told = {name: Out(1) for name in ("damaged", "missing", "failed")}
        super().__init__({"i": In(word), "o": Out(word), **told})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.encoder = encoder = self.encoder()
        m.submodules.decoder = decoder = self.decoder()
        wiring.connect(m, wiring.flipped(self.i), encoder.i)
        wiring.connect(m, encoder.o, decoder.i)
        wiring.connect(m, decoder.o, wiring.flipped(self.o))
        for name in ("damaged", "missing", "failed"):
            m.d.comb += getattr(self, name).eq(getattr(decoder, name))
        m.d.comb += Assert(~self.damaged & ~self.missing & ~self.failed)
        return m


class Receives(Contract):
    """Messages of any content, with up to two words: each is taken whole and told to one party, once.

    A word goes to memory in the order of its arrival, at the next address, and inside of it. What is told is
    the header of the message that was taken last. With parties that are ready, nothing waits for long.
    """

    MOST = 2

    def __init__(self, design: Any) -> None:
        free = {"valid": 1, "word": WORD, "ready": 3, "done": 1, "generation": 2}
        super().__init__(design, free, {})

    def check(self, m: Module, design: Any) -> None:
        m.d.comb += Assume(~ResetSignal())
        ports = (design.event, design.request, design.fault)
        m.d.comb += [design.words.valid.eq(self.valid), design.words.payload.eq(self.word)]
        m.d.comb += [
            design.generation.eq(self.generation),
            design.receive.done.eq(design.receive.en & self.done),
        ]
        m.d.comb += [port.ready.eq(self.ready[k]) for k, port in enumerate(ports)]
        keeps_offers(m, design.words, Assume)
        for port in ports:
            keeps_offers(m, port, Assert)
        # The message as it should be: words of the header that are there, and of the payload that are left.
        header, at, left, stored = Signal(MessageLayout()), Signal(4), Signal(COUNT), Signal(COUNT)
        took, told = transfer(design.words), Cat(transfer(port) for port in ports)
        # Of a table nobody is told: the next message begins.
        table = (header.kind == Kind.TABLE) & (left == 0) & (stored == header.words)
        silent = (at == HEADER_WORDS) & table & design.resting
        now = Mux(silent, 0, at)
        whole = now == HEADER_WORDS
        m.d.comb += Assert(~took | ~whole | (left != 0))  # no word of the next one before this one is told
        m.d.comb += Assume((at != HEADER_WORDS) | (header.words <= self.MOST))
        with m.If(silent | told.any()):
            m.d.sync += at.eq(0)
        with m.If(took & ~whole):
            m.d.sync += header.as_value().word_select(now, WORD).eq(self.word)
            m.d.sync += [at.eq(now + 1), stored.eq(0)]
        with m.If(took & (now == HEADER_WORDS - 1)):
            m.d.sync += left.eq(header.words)
        with m.If(took & whole):
            m.d.sync += left.eq(left - 1)
        wrote = Cat(design.receive.en & design.receive.done, design.table_en)
        address = Mux(design.table_en, design.table_addr, design.receive.addr)
        value = Mux(design.table_en, design.table_data, design.receive.data)
        room = Mux(design.table_en, design.shape.table, design.payload_depth)
        with m.If(wrote.any()):
            m.d.sync += stored.eq(stored + 1)
            m.d.comb += [
                Assert(took & whole & ~wrote.all()),
                Assert(address == (header.payload + stored)[: len(address)]),
                Assert(value[:WORD] == self.word),
                Assert(header.payload + stored < room),
            ]
        m.d.comb += Assert((told & (told - 1)[: len(told)]) == 0)
        with m.If(told.any()):
            m.d.comb += [
                Assert(whole & (left == 0)),
                Assert(told[2] | (stored == header.words)),  # not told before its words are in memory
                Assert(~told[0] | (design.event.payload.as_value() == header.as_value())),
                Assert(~told[1] | (design.request.payload.as_value() == header.as_value())),
                Assert(~told[2] | (design.fault.payload.slot == header.slot)),
                Assert(~told[2] | (design.fault.payload.words == 0)),
            ]
        willing = self.ready.all() & (self.valid | (whole & (left == 0))) & self.done
        within(m, 3, willing, took | told.any() | silent)
        m.d.comb += [Cover(told[0] & (stored == 2)), Cover(told[2] & (header.words == 2)), Cover(silent)]


class Sends(Contract):
    """Jobs with up to three words: for each its header and its words leave, in order, and nothing else."""

    MOST = 3  # more than are read ahead

    def __init__(self, design: Any) -> None:
        job = design.jobs.payload.shape()
        free = {"valid": 1, "job": job, "ready": 1, "done": 1, "generation": 2}
        super().__init__(design, free, {"a": WORD, "b": WORD})

    def check(self, m: Module, design: Any) -> None:
        m.d.comb += [
            design.jobs.valid.eq(self.valid),
            design.jobs.payload.as_value().eq(self.job),
            design.words.ready.eq(self.ready),
            design.generation.eq(self.generation),
            design.send.done.eq(design.send.en & self.done),
        ]
        keeps_offers(m, design.jobs, Assume)
        keeps_offers(m, design.words, Assert)
        m.d.comb += Assume(design.jobs.payload.header.words <= self.MOST)
        # Memory holds `a` at the job's first address and `b` everywhere else; it answers in one cycle alone.
        job, under_way, sent = Signal(design.jobs.payload.shape()), Signal(), Signal(COUNT)
        answers, second = design.send.done, design.send.addr != job.source
        for cycle in range(READ_LATENCY):
            later = Signal(name=f"answers{cycle}"), Signal(name=f"second{cycle}")
            m.d.sync += [later[0].eq(answers), later[1].eq(second)]
            answers, second = later
        m.d.comb += design.send.data.eq(Mux(answers, Mux(second, self.b, self.a), ~self.a))
        kept = Signal(2)
        begun = Signal()
        m.d.sync += begun.eq(transfer(design.jobs))
        with m.If(begun):
            m.d.sync += kept.eq(self.generation)
        own = (job.header.kind != Kind.FAULT) & (job.header.kind != Kind.VALUE)
        expected = Signal(MessageLayout())
        m.d.comb += [expected.eq(job.header)]
        with m.If(own):
            m.d.comb += expected.generation.eq(kept)
        with m.If(transfer(design.jobs)):
            m.d.sync += [job.eq(design.jobs.payload), under_way.eq(1), sent.eq(0)]
            m.d.comb += Assert(~under_way | (sent == HEADER_WORDS + job.header.words))
        out = transfer(design.words)
        word = Mux(sent == HEADER_WORDS, self.a, self.b)
        with m.If(out):
            m.d.sync += sent.eq(sent + 1)
            m.d.comb += [
                Assert(under_way & (sent < HEADER_WORDS + job.header.words)),
                Assert(
                    design.words.payload
                    == Mux(sent < HEADER_WORDS, expected.as_value().word_select(sent, WORD), word)
                ),
            ]
        within(
            m,
            READ_LATENCY + 4,
            (self.valid | (under_way & (sent < HEADER_WORDS + job.header.words))) & self.ready & self.done,
            out | transfer(design.jobs),
        )
        m.d.comb += [
            Cover(transfer(design.jobs) & (sent == HEADER_WORDS + 1)),
            Cover(out & (sent == HEADER_WORDS + 1)),
        ]
