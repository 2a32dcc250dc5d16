"""A serial line of 8 data bits, no parity and one stop bit, lowest bit first: bytes and words over it."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.link.framing import BYTE, WORD, framed
from amphw.rtl.gateware.streams import GatewareError
from amphw.rtl.isa.word_frames import LEAST_DIVISOR, QUEUE

PARTS = 16
"""Of a cycle, in which the length of a bit is counted."""


def divisor(clock_hz: float, baud: float) -> Fraction:
    """Clock cycles a bit, to a sixteenth. Raises GatewareError for a rate that is too high for the clock."""
    nearest = Fraction(round(clock_hz / baud * PARTS), PARTS)
    if nearest < LEAST_DIVISOR:
        raise GatewareError(
            f"{baud:,.0f} baud cannot be made from {clock_hz / 1e6:g} MHz: a bit would be "
            f"{clock_hz / baud:.3g} cycles. Choose a rate of at most {clock_hz / LEAST_DIVISOR:,.0f}."
        )
    return nearest


def _checked(divisor: Fraction | int) -> Fraction:
    if divisor < LEAST_DIVISOR:
        raise GatewareError(
            f"A serial line needs at least {LEAST_DIVISOR} clock cycles a bit, not {divisor}."
        )
    return Fraction(divisor)


def _countdown(m: Module, divisor: Fraction, over: Value) -> Value:
    """Where a timer that counts to zero begins for the next bit. over: whether one ends in this cycle.

    Bits are of whole cycles; where `divisor` is none, as many of them have one more as make them that long
    on average. So no edge is further than a cycle from where it belongs, however many bits follow.
    """
    whole, rest = divmod(int(divisor * PARTS), PARTS)
    if not rest:
        return Const(whole - 1)
    part, longer = Signal(range(PARTS)), Signal(range(2 * PARTS))
    m.d.comb += longer.eq(part + rest)
    with m.If(over):
        m.d.sync += part.eq(longer)  # less a whole cycle, which is the bit that falls off
    return Mux(longer[-1], whole, whole - 1)


class UartTransmitter(wiring.Component):
    """Bytes onto the line `tx`; a byte is taken when the stop bit of the one before is over."""

    def __init__(self, divisor: Fraction | int) -> None:
        self.divisor = _checked(divisor)
        super().__init__({"i": In(BYTE), "tx": Out(1, init=1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        timer = Signal(range(ceil(self.divisor)))
        bits = Signal(10)
        left = Signal(range(11))
        first = _countdown(m, self.divisor, Mux(left == 0, self.i.valid, timer == 0))
        m.d.comb += self.i.ready.eq(left == 0)
        m.d.sync += self.tx.eq(Mux(left == 0, 1, bits[0]))
        with m.If(left == 0):
            m.d.sync += [bits.eq(Cat(Const(0, 1), self.i.payload, Const(1, 1))), timer.eq(first)]
            with m.If(self.i.valid):
                m.d.sync += left.eq(10)
        with m.Elif(timer == 0):
            m.d.sync += [timer.eq(first), bits.eq(bits >> 1), left.eq(left - 1)]
        with m.Else():
            m.d.sync += timer.eq(timer - 1)
        return m


class UartReceiver(wiring.Component):
    """Bytes from the line `rx`, each sampled in the middle of its bits.

    The line cannot wait: a byte that is complete while the one before has not been taken is dropped and sets
    `overrun` for a cycle. A byte without its stop bit is dropped and sets `broken`; the line must then have
    been idle before the next start bit is looked for.
    """

    def __init__(self, divisor: Fraction | int) -> None:
        self.divisor = _checked(divisor)
        super().__init__({"rx": In(1, init=1), "o": Out(BYTE), "overrun": Out(1), "broken": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        line = Signal(init=1)
        m.submodules.synchronizer = FFSynchronizer(self.rx, line, init=1)
        timer = Signal(range(ceil(self.divisor)))
        bits = Signal(8)
        number = Signal(range(8))
        sample = Signal()
        m.d.comb += sample.eq(timer == 0)
        m.d.sync += timer.eq(Mux(sample, _countdown(m, self.divisor, sample), timer - 1))
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.FSM(name="receiver"):
            with m.State("Idle"):
                m.d.sync += [timer.eq(int(self.divisor / 2) - 1), number.eq(0)]
                with m.If(~line):
                    m.next = "Start"
            with m.State("Start"):
                with m.If(sample):
                    m.next = "Idle"  # a spike
                    with m.If(~line):
                        m.next = "Data"
            with m.State("Data"):
                with m.If(sample):
                    m.d.sync += [bits.eq(Cat(bits[1:], line)), number.eq(number + 1)]
                    with m.If(number == 7):
                        m.next = "Stop"
            with m.State("Stop"):
                with m.If(sample):
                    m.next = "Idle"
                    with m.If(~line):
                        m.d.comb += self.broken.eq(1)
                        m.next = "Break"
                    with m.Elif(self.o.valid & ~self.o.ready):
                        m.d.comb += self.overrun.eq(1)
                    with m.Else():
                        m.d.sync += [self.o.payload.eq(bits), self.o.valid.eq(1)]
            with m.State("Break"):
                with m.If(line):
                    m.next = "Idle"
        return m


class UartLink(wiring.Component):
    """A link of 16-bit words over a serial line, behind a queue of `depth` words received.

    `faults` is set in each cycle in which the line was seen to damage or lose something: the words that come
    out then are not all that were sent. The other end is told so, once until it starts anew.
    """

    def __init__(self, divisor: Fraction | int, depth: int = QUEUE) -> None:
        self.divisor, self.depth = _checked(divisor), depth
        super().__init__(
            {"rx": In(1, init=1), "tx": Out(1, init=1), "i": In(WORD), "o": Out(WORD), "faults": Out(1)}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.receiver = receiver = UartReceiver(self.divisor)
        transmitter = UartTransmitter(self.divisor)
        framed(m, self, receiver.o, transmitter.i, receiver.overrun | receiver.broken, self.depth)
        m.submodules.transmitter = transmitter
        m.d.comb += [receiver.rx.eq(self.rx), self.tx.eq(transmitter.tx)]
        return m
