"""A link of 16-bit words over Ethernet: what stands between a PHY's GMII and a circuit, and its three
clocks."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import ClockDomain, DomainRenamer, Module
from amaranth.lib import wiring
from amaranth.lib.fifo import AsyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.network.boxes import STREAM
from amphw.rtl.gateware.network.gmii import ENTRY, GmiiReceiver, GmiiTransmitter
from amphw.rtl.gateware.network.internet import HEADERS, Addresses, EthernetReceiver, EthernetSender
from amphw.rtl.gateware.network.session import Session
from amphw.rtl.isa.datagrams import CHECK, HEADER, HOLD, LONGEST, RETRY

FRAMES = 1024
"""Entries of frames at the PHY's clocks: more than the longest one has, and as many as a block memory's."""

CROSSING = 16
"""Entries on their way from one clock to another."""

GMII = {
    "rx_clk": In(1),
    "rx_data": In(8),
    "rx_valid": In(1),
    "rx_error": In(1),
    "tx_clk": In(1),
    "tx_data": Out(8),
    "tx_enable": Out(1),
}
"""Ports to a PHY at 1 Gbit/s: both clocks are 125 MHz, the receive clock the PHY's."""

assert HEADERS + HEADER + LONGEST + CHECK < FRAMES


class EthernetLink(wiring.Component):
    """Words over a PHY's GMII. i: from the circuit; o: to it, in the clock `sync` of `clock_hz`.

    own: the circuit's addresses. identity: 64 bits by which a host knows what was built. Queues alone lead
    from one clock to another, and nothing resets the two of the PHY: in the cycle in which a chip begins,
    a receiver between frames and an empty queue hold still.
    settings: of `Session`, in place of what the format says.
    """

    def __init__(self, own: Addresses, identity: int, clock_hz: float, **settings: int) -> None:
        self.own = own
        given = {"hold": round(HOLD * clock_hz), "retry": round(RETRY * clock_hz), **settings}
        self.session = Session(own, identity, **given)
        super().__init__({**GMII, "i": In(STREAM), "o": Out(STREAM)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.domains.eth_rx = inward = ClockDomain("eth_rx", reset_less=True, local=True)
        m.domains.eth_tx = outward = ClockDomain("eth_tx", reset_less=True, local=True)
        m.d.comb += [inward.clk.eq(self.rx_clk), outward.clk.eq(self.tx_clk)]
        m.submodules.hears = hears = DomainRenamer("eth_rx")(GmiiReceiver(FRAMES))
        m.submodules.says = says = DomainRenamer("eth_tx")(GmiiTransmitter(FRAMES))
        m.submodules.receiver = receiver = EthernetReceiver(self.own)
        m.submodules.sender = sender = EthernetSender(self.own)
        m.submodules.session = session = self.session
        m.d.comb += [
            hears.data.eq(self.rx_data),
            hears.valid.eq(self.rx_valid),
            hears.error.eq(self.rx_error),
            self.tx_data.eq(says.data),
            self.tx_enable.eq(says.enable),
        ]
        for name, of, into, w_domain, r_domain in (
            ("inward", hears.o, receiver.i, "eth_rx", "sync"),
            ("outward", sender.o, says.i, "sync", "eth_tx"),
        ):
            # Few entries: comparing where both sides are is the longest path at the PHY's clocks.
            m.submodules[name] = crossing = AsyncFIFOBuffered(
                width=ENTRY.size, depth=CROSSING, w_domain=w_domain, r_domain=r_domain
            )
            m.d.comb += [
                crossing.w_data.eq(of.payload),
                crossing.w_en.eq(of.valid),
                of.ready.eq(crossing.w_rdy),
                into.payload.eq(crossing.r_data),
                into.valid.eq(crossing.r_rdy),
                crossing.r_en.eq(into.ready),
            ]
        for name in ("word", "put", "fresh", "done", "datagram", "asked", "peer"):
            m.d.comb += getattr(session, name).eq(getattr(receiver, name))
        m.d.comb += [
            sender.go.eq(session.go),
            sender.reply.eq(session.reply),
            sender.peer.eq(session.to),
            sender.words.eq(session.words),
            session.ready.eq(sender.ready),
        ]
        wiring.connect(m, session.sender.o, sender.payload)
        wiring.connect(m, wiring.flipped(self.i), session.i)
        wiring.connect(m, session.o, wiring.flipped(self.o))
        return m
