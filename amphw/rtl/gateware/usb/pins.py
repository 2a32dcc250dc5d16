"""What stands between a link over USB and the pins of a chip: buffers both ways, and supplies that the chip
sets itself."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Instance, IOPort, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.board_top import attached
from amphw.rtl.gateware.network.rgmii import ECP5
from amphw.rtl.gateware.streams import GatewareError
from amphw.rtl.gateware.usb.link import ULPI, WIRES

RAILS = 1.2, 1.2
"""Volts of the ButterStick's other two supplies, those of its connectors A and B: the least that a module in
one of them may be made for."""


BUFFERS = {"ecp5": ("BB", "T", "B"), "gowin": ("IOBUF", "OEN", "IO")}
"""By family: the cell of a pin in both directions, what keeps it from being driven, and the pin. `I` goes out
there, and `O` comes in."""


def _both_ways(m: Module, family: str, pin: Any, out: Value, driven: Value) -> Signal:
    """A buffer: what is at the pin."""
    there = Signal()
    cell, off, at_pin = BUFFERS[family]
    m.submodules += Instance(
        cell, ("i", "I", out), ("i", off, ~driven), ("o", "O", there), ("io", at_pin, pin)
    )
    return there


class AtWires(wiring.Component):
    """A top module with the ports `WIRES`, at two pins of an ECP5, both ways: `usb_p` and `usb_n`."""

    def __init__(self, top: Any) -> None:
        self.top = top
        super().__init__({"usb_clk": WIRES["usb_clk"], "usb_pullup": WIRES["usb_pullup"]})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.top = top = self.top
        m.d.comb += attached(top, self, {"usb_clk": In(1), "usb_pullup": Out(1)})
        for name in ("p", "n"):
            pin = IOPort(1, name=f"usb_{name}")
            there = _both_ways(m, "ecp5", pin, getattr(top, f"usb_{name}_o"), top.usb_oe)
            m.d.comb += getattr(top, f"usb_{name}_i").eq(there)
        return m


class AtUlpi(wiring.Component):
    """A top module with the ports `ULPI` at the pins of a PHY, of which `ulpi_data` are in both directions.

    family: of the chip, a key of BUFFERS. drives_clock: the PHY has no clock of its own: the chip's, which is
    an ECP5, goes out at `ulpi_clk_out`. reset_low: low resets it. supplies: as of `Supplies`, or None.
    """

    def __init__(
        self,
        top: Any,
        family: str,
        drives_clock: bool,
        reset_low: bool,
        supplies: Supplies | None = None,
    ) -> None:
        self.top, self.family = top, family
        self.drives_clock, self.reset_low, self.supplies = drives_clock, reset_low, supplies
        ports = {name: port for name, port in ULPI.items() if "data" not in name}
        if drives_clock:
            ports["ulpi_clk_out"] = Out(1)
        if supplies is not None:
            ports |= {"supply_pdm": Out(len(supplies.volts)), "supply_on": Out(1)}
        super().__init__(ports)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.top = top = self.top
        m.d.comb += attached(top, self, {name: ULPI[name] for name in ULPI if hasattr(self, name)})
        if self.family == "gowin":
            # Yosys puts a buffer behind the pin, and only a kept name is that of the net behind it.
            self.ulpi_clk.attrs["keep"] = 1
        pins = IOPort(8, name="ulpi_data")
        for bit in range(8):
            there = _both_ways(m, self.family, pins[bit], top.ulpi_data_o[bit], top.ulpi_data_oe)
            m.d.comb += top.ulpi_data_i[bit].eq(there)
        if self.reset_low:
            m.d.comb += self.ulpi_reset.eq(~top.ulpi_reset)
        if self.drives_clock:
            clock = ECP5.give(m, self.ulpi_clk, Value.cast(1), Value.cast(0), 0)
            m.d.comb += self.ulpi_clk_out.eq(clock)
        if self.supplies is not None:
            m.submodules.supplies = supplies = self.supplies
            m.d.comb += [self.supply_pdm.eq(supplies.pdm), self.supply_on.eq(supplies.on)]
        return m


class Supplies(wiring.Component):
    """Supplies of banks of pins whose regulators take a current from the chip: the more, the lower they are.

    volts: of each. pdm: how much, as the share of time in which it is high, at 3.3 V through a resistor and a
    filter; on: switches all of them on, once the filters have settled. clock_hz: of `sync`.

    The regulators' parts are those of the ButterStick r1.0, as amaranth-boards 0.0.21 gives them: they keep
    0.6 V between 53.6 kilohms to what goes out, 13 kilohms to ground, and 68 kilohms to the chip.
    """

    KEPT, TO_CHIP, TO_OUTPUT, TO_GROUND, HIGH = 0.6, 68e3, 53.6e3, 13e3, 3.3
    STEPS = 1 << 10
    SETTLED_S = 0.2
    """About thirty times what the filter takes."""

    def __init__(self, volts: tuple[float, ...], clock_hz: float) -> None:
        self.volts, self.settled = volts, round(self.SETTLED_S * clock_hz)
        self.shares = [self.share(each) for each in volts]
        super().__init__({"pdm": Out(len(volts)), "on": Out(1)})

    @classmethod
    def share(cls, volts: float) -> int:
        """Of STEPS. Raises GatewareError for a supply that cannot be set."""
        to_ground = cls.KEPT / cls.TO_GROUND
        from_output = (volts - cls.KEPT) / cls.TO_OUTPUT
        at_chip = cls.KEPT + (to_ground - from_output) * cls.TO_CHIP
        if not 0 <= at_chip <= cls.HIGH:
            raise GatewareError(f"The supply of these pins cannot be set to {volts:g} V.")
        return round(at_chip / cls.HIGH * cls.STEPS)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        since = Signal(range(self.settled + 1))
        with m.If(since != self.settled):
            m.d.sync += since.eq(since + 1)
        with m.Else():
            m.d.sync += self.on.eq(1)
        # Carries of a sum spread the highs as evenly as can be, which leaves the filter the least to do.
        for number, share in enumerate(self.shares):
            total = Signal(range(2 * self.STEPS), name=f"total{number}")
            m.d.sync += total.eq(total[:-1] + share)
            m.d.comb += self.pdm[number].eq(total[-1])
        return m
