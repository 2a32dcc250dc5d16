"""Frames for this circuit among all others: ARP requests (RFC 826), and UDP (RFC 768) over IPv4 (RFC 791).

Whatever else comes is ignored: other addresses and ports, other protocols, options and fragments of IPv4,
headers whose checksum is wrong. Nothing is looked up either: who has sent something is answered at the
address that its frame came from, which on a network behind a router is the router's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.network.gmii import ENTRY
from amphw.rtl.isa.datagrams import PORT

ETHERNET, IP, UDP = 7, 10, 4
HEADERS = ETHERNET + IP + UDP
"""Words before a UDP datagram's payload. An ARP packet has as many words with its Ethernet header, and ends
there."""

BROADCAST = 0xFFFF
TYPE_IP, TYPE_ARP = 0x0800, 0x0806
VERSION, PLAIN, TTL_UDP = 0x4500, 0x4000, 0x4011
"""IPv4 with a header of 20 bytes; do not fragment; 64 hops, and UDP."""
ARP = (TYPE_ARP, 1, TYPE_IP, 0x0604)
"""Ethernet's type, and the first words of a packet: addresses of Ethernet and IPv4."""
REQUEST, REPLY = 1, 2

PEER = data.StructLayout({"mac": 48, "ip": 32, "port": 16})
"""Another end: the first byte of each address is the highest."""


@dataclass(frozen=True)
class Addresses:
    """Of a circuit, as integers whose first byte is the highest."""

    mac: int
    ip: int
    port: int = PORT

    def mac_words(self) -> list[int]:
        return [self.mac >> shift & 0xFFFF for shift in (32, 16, 0)]

    def ip_words(self) -> list[int]:
        return [self.ip >> 16, self.ip & 0xFFFF]


