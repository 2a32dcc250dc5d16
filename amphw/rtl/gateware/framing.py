"""16-bit words as bytes and back; the format, and why it is so, are in `amphw/rtl/word_frames.py`."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

BYTE = stream.Signature(unsigned(8))
WORD = stream.Signature(unsigned(16))


class WordEncoder(wiring.Component):
    """A stream of words into a stream of bytes, three each. Takes a word in the cycle of its last byte."""

    def __init__(self) -> None:
        super().__init__({"i": In(WORD), "o": Out(BYTE)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        word, sequence = self.i.payload, Signal(4)
        even = ~(word.xor() ^ sequence.xor() ^ 1)  # without the parity bit; the first byte's top bit is set
        m.d.comb += self.o.valid.eq(self.i.valid)
        with m.FSM(name="encoder"):
            with m.State("First"):
                m.d.comb += self.o.payload.eq(Cat(word[14:], even, sequence, Const(1, 1)))
                with m.If(self.o.valid & self.o.ready):
                    m.next = "Middle"
            with m.State("Middle"):
                m.d.comb += self.o.payload.eq(word[7:14])
                with m.If(self.o.valid & self.o.ready):
                    m.next = "Last"
            with m.State("Last"):
                m.d.comb += [self.o.payload.eq(word[:7]), self.i.ready.eq(self.o.ready)]
                with m.If(self.o.valid & self.o.ready):
                    m.d.sync += sequence.eq(sequence + 1)
                    m.next = "First"
        return m


class WordDecoder(wiring.Component):
    """A stream of bytes into a stream of words.

    `damaged` is set in the cycle in which bytes are dropped because they are no word; `missing` in the cycle
    in
    which a word is delivered, if its number is not the one after the word before: some were lost.
    """

    def __init__(self) -> None:
        super().__init__({"i": In(BYTE), "o": Out(WORD), "damaged": Out(1), "missing": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        byte = self.i.payload
        starts = byte[7]
        head, middle = Signal(7), Signal(7)
        expected, counting = Signal(4), Signal()
        taken, whole = Signal(), Signal()
        m.d.comb += [
            taken.eq(self.i.valid & self.i.ready),
            whole.eq(~(head.xor() ^ middle.xor() ^ byte.xor())),  # with the top bit of the first: odd
            self.o.payload.eq(Cat(byte[:7], middle, head[:2])),
        ]
        with m.FSM(name="decoder"):
            with m.State("First"):
                m.d.comb += [self.i.ready.eq(1), self.damaged.eq(taken & ~starts)]
                with m.If(taken & starts):
                    m.d.sync += head.eq(byte)
                    m.next = "Middle"
            with m.State("Middle"):
                m.d.comb += self.i.ready.eq(1)
                with m.If(taken & starts):
                    m.d.comb += self.damaged.eq(1)
                    m.d.sync += head.eq(byte)
                with m.Elif(taken):
                    m.d.sync += middle.eq(byte)
                    m.next = "Last"
            with m.State("Last"):
                with m.If(starts):
                    m.d.comb += [self.i.ready.eq(1), self.damaged.eq(taken)]
                    with m.If(taken):
                        m.d.sync += head.eq(byte)
                        m.next = "Middle"
                with m.Elif(~whole):
                    m.d.comb += [self.i.ready.eq(1), self.damaged.eq(taken)]
                    with m.If(taken):
                        m.next = "First"
                with m.Else():
                    m.d.comb += [self.o.valid.eq(self.i.valid), self.i.ready.eq(self.o.ready)]
                    with m.If(taken):
                        m.d.comb += self.missing.eq(counting & (head[3:] != expected))
                        m.d.sync += [expected.eq(head[3:] + 1), counting.eq(1)]
                        m.next = "First"
        return m
