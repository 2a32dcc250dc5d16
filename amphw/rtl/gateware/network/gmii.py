"""Ethernet frames at a PHY's GMII (IEEE 802.3, clause 35): a byte a cycle, in each direction's own clock.

Inside, a frame is 16-bit words, the first byte in the high half as in all headers of the Internet's. Frames
of an odd number of bytes are nothing that amphw sends or is asked with, and count as damaged.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import crc, data, stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.streams import Queue, SkidBuffer

ENTRY = data.StructLayout({"word": 16, "last": 1, "good": 1})
"""Of a received frame: its words with the check behind them, and an entry `last` without a word, which says
whether the frame was whole. Of one to be sent: its words without a check, of which one is `last`."""

FCS = crc.catalog.CRC32_ISO_HDLC
PREAMBLE, DELIMITER = 0x55, 0xD5
PREAMBLE_BYTES = 7
SHORTEST = 60
"""Bytes of a frame without its check; shorter ones are filled up with zeros."""
GAP = 12
"""Byte times between two frames."""


class _Frames(wiring.Component):
    """A queue of entries whose output comes from registers: a block memory's answer takes most of a cycle."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        entries = stream.Signature(ENTRY)
        super().__init__({"i": In(entries), "o": Out(entries)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.queue = queue = Queue(ENTRY, self.depth)
        wiring.connect(m, wiring.flipped(self.i), queue.i)
        with m.If(self.o.ready | ~self.o.valid):
            m.d.comb += queue.o.ready.eq(1)
            m.d.sync += [self.o.valid.eq(queue.o.valid), self.o.payload.eq(queue.o.payload)]
        return m


class GmiiReceiver(wiring.Component):
    """Frames from a PHY, in its receive clock, behind a queue of `depth` entries.

    The PHY cannot wait: a frame whose words find no room is delivered as damaged. Its last entry waits, and
    frames that begin meanwhile are passed over.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        super().__init__({"data": In(8), "valid": In(1), "error": In(1), "o": Out(stream.Signature(ENTRY))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.fcs = check = FCS(data_width=8).create()
        byte = Signal(8)
        there = Signal()
        bad = Signal()
        m.d.sync += [byte.eq(self.data), there.eq(self.valid), bad.eq(self.error)]
        first, odd, spoilt = Signal(8), Signal(), Signal()
        m.submodules.frames = queue = _Frames(self.depth)
        # Whoever takes entries lies behind a comparison of where two clocks are: that ends here.
        m.submodules.buffer = buffer = SkidBuffer(ENTRY)
        wiring.connect(m, queue.o, buffer.i)
        wiring.connect(m, buffer.o, wiring.flipped(self.o))
        entry, put, room = queue.i.payload, queue.i.valid, queue.i.ready
        m.d.comb += [check.data.eq(byte), entry.word.eq(Cat(byte, first))]
        with m.FSM(name="receiver"):
            # At the beginning, as after a frame that was passed over in part, the line may be within a frame.
            with m.State("Gap"):
                with m.If(~there):
                    m.next = "Preamble"
            with m.State("Preamble"):
                m.d.comb += check.start.eq(1)
                m.d.sync += [odd.eq(0), spoilt.eq(0)]
                with m.If(there & (byte == DELIMITER)):
                    m.next = "Frame"
                with m.Elif(there & (byte != PREAMBLE)):
                    m.next = "Gap"
            with m.State("Frame"):
                m.d.comb += [check.valid.eq(there), put.eq(there & odd)]
                with m.If(there):
                    m.d.sync += [
                        first.eq(byte),
                        odd.eq(~odd),
                        spoilt.eq(spoilt | bad | (odd & ~room)),
                    ]
                with m.Else():
                    m.next = "End"
            with m.State("End"):
                m.d.comb += [
                    put.eq(1),
                    entry.last.eq(1),
                    entry.good.eq(check.match_detected & ~odd & ~spoilt),
                ]
                with m.If(room):
                    m.next = "Gap"
        return m


class GmiiTransmitter(wiring.Component):
    """Frames to a PHY, in the transmit clock. i: their entries, of which `depth` find room.

    Once begun, a frame cannot wait: it is begun when all of it is in here.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        super().__init__({"i": In(stream.Signature(ENTRY)), "data": Out(8), "enable": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.fcs = check = FCS(data_width=8).create()
        m.submodules.buffer = buffer = SkidBuffer(ENTRY)
        m.submodules.frames = queue = _Frames(self.depth)
        wiring.connect(m, wiring.flipped(self.i), buffer.i)
        wiring.connect(m, buffer.o, queue.i)
        whole, comes, begins = Signal(range(self.depth + 1)), Signal(), Signal()  # frames in the queue
        m.d.comb += comes.eq(queue.i.valid & queue.i.ready & queue.i.payload.last)
        m.d.sync += whole.eq(whole + comes - begins)
        entry = queue.o.payload
        byte, sends, sums, checks = Signal(8), Signal(), Signal(), Signal()
        at = Signal(range(SHORTEST + 1))  # bytes of the part that is sent; of the frame up to SHORTEST
        m.d.sync += at.eq(Mux(at == SHORTEST, at, at + 1))
        # What is chosen in one cycle goes into the check in the next, and onto the line behind that.
        chosen, chosen_sends, chosen_checks, number = Signal(8), Signal(), Signal(), Signal(2)
        m.d.sync += [
            chosen.eq(byte),
            chosen_sends.eq(sends),
            chosen_checks.eq(checks),
            number.eq(at),
            check.valid.eq(sums),
            self.data.eq(Mux(chosen_checks, check.crc.word_select(number, 8), chosen)),
            self.enable.eq(chosen_sends),
        ]
        m.d.comb += check.data.eq(chosen)

        def on(state: str) -> None:
            m.d.sync += at.eq(0)
            m.next = state

        with m.FSM(name="transmitter"):
            with m.State("Idle"):
                m.d.comb += check.start.eq(1)
                with m.If(whole != 0):
                    m.d.comb += begins.eq(1)
                    on("Preamble")
            with m.State("Preamble"):
                m.d.comb += [sends.eq(1), byte.eq(PREAMBLE)]
                with m.If(at == PREAMBLE_BYTES):
                    m.d.comb += byte.eq(DELIMITER)
                    on("High")
            with m.State("High"):
                m.d.comb += [sends.eq(1), sums.eq(1), byte.eq(entry.word[8:])]
                m.next = "Low"
            with m.State("Low"):
                m.d.comb += [sends.eq(1), sums.eq(1), byte.eq(entry.word[:8])]
                m.d.comb += queue.o.ready.eq(1)
                m.next = "High"
                with m.If(entry.last):
                    m.next = "Fill"
                    with m.If(at >= SHORTEST - 1):
                        on("Check")
            with m.State("Fill"):
                m.d.comb += [sends.eq(1), sums.eq(1)]
                with m.If(at == SHORTEST - 1):
                    on("Check")
            with m.State("Check"):
                m.d.comb += [sends.eq(1), checks.eq(1)]
                with m.If(at == 3):
                    on("Gap")
            with m.State("Gap"):
                with m.If(at == GAP - 1):
                    m.next = "Idle"
        return m
