"""A PHY at full speed in the chip: between a pair of wires of USB at 12 Mbit/s and luna's device.

luna has one of its own, with a clock of 12 MHz for bytes beside that of 48 MHz for wires. Behind it an answer
begins 14 bits after the packet that it answers, in the simulation of the tests; a device is allowed 6.5, and
hosts give up at 16, hubs on the way included (USB 2.0, 7.1.18.1 and 7.1.19.1). Here everything has the faster
clock, and answers begin after 3.5.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

SAMPLES = 4
"""Of the wires in a bit, one a cycle."""

STUFF = 6
"""Ones in a row behind which a zero is put, so that the wires change often enough."""

UTMI = {
    "tx_data": In(8),
    "tx_valid": In(1),
    "tx_ready": Out(1),
    "rx_data": Out(8),
    "rx_valid": Out(1),
    "rx_active": Out(1),
    "rx_error": Out(1),
    "line_state": Out(2),
    "session_end": Out(1),
    "op_mode": In(2),
    "xcvr_select": In(2),
    "term_select": In(1),
    "dp_pulldown": In(1),
    "dm_pulldown": In(1),
}
"""What luna has to do with of a PHY, called as in UTMI 1.05."""


class FullSpeedPhy(wiring.Component):
    """p_i, n_i: the wires D+ and D-, of no clock. p_o, n_o: driven with `oe`. pullup: of D+, which tells a
    host that a device is there. Everything has the clock `sync`, of 48 MHz, as UTMI's signals have it there:
    a byte is received in a cycle with `rx_valid`, within `rx_active`, and one to be sent is taken in a cycle
    with `tx_ready`."""

    def __init__(self) -> None:
        wires = {"p_i": In(1, init=1), "n_i": In(1), "p_o": Out(1), "n_o": Out(1), "oe": Out(1)}
        super().__init__({**UTMI, **wires, "pullup": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        p, n = Signal(init=1), Signal()
        m.submodules.synchronizer_p = FFSynchronizer(self.p_i, p, init=1)
        m.submodules.synchronizer_n = FFSynchronizer(self.n_i, n)
        m.d.comb += [self.line_state.eq(Cat(p, n)), self.pullup.eq(self.term_select)]
        self._receive(m, p, n)
        self._send(m)
        return m

    def _receive(self, m: Module, p: Value, n: Value) -> None:
        """Bits are sampled in their middle: two cycles after the wires have changed, and every four behind,
        until they change again. One wire may be seen to change a cycle before the other."""
        before = Signal(2, init=1)
        phase = Signal(range(SAMPLES))
        m.d.sync += [before.eq(Cat(p, n)), phase.eq(Mux(Cat(p, n) == before, phase + 1, 0))]
        sampled, ended, bit, last = Signal(), Signal(), Signal(), Signal(init=1)
        m.d.comb += [
            sampled.eq((phase == SAMPLES // 2 - 1) & ~self.oe),
            ended.eq(~before[0] & ~before[1]),
            bit.eq(before[0] == last),
        ]
        with m.If(sampled):
            m.d.sync += last.eq(before[0])
        zeros, ones = Signal(range(6)), Signal(range(STUFF + 1))
        shifted, count = Signal(8), Signal(range(8))
        m.d.comb += self.rx_data.eq(shifted)
        m.d.sync += [self.rx_valid.eq(0), self.rx_error.eq(0)]
        with m.FSM(name="hears"):
            with m.State("Idle"):
                m.d.sync += [count.eq(0), ones.eq(1)]
                with m.If(self.oe):
                    m.d.sync += zeros.eq(0)
                with m.Elif(sampled):
                    # Of the seven zeros that a packet begins with, hubs may lose some.
                    m.d.sync += zeros.eq(Mux(bit | ended, 0, zeros + (zeros != 5)))
                    with m.If(bit & ~ended & (zeros == 5)):
                        m.d.sync += self.rx_active.eq(1)
                        m.next = "Packet"
            with m.State("Packet"):
                with m.If(sampled & ended):
                    m.d.sync += [self.rx_active.eq(0), zeros.eq(0)]
                    m.next = "Idle"
                with m.Elif(sampled & (ones == STUFF)):
                    m.d.sync += [ones.eq(0), self.rx_error.eq(bit)]
                with m.Elif(sampled):
                    m.d.sync += [
                        ones.eq(Mux(bit, ones + 1, 0)),
                        shifted.eq(Cat(shifted[1:], bit)),
                        count.eq(count + 1),
                        self.rx_valid.eq(count == 7),
                    ]

    def _send(self, m: Module) -> None:
        """A bit in every four cycles, from the one in which there is something to send."""
        timer = Signal(range(SAMPLES))
        shifted, left, ones = Signal(8), Signal(range(9)), Signal(range(STUFF + 1))
        over = Signal()
        m.d.comb += over.eq(timer == SAMPLES - 1)
        m.d.sync += timer.eq(timer + 1)

        def put(bit: Value) -> None:
            m.d.sync += [
                self.p_o.eq(~(self.p_o ^ bit)),
                self.n_o.eq(self.p_o ^ bit),
                ones.eq(Mux(bit, ones + 1, 0)),
            ]

        with m.FSM(name="says"):
            with m.State("Idle"):
                m.d.sync += [self.p_o.eq(1), self.n_o.eq(0), timer.eq(0), ones.eq(0)]
                with m.If(self.tx_valid & (self.op_mode == 0)):
                    # Seven zeros and a one, the first of which this is.
                    m.d.sync += [self.oe.eq(1), shifted.eq(0b100_0000), left.eq(7)]
                    m.d.sync += [self.p_o.eq(0), self.n_o.eq(1)]
                    m.next = "Bits"
            with m.State("Bits"):
                with m.If(over & (ones == STUFF)):
                    put(Value.cast(0))
                with m.Elif(over & (left != 0)):
                    put(shifted[0])
                    m.d.sync += [shifted.eq(shifted >> 1), left.eq(left - 1)]
                with m.Elif(over & self.tx_valid):
                    m.d.comb += self.tx_ready.eq(1)
                    put(self.tx_data[0])
                    m.d.sync += [shifted.eq(self.tx_data[1:]), left.eq(7)]
                with m.Elif(over):
                    m.d.sync += [self.p_o.eq(0), self.n_o.eq(0), left.eq(1)]
                    m.next = "End"
            with m.State("End"):
                with m.If(over):
                    m.d.sync += left.eq(0)
                    with m.If(left == 0):
                        m.d.sync += self.p_o.eq(1)
                        m.next = "Leave"
            with m.State("Leave"):
                with m.If(over):
                    m.d.sync += self.oe.eq(0)
                    m.next = "Idle"
