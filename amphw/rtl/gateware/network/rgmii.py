"""GMII over a PHY's RGMII (version 2.0): half a byte at each edge of a clock of 125 MHz, in each direction.

The PHY's receive clock is the transmit clock, too: it is there as long as there is a link of 1 Gbit/s, and
then the chip needs no clock of that rate of its own. The cells that take and give a bit at both edges are
the chip's; `sim.ddr` has models of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Instance, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.network.ethernet import GMII
from amphw.rtl.gateware.streams import GatewareError

RGMII = {
    "eth_rx_clk": In(1),
    "eth_rx_ctl": In(1),
    "eth_rx_data": In(4),
    "eth_tx_clk": Out(1),
    "eth_tx_ctl": Out(1),
    "eth_tx_data": Out(4),
    "eth_reset": Out(1),
}
"""Ports to a PHY. eth_reset: low resets it."""

RESET_S = 0.02
"""Seconds for which the PHY is reset after the chip was configured, more than those in use here ask for."""

STEP_NS = 0.025
"""Of an ECP5's delay cell, nominally."""

STEPS = 128


@dataclass(frozen=True)
class Ddr:
    """Cells for a bit at both edges of a clock.

    take: of a module, a clock, a bit and steps of delay -> the bits at the rising edge and at the falling
    one behind it, together, from a rising edge on. give: of a module, a clock, the bit for its high half,
    that for its low half, and steps of delay -> the bit that goes out.
    """

    take: Callable[[Module, Value, Value, int], tuple[Value, Value]]
    give: Callable[[Module, Value, Value, Value, int], Value]


def _delayed(m: Module, bit: Value, steps: int) -> Value:
    late = Signal()
    cell = Instance("DELAYG", p_DEL_MODE="SCLK_ALIGNED", p_DEL_VALUE=steps, i_A=bit, o_Z=late)
    m.submodules += cell
    return late


def _take(m: Module, clock: Value, bit: Value, steps: int) -> tuple[Value, Value]:
    rising, falling = Signal(), Signal()
    m.submodules += Instance(
        "IDDRX1F", i_D=_delayed(m, bit, steps), i_SCLK=clock, i_RST=0, o_Q0=rising, o_Q1=falling
    )
    return rising, falling


def _give(m: Module, clock: Value, high: Value, low: Value, steps: int) -> Value:
    out = Signal()
    m.submodules += Instance("ODDRX1F", i_D0=high, i_D1=low, i_SCLK=clock, i_RST=0, o_Q=out)
    return _delayed(m, out, steps)


ECP5 = Ddr(_take, _give)


def steps(nanoseconds: float) -> int:
    """Of a delay cell. Raises GatewareError for more than it has."""
    found = round(nanoseconds / STEP_NS)
    if not 0 <= found < STEPS:
        raise GatewareError(
            f"A pin's signal can be delayed by 0 to {(STEPS - 1) * STEP_NS:g} ns on an ECP5, not by "
            f"{nanoseconds:g} ns."
        )
    return found


class Rgmii(wiring.Component):
    """What stands between a GMII, whose clocks it makes, and a PHY's pins.

    rx_delay, tx_delay: in ns, by which received data comes later than its clock, and the transmitted clock
    than its data, than at the pins. Both ends need the edges of the clock in the middle of the bits, so
    that 2 ns are wanted where neither the board's traces nor the PHY make them. clock_hz: of `sync`.
    """

    def __init__(self, rx_delay: float, tx_delay: float, clock_hz: float, ddr: Ddr = ECP5) -> None:
        self.rx_steps, self.tx_steps, self.ddr = steps(rx_delay), steps(tx_delay), ddr
        self.reset_cycles = round(RESET_S * clock_hz)
        gmii = {name: member.flip() for name, member in GMII.items()}
        super().__init__({**RGMII, **gmii})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        clock = self.eth_rx_clk
        m.d.comb += [self.rx_clk.eq(clock), self.tx_clk.eq(clock)]
        low, high = [], []
        for bit in range(4):
            first, second = self.ddr.take(m, clock, self.eth_rx_data[bit], self.rx_steps)
            low.append(first)
            high.append(second)
            out = self.ddr.give(m, clock, self.tx_data[bit], self.tx_data[4 + bit], 0)
            m.d.comb += self.eth_tx_data[bit].eq(out)
        valid, mixed = self.ddr.take(m, clock, self.eth_rx_ctl, self.rx_steps)
        m.d.comb += [
            self.rx_data.eq(Cat(*low, *high)),
            self.rx_valid.eq(valid),
            self.rx_error.eq(valid ^ mixed),  # as the standard puts it, so that the line is quiet without one
            self.eth_tx_ctl.eq(self.ddr.give(m, clock, self.tx_enable, self.tx_enable, 0)),
            self.eth_tx_clk.eq(self.ddr.give(m, clock, Value.cast(1), Value.cast(0), self.tx_steps)),
        ]
        since = Signal(range(self.reset_cycles + 1))
        with m.If(since != self.reset_cycles):
            m.d.sync += since.eq(since + 1)
        with m.Else():
            m.d.sync += self.eth_reset.eq(1)
        return m
