"""A link of 16-bit words over USB: the words framed and checked as on a serial line, and the clocks between a
PHY and the circuit."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

from amaranth.hdl import ClockDomain, DomainRenamer, Elaboratable, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.fifo import AsyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.link.framing import WORD, framed
from amphw.rtl.gateware.streams import SkidBuffer
from amphw.rtl.gateware.usb.full_speed import FullSpeedPhy
from amphw.rtl.gateware.usb.serial_port import FULL, HIGH, Speed, UsbSerialPort

CROSSING = 16
"""Bytes on their way from one clock to another."""

DETACHED_S = 0.02
"""Seconds behind the configuration of a chip for which the device is not there for a host, so that one who
knew what was in the chip before sees that it has gone; also those for which a PHY is reset."""

WIRES = {
    "usb_clk": In(1),
    "usb_p_i": In(1, init=1),
    "usb_n_i": In(1),
    "usb_p_o": Out(1),
    "usb_n_o": Out(1),
    "usb_oe": Out(1),
    "usb_pullup": Out(1),
}
"""Ports to the pair of wires at full speed, and to what pulls one of them up, which tells a host that a
device is there. usb_clk: 48 MHz, four to a bit."""

ULPI = {
    "ulpi_clk": In(1),
    "ulpi_data_i": In(8),
    "ulpi_data_o": Out(8),
    "ulpi_data_oe": Out(1),
    "ulpi_dir": In(1),
    "ulpi_nxt": In(1),
    "ulpi_stp": Out(1),
    "ulpi_reset": Out(1),
}
"""Ports to a PHY (UTMI+ Low Pin Interface, 1.1) at high speed. ulpi_clk: 60 MHz. ulpi_reset: high resets
it."""


class Crossed(Elaboratable):
    """A `UsbSerialPort` with queues for its bytes between the clock `usb` and the circuit's."""

    def __init__(self, bus: Any, speed: Speed, serial: str) -> None:
        self.port = UsbSerialPort(bus, speed, "amphw circuit", serial)
        self.inward = AsyncFIFOBuffered(width=8, depth=CROSSING, w_domain="usb", r_domain="sync")
        self.outward = AsyncFIFOBuffered(width=8, depth=CROSSING, w_domain="sync", r_domain="usb")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.port = port = self.port
        m.submodules.inward = inward = self.inward
        m.submodules.outward = outward = self.outward
        wiring.connect(m, port.o, inward.w_stream)
        wiring.connect(m, outward.r_stream, port.i)
        return m


class UsbLink(wiring.Component):
    """Words over USB. i: from the circuit; o: to it, in the clock `sync` of `clock_hz`.

    serial: the device's serial number, a text. detached_s: see `DETACHED_S`. Queues alone lead from one clock
    to another, and the reset of the clock `usb`.
    """

    PORTS: ClassVar[Mapping[str, Any]]

    def __init__(self, clock_hz: float, serial: str = "", detached_s: float = DETACHED_S) -> None:
        self.serial, self.detached = serial, max(1, round(detached_s * clock_hz))
        super().__init__({**self.PORTS, "i": In(WORD), "o": Out(WORD), "faults": Out(1)})

    def crossed(self, m: Module) -> Crossed:
        """The device, at the ports, in a submodule."""
        raise NotImplementedError

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.domains.usb = usb = ClockDomain("usb", local=True)
        m.d.comb += usb.clk.eq(getattr(self, next(iter(self.PORTS))))
        since, held = Signal(range(self.detached)), Signal(init=1)
        with m.If(held):
            m.d.sync += [since.eq(since + 1), held.eq(since != self.detached - 1)]
        m.submodules.reset = ResetSynchronizer(held, domain="usb")
        crossed = self.crossed(m)
        # Otherwise what the decoder makes of a byte decides in the same cycle which one the queue fetches.
        m.submodules.buffer = buffer = SkidBuffer(8)
        wiring.connect(m, crossed.inward.r_stream, buffer.i)
        framed(m, self, buffer.o, crossed.outward.w_stream)
        return m


class FullSpeedLink(UsbLink):
    """At full speed, 12 Mbit/s, behind a pair of wires."""

    PORTS = WIRES

    def crossed(self, m: Module) -> Crossed:
        phy = FullSpeedPhy()
        m.submodules.phy = DomainRenamer("usb")(phy)
        m.submodules.crossed = crossed = Crossed(phy, FULL, self.serial)
        pairs = [(f"usb_{name}", getattr(phy, name)) for name in ("p_o", "n_o", "oe", "pullup")]
        m.d.comb += [getattr(self, port).eq(signal) for port, signal in pairs]
        m.d.comb += [phy.p_i.eq(self.usb_p_i), phy.n_i.eq(self.usb_n_i)]
        return crossed


class HighSpeedLink(UsbLink):
    """At high speed, 480 Mbit/s, behind a PHY with a ULPI."""

    PORTS = ULPI

    def crossed(self, m: Module) -> Crossed:
        data = SimpleNamespace(i=self.ulpi_data_i, o=self.ulpi_data_o, oe=self.ulpi_data_oe)
        bus = SimpleNamespace(
            data=data,
            clk=SimpleNamespace(i=self.ulpi_clk),
            dir=SimpleNamespace(i=self.ulpi_dir),
            nxt=SimpleNamespace(i=self.ulpi_nxt),
            stp=SimpleNamespace(o=self.ulpi_stp),
            rst=SimpleNamespace(o=Signal()),
        )
        m.submodules.crossed = crossed = Crossed(bus, HIGH, self.serial)
        m.d.comb += self.ulpi_reset.eq(ResetSignal("usb"))
        return crossed


def link_of(speed: str, clock_hz: float, serial: str) -> UsbLink:
    """That of a board. speed: full or high."""
    kind = {"full": FullSpeedLink, "high": HighSpeedLink}[speed]
    return kind(clock_hz, serial)
