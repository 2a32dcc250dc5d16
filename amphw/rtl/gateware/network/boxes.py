"""Words of a session on their way: those received in order, and those sent and not yet confirmed."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.ports import NO_COLLISION
from amphw.rtl.gateware.streams import GatewareError
from amphw.rtl.isa.wire import WORD

STREAM = stream.Signature(unsigned(WORD))


def checked(depth: int) -> int:
    """Raises GatewareError unless places are the low bits of numbers: depths are powers of two."""
    if depth < 4 or depth & (depth - 1):
        raise GatewareError(f"Room for words of a session is a power of two of at least 4, not {depth}.")
    return depth


def _memory(depth: int, width: int = WORD) -> Memory:
    return Memory(shape=unsigned(width), depth=depth, init=[], attrs={"ram_style": "block", **NO_COLLISION})


class Inbox(wiring.Component):
    """A queue whose words are put into it before it is known whether they count.

    begin: words that follow are those of another datagram; room: how many it has taken to fit by then. put:
    `word` is the next. accept: the first `words` of them, no more than `room`, are now behind those in here;
    put and begin do not come in that cycle. free: places now. forget: all that is in here, but for a word on
    offer, which a stream may not take back. took: for a cycle, a place has become free. width: of a word, in
    bits.
    """

    def __init__(self, depth: int, width: int = WORD) -> None:
        self.depth, self.width = checked(depth), width
        count = range(depth + 1)
        super().__init__(
            {
                "begin": In(1),
                "put": In(1),
                "word": In(width),
                "accept": In(1),
                "words": In(count),
                "forget": In(1),
                "room": Out(count),
                "free": Out(count, init=depth),
                "took": Out(1),
                "o": Out(stream.Signature(unsigned(width))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.memory = memory = _memory(self.depth, self.width)
        write, read = memory.write_port(), memory.read_port()
        end, out_of = Signal(range(self.depth)), Signal(range(self.depth))
        offset = Signal.like(self.free, init=0)
        fits = Signal()
        m.d.comb += [
            fits.eq(offset < self.room),
            write.addr.eq(end + offset),
            write.data.eq(self.word),
            write.en.eq(self.put & fits),
            self.took.eq((self.free != self.depth) & (self.o.ready | ~self.o.valid) & ~self.forget),
            read.addr.eq(out_of),
            read.en.eq(self.took),
            self.o.payload.eq(read.data),
        ]
        with m.If(self.begin):
            m.d.sync += [offset.eq(0), self.room.eq(self.free)]
        with m.Elif(self.put & fits):
            m.d.sync += offset.eq(offset + 1)
        accepted = Mux(self.accept, self.words, 0)
        m.d.sync += [
            self.o.valid.eq(self.took | (self.o.valid & ~self.o.ready)),
            out_of.eq(out_of + self.took),
            end.eq(end + accepted),
            self.free.eq(self.free + self.took - accepted),
        ]
        with m.If(self.forget):
            m.d.sync += [out_of.eq(end), self.free.eq(self.depth)]
        return m


class Outbox(wiring.Component):
    """Words that are kept until the other end confirms them. i: further ones, while there is room.

    level: words in here; sent: of these, how many have been sent. send: the next `words` are sent, of which
    there are so many; the first of them is at `place`. confirm: the other end has the first `words`.
    rewind: none of them has been sent. forget: all of them. Of these four at most one is set. word: what
    lies at `at`, in the cycle after `fetch`.
    """

    def __init__(self, depth: int) -> None:
        self.depth = checked(depth)
        count, place = range(depth + 1), range(depth)
        super().__init__(
            {
                "i": In(STREAM),
                "level": Out(count),
                "sent": Out(count),
                "place": Out(place),
                "words": In(count),
                **{name: In(1) for name in ("send", "confirm", "rewind", "forget", "fetch")},
                "at": In(place),
                "word": Out(WORD),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.memory = memory = _memory(self.depth)
        write, read = memory.write_port(), memory.read_port()
        first, end, push = Signal(range(self.depth)), Signal(range(self.depth)), Signal()
        confirmed = Mux(self.confirm, self.words, 0)
        m.d.comb += [
            self.i.ready.eq(self.level != self.depth),
            push.eq(self.i.valid & self.i.ready),
            write.addr.eq(end),
            write.data.eq(self.i.payload),
            write.en.eq(push),
            read.addr.eq(self.at),
            read.en.eq(self.fetch),
            self.word.eq(read.data),
            self.place.eq(first + self.sent),
        ]
        m.d.sync += [
            end.eq(end + push),
            first.eq(first + confirmed),
            self.level.eq(self.level + push - confirmed),
        ]
        with m.If(self.send):
            m.d.sync += self.sent.eq(self.sent + self.words)
        with m.Elif(self.confirm):
            m.d.sync += self.sent.eq(Mux(self.sent > self.words, self.sent - self.words, 0))
        with m.Elif(self.rewind | self.forget):
            m.d.sync += self.sent.eq(0)
        with m.If(self.forget):
            m.d.sync += [first.eq(end + push), self.level.eq(0)]
        return m