class EthernetReceiver(wiring.Component):
    """i: entries of received frames, each taken at once. word: of a UDP payload, in cycles with `put`.

    Words come before it is known whether the frame is whole and for this circuit. `done` says so, for a
    cycle, at its end: `datagram` for such a datagram, `asked` for an ARP request that means this circuit;
    `peer` is who has sent it, until words of the next frame come. fresh: a frame begins.
    """

    def __init__(self, own: Addresses) -> None:
        self.own = own
        super().__init__(
            {
                "i": In(stream.Signature(ENTRY)),
                "word": Out(16),
                "put": Out(1),
                "fresh": Out(1),
                "done": Out(1),
                "datagram": Out(1),
                "asked": Out(1),
                "peer": Out(PEER),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        word, last = self.i.payload.word, self.i.payload.last
        at = Signal(range(HEADERS + 1))
        taken = Signal()
        m.d.comb += [self.i.ready.eq(1), taken.eq(self.i.valid & ~last), self.word.eq(word)]
        m.d.comb += [self.put.eq(taken & (at == HEADERS)), self.fresh.eq(taken & (at == 0))]
        own, ip = dict(enumerate(self.own.mac_words())), self.own.ip_words()
        # By the number of a word of the frame: what it has to be, of the bits that matter.
        hears = {k: (value, 0xFFFF) for k, value in own.items()}
        everybody = dict.fromkeys(own, (BROADCAST, 65535))
        internet = {
            6: (TYPE_IP, 0xFFFF),
            7: (VERSION, 0xFF00),
            10: (0, 0x3FFF),  # no fragment; that it must not become one is nothing to us
            11: (TTL_UDP & 0x00FF, 0x00FF),
            15: (ip[0], 0xFFFF),
            16: (ip[1], 0xFFFF),
            18: (self.own.port, 0xFFFF),
        }
        resolution = {6 + k: (value, 0xFFFF) for k, value in enumerate((*ARP, REQUEST))}
        resolution |= {19 + k: (value, 0xFFFF) for k, value in enumerate(ip)}
        alone, all_ = self._all(m, "alone", hears, at, taken), self._all(m, "all", everybody, at, taken)
        is_ip = self._all(m, "internet", internet, at, taken)
        is_arp = self._all(m, "resolution", resolution, at, taken)
        total = self._sum(m, at, taken)
        self._learn(m, at, taken, is_arp)
        whole = Signal()
        m.d.comb += [
            self.done.eq(self.i.valid & last),
            whole.eq(self.done & self.i.payload.good & (at == HEADERS) & (alone | all_)),
            self.datagram.eq(whole & is_ip & total),
            self.asked.eq(whole & is_arp),
        ]
        with m.If(taken & (at != HEADERS)):
            m.d.sync += at.eq(at + 1)
        with m.If(self.done):
            m.d.sync += at.eq(0)
        return m

    def _all(
        self, m: Module, name: str, wanted: Mapping[int, tuple[int, int]], at: Signal, taken: Signal
    ) -> Signal:
        """Whether all these words of the frame so far are what they have to be."""
        so_far, alike = Signal(init=1, name=name), Signal(name=f"{name}_alike")
        with m.Switch(at):
            for number, (value, mask) in wanted.items():
                with m.Case(number):
                    m.d.comb += alike.eq((self.word & mask) == value)
            with m.Default():
                m.d.comb += alike.eq(1)
        with m.If(self.done):
            m.d.sync += so_far.eq(1)
        with m.Elif(taken & ~alike):
            m.d.sync += so_far.eq(0)
        return so_far

    def _sum(self, m: Module, at: Signal, taken: Signal) -> Value:
        """Whether the words of IP's header, with its checksum, add up to what they have to."""
        total = Signal(20)  # carries are added at the end: ten words have few
        with m.If(self.done):
            m.d.sync += total.eq(0)
        with m.Elif(taken & (at >= ETHERNET) & (at < ETHERNET + IP)):
            m.d.sync += total.eq(total + self.word)
        return (total[:16] + total[16:]) == 0xFFFF

    def _learn(self, m: Module, at: Signal, taken: Signal, is_arp: Signal) -> None:
        for part, numbers in (("mac", (3, 4, 5)), ("port", (17,))):
            kept = self.peer[part]
            with m.If(taken & at.matches(*numbers)):
                m.d.sync += kept.eq(Cat(self.word, kept))
        # In an ARP packet the sender's address lies a word further behind.
        with m.If(taken & (at.matches(14) | (~is_arp & at.matches(13)) | (is_arp & at.matches(15)))):
            m.d.sync += self.peer.ip.eq(Cat(self.word, self.peer.ip))


class EthernetSender(wiring.Component):
    """Frames of an ARP reply, or of a UDP datagram with the words of `payload`, of which one is `last`.

    go: send a frame to `peer`, `reply` an ARP reply, otherwise with `words` of payload; taken in a cycle with
    `ready`, which is low until it is all written. o: its entries.
    """

    def __init__(self, own: Addresses) -> None:
        self.own = own
        word = data.StructLayout({"word": 16, "last": 1})
        super().__init__(
            {
                "go": In(1),
                "ready": Out(1),
                "reply": In(1),
                "peer": In(PEER),
                "words": In(11),
                "payload": In(stream.Signature(word)),
                "o": Out(stream.Signature(ENTRY)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        to, reply, words = Signal(PEER), Signal(), Signal(11)
        at = Signal(range(HEADERS))
        rest = 2 * (words + UDP)  # bytes of UDP, its header included
        total = Signal(20)
        folded = Signal(17)
        m.d.comb += folded.eq(total[:16] + total[16:])
        ip, mac = self.own.ip_words(), self.own.mac_words()
        with m.FSM(name="sender"):
            with m.State("Idle"):
                m.d.comb += self.ready.eq(1)
                m.d.sync += [to.eq(self.peer), reply.eq(self.reply), words.eq(self.words), at.eq(0)]
                m.d.sync += total.eq(VERSION + PLAIN + TTL_UDP + sum(ip) + 2 * (IP + UDP))
                with m.If(self.go):
                    m.next = "Length"
            # The checksum of IP's header, an addition a cycle.
            for state, term, then in (
                ("Length", 2 * words, "High"),
                ("High", to.ip[16:], "Low"),
                ("Low", to.ip[:16], "Fold"),
                ("Fold", None, "Again"),
                ("Again", None, "Headers"),
            ):
                with m.State(state):
                    m.d.sync += total.eq(folded if term is None else total + term)
                    m.next = then
            with m.State("Headers"):
                m.d.comb += [self.o.valid.eq(1), self.o.payload.last.eq(reply & (at == HEADERS - 1))]
                with m.Switch(Cat(at, reply)):
                    for number, word in enumerate(self._headers(to, mac, ip, rest, ~total[:16])):
                        with m.Case(number):
                            m.d.comb += self.o.payload.word.eq(word)
                    for number, word in enumerate(self._resolution(to, mac, ip)):
                        with m.Case(number + (1 << len(at))):
                            m.d.comb += self.o.payload.word.eq(word)
                with m.If(self.o.ready):
                    m.d.sync += at.eq(at + 1)
                    with m.If(at == HEADERS - 1):
                        m.next = "Payload"
                        with m.If(reply):
                            m.next = "Idle"
            with m.State("Payload"):
                m.d.comb += [
                    self.o.valid.eq(self.payload.valid),
                    self.o.payload.word.eq(self.payload.payload.word),
                    self.o.payload.last.eq(self.payload.payload.last),
                    self.payload.ready.eq(self.o.ready),
                ]
                with m.If(self.payload.valid & self.o.ready & self.payload.payload.last):
                    m.next = "Idle"
        return m

    def _headers(self, to: Any, mac: list[int], ip: list[int], rest: Any, check: Value) -> list[Any]:
        return [
            *(to.mac[32:], to.mac[16:32], to.mac[:16], *mac, TYPE_IP),
            *(VERSION, rest + 2 * IP, 0, PLAIN, TTL_UDP, check, *ip, to.ip[16:], to.ip[:16]),
            *(self.own.port, to.port, rest, 0),
        ]

    def _resolution(self, to: Any, mac: list[int], ip: list[int]) -> list[Any]:
        asker = (to.mac[32:], to.mac[16:32], to.mac[:16])
        return [*asker, *mac, *ARP, REPLY, *mac, *ip, *asker, to.ip[16:], to.ip[:16]]
