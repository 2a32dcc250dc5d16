"""Datagrams of words taken apart and put together; the format is in `amphw/rtl/isa/datagrams.py`."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import crc, data, stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.network.internet import PEER
from amphw.rtl.isa.datagrams import ABOUT, CHECK, FIELDS, HEADER, MARK, VERSION
from amphw.rtl.isa.wire import WORD

HEADER_LAYOUT = data.StructLayout(dict(FIELDS))
CRC32 = crc.catalog.CRC32_ISO_HDLC


def _turned(word: Any) -> Any:
    """Headers of the Internet have their high bytes first, words of ours the low ones."""
    return Cat(word[8:], word[:8])


class DatagramReceiver(wiring.Component):
    """put: `word` is the next of a frame's UDP payload; fresh: another frame begins.

    header: of the datagram, until words of the next one come. begin: it is complete, words follow: each comes
    out in a cycle with `keep`, as `content`. whole: the datagram is complete, ours, and undamaged.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "word": In(WORD),
                "put": In(1),
                "fresh": In(1),
                "header": Out(HEADER_LAYOUT),
                "begin": Out(1),
                "content": Out(WORD),
                "keep": Out(1),
                "whole": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.crc = check = CRC32(data_width=WORD).create()
        at, left = Signal(range(HEADER + 1)), Signal(WORD + 1)  # words of the header; those behind it
        word, whole_header = _turned(self.word), Signal()
        m.d.comb += [
            whole_header.eq(at == HEADER),
            self.content.eq(word),
            self.begin.eq(self.put & (at == HEADER - 1)),
            self.keep.eq(self.put & whole_header & (left > CHECK)),
            check.start.eq(self.fresh),
            check.data.eq(word),
            check.valid.eq(self.put & (~whole_header | (left != 0))),
            self.whole.eq(
                whole_header
                & (left == 0)
                & check.match_detected
                & (self.header.mark == MARK)
                & (self.header.version == VERSION)
            ),
        ]
        with m.If(self.fresh):
            m.d.sync += at.eq(0)
        with m.Elif(self.put & ~whole_header):
            m.d.sync += [
                self.header.eq(Cat(self.header.as_value()[WORD:], word)),
                at.eq(at + 1),
                left.eq(word + CHECK),  # the header's last word says how many follow
            ]
        with m.Elif(self.put & (left != 0)):
            m.d.sync += left.eq(left - 1)
        return m


class DatagramSender(wiring.Component):
    """go: put a datagram together, of `header`, in which mark and version are not looked at, and of words:
    what the circuit says of itself (`about`), or those that lie one behind another from `place` on.

    fetch, at, word: to read these. o: the datagram as UDP's payload, of which one word is `last`.
    ready: nothing is being put together.
    """

    def __init__(self, mac: int, identity: int, places: int) -> None:
        self.mac, self.identity = mac, identity
        word = data.StructLayout({"word": WORD, "last": 1})
        super().__init__(
            {
                "go": In(1),
                "ready": Out(1),
                "header": In(HEADER_LAYOUT),
                "about": In(1),
                "began": In(32),
                "holder": In(PEER),
                "place": In(range(places)),
                "fetch": Out(1),
                "at": Out(range(places)),
                "word": In(WORD),
                "o": Out(stream.Signature(word)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.crc = check = CRC32(data_width=WORD).create()
        header, about, left = Signal(HEADER_LAYOUT), Signal(), Signal(WORD)
        said, kept, taken = Signal(WORD), Signal(WORD), Signal()
        step = Signal(range(HEADER))
        own = self._about(m)
        bits = header.as_value()
        m.d.comb += [
            self.o.payload.word.eq(_turned(said)),
            taken.eq(self.o.valid & self.o.ready),
            check.data.eq(said),
            check.start.eq(self.ready),
        ]
        with m.FSM(name="datagram"):
            with m.State("Idle"):
                m.d.comb += self.ready.eq(1)
                m.d.sync += [
                    header.eq(self.header),
                    header.mark.eq(MARK),
                    header.version.eq(VERSION),
                    about.eq(self.about),
                    left.eq(self.header.words),
                    self.at.eq(self.place),
                    step.eq(0),
                ]
                with m.If(self.go):
                    m.next = "Header"
            with m.State("Header"):
                m.d.comb += [said.eq(bits[:WORD]), self.o.valid.eq(1), check.valid.eq(taken)]
                with m.If(taken):
                    m.d.sync += [header.eq(bits >> WORD), step.eq(step + 1)]
                    with m.If(step == HEADER - 1):
                        m.next = "Fetch"
            with m.State("Fetch"):
                m.d.comb += self.fetch.eq(1)
                m.d.sync += step.eq(0)
                m.next = "Check"
                with m.If(left != 0):
                    m.next = "Keep"
            with m.State("Keep"):
                # A block memory's answer comes too late in a cycle to go into a check.
                m.d.sync += [kept.eq(Mux(about, own[:WORD], self.word)), own.eq(own >> WORD)]
                m.next = "Word"
            with m.State("Word"):
                m.d.comb += [said.eq(kept), self.o.valid.eq(1), check.valid.eq(taken)]
                with m.If(taken):
                    m.d.sync += [left.eq(left - 1), self.at.eq(self.at + 1)]
                    m.next = "Fetch"
            with m.State("Check"):
                m.d.comb += [
                    said.eq(check.crc.word_select(step[0], WORD)),
                    self.o.valid.eq(1),
                    self.o.payload.last.eq(step[0]),
                ]
                with m.If(taken):
                    m.d.sync += step.eq(1)
                    with m.If(step[0]):
                        m.next = "Idle"
        return m

    def _about(self, m: Module) -> Signal:
        """What is said of itself, word by word from the low end."""
        layout = data.StructLayout(dict(ABOUT))
        now, kept = Signal(layout), Signal(layout.size)
        m.d.comb += [
            now.mac.eq(self.mac),
            now.began.eq(self.began),
            now.identity.eq(self.identity),
            now.host.eq(self.holder.ip),
            now.port.eq(self.holder.port),
        ]
        with m.If(self.go):
            m.d.sync += kept.eq(now)
        return kept
