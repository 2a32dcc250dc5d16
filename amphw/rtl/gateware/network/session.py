"""The circuit's end of a session: which datagrams count, and when to say what.

The rules are in `amphw/rtl/isa/datagrams.py`. Each datagram is weighed in the two cycles after its end: no
words of the next one can have come by then.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.network.boxes import STREAM, Inbox, Outbox, checked
from amphw.rtl.gateware.network.datagrams import DatagramReceiver, DatagramSender
from amphw.rtl.gateware.network.internet import PEER, Addresses
from amphw.rtl.isa.datagrams import ABOUT, CHECK, FIELDS, FIRST, HEADER, LONGEST, RING, DatagramKind
from amphw.rtl.isa.wire import WORD

QUIET = 16
"""Cycles without a further word after which those that wait are sent."""

KIND = dict(FIELDS)["kind"]
_ABOUT_WORDS = sum(bits for _, bits in ABOUT) // WORD


class Session(wiring.Component):
    """i, o: words from and to the circuit. word, put, fresh, done, datagram, asked, peer: see
    `EthernetReceiver`; go, ready, reply, to, words: see `EthernetSender`, whose payload `sender.o` is.

    hold: cycles of silence after which the host may be another one. retry: cycles after which words that are
    not confirmed are sent again, while the host is heard. depth: words in each direction. longest: in one
    datagram.
    """

    def __init__(
        self,
        own: Addresses,
        identity: int,
        *,
        hold: int,
        retry: int,
        depth: int = RING,
        longest: int = LONGEST,
    ) -> None:
        self.hold, self.retry, self.depth, self.longest = hold, retry, checked(depth), longest
        self.sender = DatagramSender(own.mac, identity, depth)
        super().__init__(
            {
                "i": In(STREAM),
                "o": Out(STREAM),
                "word": In(WORD),
                **{name: In(1) for name in ("put", "fresh", "done", "datagram", "asked")},
                "peer": In(PEER),
                "go": Out(1),
                "ready": In(1),
                "reply": Out(1),
                "to": Out(PEER),
                "words": Out(11),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.receiver = self._receiver = DatagramReceiver()
        m.submodules.inbox = self._inbox = Inbox(self.depth)
        m.submodules.outbox = self._outbox = Outbox(self.depth)
        m.submodules.sender = self.sender
        wiring.connect(m, wiring.flipped(self.i), self._outbox.i)
        wiring.connect(m, self._inbox.o, wiring.flipped(self.o))
        m.d.comb += [
            self._receiver.word.eq(self.word),
            self._receiver.put.eq(self.put),
            self._receiver.fresh.eq(self.fresh),
            self._inbox.begin.eq(self._receiver.begin),
            self._inbox.put.eq(self._receiver.keep),
            self._inbox.word.eq(self._receiver.content),
            self._outbox.fetch.eq(self.sender.fetch),
            self._outbox.at.eq(self.sender.at),
            self.sender.word.eq(self._outbox.word),
            self.sender.place.eq(self._outbox.place),
        ]
        self._open, self._owes = Signal(), Signal()  # a session; a datagram, whatever is in it
        self._host, self._session, self._began = Signal(PEER), Signal(32), Signal(32)
        self._expected, self._base = Signal(32), Signal(32)  # numbers: of the next word, the outbox's first
        self._speaker = Signal(PEER)  # who has sent what is weighed
        # What is to be answered to whom, one at a time: who is not answered asks again.
        self._answer, self._resolve = Signal(KIND), Signal()
        self._asker, self._asked = Signal(PEER), Signal(32)
        self._acts, self._sends, self._confirms = Signal(), Signal(), Signal(32)
        self._clock = Signal(32)
        m.d.sync += self._clock.eq(self._clock + 1)
        silent = self._silence(m)
        self._weigh(m, silent)
        self._repeat(m, silent)
        self._say(m)
        return m

    def _silence(self, m: Module) -> Signal:
        """Whether the host has not been heard for so long that the session need not be kept for it."""
        since, silent = Signal(range(self.hold + 1)), Signal()
        self._heard = Signal()
        m.d.comb += silent.eq(since == self.hold)
        with m.If(self._heard):
            m.d.sync += since.eq(0)
        with m.Elif(~silent):
            m.d.sync += since.eq(since + 1)
        return silent

    def _weigh(self, m: Module, silent: Signal) -> None:
        header, inbox, outbox = self._receiver.header, self._inbox, self._outbox
        weighs, same_host, same_session, own = Signal(), Signal(), Signal(), Signal()
        due, fits, kind = Signal(), Signal(), Signal(KIND)
        m.d.sync += [
            weighs.eq(self.done & self.datagram & self._receiver.whole),
            self._acts.eq(weighs),
            same_host.eq(self._host == self._speaker),
            same_session.eq(self._open & (header.session == self._session)),
            due.eq((header.number == self._expected) & (header.words != 0)),
            fits.eq(header.words <= inbox.room),
            self._confirms.eq(header.taken - self._base),
            kind.eq(header.kind),
        ]
        m.d.comb += [own.eq(same_host & same_session), inbox.words.eq(header.words)]
        with m.If(self.done):
            m.d.sync += self._speaker.eq(self.peer)
        with m.If(self.done & self.asked & ~self._answers()):
            m.d.sync += [self._resolve.eq(1), self._asker.eq(self.peer)]
        with m.If(self._acts), m.Switch(kind):
            with m.Case(DatagramKind.START):
                with m.If(own):
                    self._reply(m, DatagramKind.STARTED)
                with m.Elif(~self._open | silent | same_host):
                    self._reply(m, DatagramKind.STARTED)
                    self._start(m)
                with m.Else():
                    self._reply(m, DatagramKind.BUSY)
            with m.Case(DatagramKind.DATA, DatagramKind.ACK, DatagramKind.END):
                with m.If(own):
                    m.d.comb += [
                        self._heard.eq(1),
                        outbox.confirm.eq(self._confirms <= outbox.level),
                        inbox.accept.eq((kind == DatagramKind.DATA) & due & fits),
                    ]
                    with m.If(outbox.confirm):
                        m.d.sync += self._base.eq(self._base + self._confirms)
                    with m.If(inbox.accept):
                        m.d.sync += self._expected.eq(self._expected + header.words)
                    with m.If(kind == DatagramKind.DATA):
                        m.d.sync += self._owes.eq(1)
                    with m.If(kind == DatagramKind.END):
                        m.d.sync += self._open.eq(0)
                with m.Else():
                    self._reply(m, DatagramKind.STRANGER)

    def _answers(self) -> Any:
        """Whether something is still to be answered."""
        return self._resolve | (self._answer != 0)

    def _reply(self, m: Module, kind: DatagramKind) -> None:
        with m.If(~self._answers()):
            m.d.sync += [
                self._answer.eq(kind),
                self._asker.eq(self._speaker),
                self._asked.eq(self._receiver.header.session),
            ]

    def _start(self, m: Module) -> None:
        m.d.comb += [self._heard.eq(1), self._inbox.forget.eq(1), self._outbox.forget.eq(1)]
        m.d.sync += [
            self._open.eq(1),
            self._owes.eq(0),
            self._host.eq(self._speaker),
            self._session.eq(self._receiver.header.session),
            self._expected.eq(FIRST),
            self._base.eq(FIRST),
            self._began.eq(self._clock),
        ]

    def _repeat(self, m: Module, silent: Signal) -> None:
        """Count words as not sent that have not been confirmed for long. Nobody listens while the host is
        silent: then it waits, and sends again once the host is back."""
        since, outbox = Signal(range(self.retry + 1)), self._outbox
        with m.If((outbox.sent == 0) | outbox.rewind | (outbox.confirm & (self._confirms != 0))):
            m.d.sync += since.eq(0)
        with m.Elif(since != self.retry):
            m.d.sync += since.eq(since + 1)
        m.d.comb += outbox.rewind.eq((since == self.retry) & ~silent & ~self._acts & ~self._sends)

    def _say(self, m: Module) -> None:
        header, inbox, outbox = self.sender.header, self._inbox, self._outbox
        waiting, count, quiet = Signal.like(outbox.level), Signal.like(outbox.level), Signal(range(QUIET + 1))
        freed, speaks = Signal.like(inbox.free, init=0), Signal()
        m.d.comb += [
            waiting.eq(outbox.level - outbox.sent),
            count.eq(Mux(waiting > self.longest, self.longest, waiting)),
            speaks.eq((count == self.longest) | ((waiting != 0) & (quiet == QUIET))),
            outbox.words.eq(Mux(outbox.confirm, self._confirms, count)),
            outbox.send.eq(self._sends),
            self.to.eq(self._asker),
            self.words.eq(header.words + (HEADER + CHECK)),
            self.sender.began.eq(self._began),
        ]
        with m.If(self._open):
            m.d.comb += self.sender.holder.eq(self._host)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += quiet.eq(0)
        with m.Elif(quiet != QUIET):
            m.d.sync += quiet.eq(quiet + 1)
        # A host whose words found no room waits for word that there is some.
        m.d.sync += freed.eq(freed + inbox.took)
        with m.If(freed >= self.depth // 2):
            m.d.sync += self._owes.eq(1)
        with m.If(self.ready & self.sender.ready & ~self._acts):
            with m.If(self._resolve):
                m.d.comb += [self.go.eq(1), self.reply.eq(1)]
                m.d.sync += self._resolve.eq(0)
            with m.Elif(self._answer != 0):
                m.d.comb += [
                    self.go.eq(1),
                    self.sender.go.eq(1),
                    self.sender.about.eq(1),
                    header.kind.eq(self._answer),
                    header.session.eq(self._asked),
                    header.room.eq(self.depth),
                    header.words.eq(_ABOUT_WORDS),
                ]
                m.d.sync += self._answer.eq(0)
            with m.Elif(self._open & (self._owes | speaks)):
                m.d.comb += [
                    self.go.eq(1),
                    self.to.eq(self._host),
                    self.sender.go.eq(1),
                    self._sends.eq(1),
                    header.kind.eq(Mux(count != 0, DatagramKind.DATA.value, DatagramKind.ACK.value)),
                    header.session.eq(self._session),
                    header.number.eq(self._base + outbox.sent),
                    header.taken.eq(self._expected),
                    header.room.eq(inbox.free),
                    header.words.eq(count),
                ]
                m.d.sync += [self._owes.eq(0), freed.eq(0)]
