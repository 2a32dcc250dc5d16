# amaranth: UnusedElaboratable=no
"""Bytes and words arrive over a serial line; what the line breaks is dropped and reported."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring

from amphw.rtl.gateware.link.uart import UartLink, UartReceiver, UartTransmitter, divisor
from amphw.rtl.gateware.streams import GatewareError
from tests.rtl.gateware.benches import receive, send, simulate


class Loop(wiring.Component):
    """A transmitter and a receiver of another rate, with a break in the line to switch on."""

    def __init__(self, sent_at: Fraction | int, received_at: Fraction | int) -> None:
        self.transmitter, self.receiver = UartTransmitter(sent_at), UartReceiver(received_at)
        self.break_line = Signal()
        super().__init__({})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules += [self.transmitter, self.receiver]
        m.d.comb += self.receiver.rx.eq(self.transmitter.tx & ~self.break_line)
        return m


@pytest.mark.parametrize(
    ("sent_at", "received_at"),
    [
        *((4, 4), (7, 7), (16, 16), (100, 103), (100, 97)),
        # Bits that are no whole number of cycles, beside those of another clock.
        *(
            (Fraction(133, 16), Fraction(133, 16)),
            (Fraction(467, 16), 29),
            (Fraction(75, 16), Fraction(74, 16)),
        ),
    ],
)
def test_bytes_arrive_at_slightly_different_rates(
    sent_at: Fraction | int, received_at: Fraction | int
) -> None:
    loop = Loop(sent_at, received_at)
    values = [0, 255, 0x55, 0xAA, 1, 128]
    received: list[int] = []

    async def feed(ctx: Any) -> None:
        await send(ctx, loop.transmitter.i, values)

    async def drain(ctx: Any) -> None:
        await receive(ctx, loop.receiver.o, len(values), received)

    cycles = simulate(loop, feed, drain)
    assert received == values
    assert cycles < (10 * sent_at + 4) * len(values)


def test_a_byte_that_nobody_takes_is_an_overrun() -> None:
    loop = Loop(8, 8)
    overruns = 0

    async def feed(ctx: Any) -> None:
        await send(ctx, loop.transmitter.i, [1, 2, 3])

    async def watch(ctx: Any) -> None:
        nonlocal overruns
        for _ in range(300):
            _, _, overrun = await ctx.tick().sample(loop.receiver.overrun)
            overruns += overrun
        assert ctx.get(loop.receiver.o.payload) == 1

    simulate(loop, feed, watch)
    assert overruns == 2


def test_a_broken_byte_is_dropped_and_the_next_one_arrives() -> None:
    loop = Loop(8, 8)
    received: list[int] = []
    broken = 0

    async def feed(ctx: Any) -> None:
        ctx.set(loop.break_line, 1)
        await ctx.tick().repeat(200)
        ctx.set(loop.break_line, 0)
        await ctx.tick().repeat(20)
        await send(ctx, loop.transmitter.i, [77])

    async def watch(ctx: Any) -> None:
        nonlocal broken
        for _ in range(400):
            _, _, seen = await ctx.tick().sample(loop.receiver.broken)
            broken += seen

    async def drain(ctx: Any) -> None:
        await receive(ctx, loop.receiver.o, 1, received)

    simulate(loop, feed, watch, drain)
    assert (received, broken) == ([77], 1)


class Echo(wiring.Component):
    """A link whose line leads back to itself."""

    def __init__(self) -> None:
        self.link = UartLink(6, depth=4)
        super().__init__({})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.link = self.link
        m.d.comb += self.link.rx.eq(self.link.tx)
        return m


def test_words_arrive_over_a_line() -> None:
    echo = Echo()
    sent = np.random.default_rng(0).integers(0, 1 << 16, 20).tolist()
    received: list[int] = []

    async def feed(ctx: Any) -> None:
        await send(ctx, echo.link.i, sent)

    async def drain(ctx: Any) -> None:
        await receive(ctx, echo.link.o, len(sent), received)
        assert not ctx.get(echo.link.faults)

    simulate(echo, feed, drain)
    assert received == sent


@pytest.mark.parametrize("cycles", [Fraction(133, 16), Fraction(65, 16), Fraction(453, 16)])
def test_bits_are_as_long_as_they_should_be(cycles: Fraction) -> None:
    """Each edge is within a cycle of its time, however many bytes follow one another."""
    transmitter = UartTransmitter(cycles)
    count = 30
    edges: list[int] = []

    async def feed(ctx: Any) -> None:
        await send(ctx, transmitter.i, [0x55] * count)

    async def watch(ctx: Any) -> None:
        line, cycle = 1, 0
        while len(edges) < 10 * count:
            _, _, now = await ctx.tick().sample(transmitter.tx)
            cycle += 1
            if now != line:
                edges.append(cycle)
            line = now

    simulate(transmitter, feed, watch)
    lengths = np.diff(edges)
    for byte in range(count):  # between bytes the line may rest for a moment
        within = lengths[10 * byte : 10 * byte + 9]
        drift = np.cumsum(within) - np.arange(1, 10) * float(cycles)
        assert abs(drift).max() < 1


def test_the_divisor_of_a_rate() -> None:
    assert divisor(25e6, 115_200) == 217
    assert divisor(12e6, 3e6) == 4
    assert divisor(85e6, 3e6) == Fraction(453, 16)
    with pytest.raises(GatewareError, match="a bit would be 2.4 cycles. Choose a rate of at most 3,000,000"):
        divisor(12e6, 5e6)
    with pytest.raises(GatewareError, match="at least 4 clock cycles a bit, not 3"):
        UartTransmitter(3)
