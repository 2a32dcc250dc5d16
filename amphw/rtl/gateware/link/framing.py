"""16-bit words as bytes and back; the format, and why it is so, are in `amphw/rtl/isa/word_frames.py`."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import crc, stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.streams import Queue
from amphw.rtl.isa.word_frames import ALARM, BLOCK, NO_WORD, QUEUE, SEQUENCE, START

BYTE = stream.Signature(unsigned(8))
WORD = stream.Signature(unsigned(16))
CRC32 = crc.catalog.CRC32_ISO_HDLC
DIGIT = 2
"""Bits of a word that go into its check in one cycle: a line leaves time, and an iCE40 little room."""


class WordEncoder(wiring.Component):
    """A stream of words into a stream of bytes, three each, with checks. It holds the word that it sends.

    alarm: for a cycle; the signal of that name goes out as soon as may be.
    """

    def __init__(self) -> None:
        super().__init__({"i": In(WORD), "o": Out(BYTE), "alarm": In(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.crc = check = CRC32(data_width=DIGIT).create()
        value, mark, odd = Signal(16), Signal(4), Signal()  # of what is sent
        digit = Signal(range(16 // DIGIT))
        sequence, count = Signal(4), Signal(range(BLOCK + 1))
        half, alarming = Signal(), Signal()
        parity = value.xor() ^ mark.xor() ^ ~odd  # the first byte's top bit is set
        with m.If(self.alarm):
            m.d.sync += alarming.eq(1)
        m.d.comb += check.data.eq(value.word_select(digit, DIGIT))
        with m.FSM(name="encoder"):
            with m.State("Choose"):
                m.d.sync += [mark.eq(NO_WORD), odd.eq(1)]
                with m.If(half):
                    m.d.sync += [value.eq(check.crc[16:]), half.eq(0), count.eq(0)]
                    m.next = "First"
                with m.Elif(alarming):
                    m.d.sync += [value.eq(ALARM), odd.eq(0), alarming.eq(self.alarm)]
                    m.next = "First"
                with m.Elif((count == BLOCK) | ((count != 0) & ~self.i.valid)):
                    m.d.sync += [value.eq(check.crc[:16]), half.eq(1)]
                    m.next = "First"
                with m.Elif(self.i.valid):
                    m.d.comb += [self.i.ready.eq(1), check.start.eq(count == 0)]
                    m.d.sync += [
                        value.eq(self.i.payload),
                        mark.eq(sequence),
                        sequence.eq(Mux(sequence == SEQUENCE - 1, 0, sequence + 1)),
                        count.eq(count + 1),
                    ]
                    m.next = "Sum"
            with m.State("Sum"):
                m.d.comb += check.valid.eq(1)
                m.d.sync += digit.eq(digit + 1)
                with m.If(digit == 16 // DIGIT - 1):
                    m.next = "First"
            for name, then, byte in (
                ("First", "Middle", Cat(value[14:], parity, mark, Const(1, 1))),
                ("Middle", "Last", value[7:14]),
                ("Last", "Choose", value[:7]),
            ):
                with m.State(name):
                    m.d.comb += [self.o.payload.eq(byte), self.o.valid.eq(1)]
                    with m.If(self.o.ready):
                        m.next = then
        return m


class WordDecoder(wiring.Component):
    """A stream of bytes into a stream of words.

    `damaged` is set in the cycle in which bytes are dropped because they are nothing; `missing` in the cycle
    in which a word is delivered, if its number is not the one after the word before: some were lost; `failed`
    when a check is not that of the words before it; `started` when the other end starts anew.
    """

    def __init__(self) -> None:
        told = ("damaged", "missing", "failed", "started")
        super().__init__({"i": In(BYTE), "o": Out(WORD), **{name: Out(1) for name in told}})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        byte = self.i.payload
        starts = byte[7]
        head, middle = Signal(7), Signal(7)
        expected, counting = Signal(4), Signal()
        taken, whole, word = Signal(), Signal(), Signal()
        mark, value = head[3:], Cat(byte[:7], middle, head[:2])
        m.d.comb += [
            taken.eq(self.i.valid & self.i.ready),
            whole.eq(~(head.xor() ^ middle.xor() ^ byte.xor())),  # with the top bit of the first: odd
            word.eq(whole & (mark != NO_WORD)),
            self.o.payload.eq(value),
        ]
        sums, checks, delivers = Signal(), Signal(), Signal()
        digit = Signal(range(16 // DIGIT))
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
                with m.Elif(~word):
                    m.d.comb += [
                        self.i.ready.eq(1),
                        checks.eq(taken & whole),
                        self.started.eq(taken & ~whole & (mark == NO_WORD) & (value == START)),
                        self.damaged.eq(taken & ~whole & ~self.started),
                    ]
                    with m.If(taken):
                        m.next = "First"
                with m.Elif(self.i.valid):
                    m.d.comb += sums.eq(1)
                    m.d.sync += digit.eq(digit + 1)
                    with m.If(digit == 16 // DIGIT - 1):
                        m.next = "Deliver"
            with m.State("Deliver"):
                m.d.comb += [self.o.valid.eq(1), self.i.ready.eq(self.o.ready)]
                with m.If(taken):
                    m.d.comb += [delivers.eq(1), self.missing.eq(counting & (mark != expected))]
                    m.d.sync += [expected.eq(Mux(mark == SEQUENCE - 1, 0, mark + 1)), counting.eq(1)]
                    m.next = "First"
        with m.If(self.started):
            m.d.sync += [expected.eq(0), counting.eq(1)]
        self._check(m, value, value.word_select(digit, DIGIT), sums, delivers, checks)
        return m

    def _check(self, m: Module, value: Any, digit: Any, sums: Any, delivers: Any, checks: Any) -> None:
        """sums: the digit belongs to a word. delivers: a word has gone on. checks: half a check has come."""
        m.submodules.crc = check = CRC32(data_width=DIGIT).create()
        half, differs = Signal(), Signal()
        fresh, known = Signal(init=1), Signal()
        m.d.comb += [check.data.eq(digit), check.valid.eq(sums), check.start.eq(sums & fresh)]
        with m.If(sums):
            m.d.sync += fresh.eq(0)
        with m.If(delivers):
            m.d.comb += self.failed.eq(half)
            m.d.sync += half.eq(0)
        with m.Elif(checks):
            unlike = value != Mux(half, check.crc[16:], check.crc[:16])
            m.d.comb += self.failed.eq(half & known & (differs | unlike))
            m.d.sync += [differs.eq(unlike), half.eq(~half)]
            with m.If(half):
                m.d.sync += [fresh.eq(1), known.eq(1)]
        with m.Elif(self.started):
            m.d.sync += [fresh.eq(1), known.eq(1), half.eq(0)]


def framed(m: Module, link: Any, received: Any, sent: Any, lost: Any = 0, depth: int = QUEUE) -> None:
    """Give a link, whose module is `m`, its words over two streams of bytes.

    link: has streams of words, `i` from the circuit and `o` to it, behind a queue of `depth` words; and
    `faults`, set in each cycle in which the line was seen to damage or lose something, or in which it says so
    itself (`lost`): the words that come out then are not all that were sent. The other end is told so, once
    until it starts anew.
    """
    m.submodules.decoder = decoder = WordDecoder()
    m.submodules.queue = queue = Queue(16, depth)
    m.submodules.encoder = encoder = WordEncoder()
    wiring.connect(m, received, decoder.i)
    wiring.connect(m, decoder.o, queue.i)
    wiring.connect(m, queue.o, wiring.flipped(link.o))
    wiring.connect(m, wiring.flipped(link.i), encoder.i)
    wiring.connect(m, encoder.o, sent)
    told = Signal()
    m.d.comb += [
        link.faults.eq(lost | decoder.damaged | decoder.missing | decoder.failed),
        encoder.alarm.eq(link.faults & ~told),
    ]
    m.d.sync += told.eq((told | link.faults) & ~decoder.started)
