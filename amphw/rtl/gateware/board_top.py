"""What a chip is configured with: a device behind the board's link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Module, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.device import Device
from amphw.rtl.gateware.link.uart import UartLink, divisor
from amphw.rtl.gateware.network.ethernet import GMII, EthernetLink
from amphw.rtl.gateware.network.internet import Addresses
from amphw.rtl.gateware.network.rgmii import ECP5, RGMII, Ddr, Rgmii
from amphw.rtl.gateware.streams import SkidBuffer
from amphw.rtl.isa.wire import WORD
from amphw.rtl.plan.hardware import HardwarePlan


def attached(inner: Any, outer: Any, ports: Mapping[str, Any]) -> list[Any]:
    """Each of the ports, as `inner` has them, to that of `outer`."""
    pairs = [(getattr(inner, name), getattr(outer, name), port.flow == In) for name, port in ports.items()]
    return [of.eq(at) if inward else at.eq(of) for of, at, inward in pairs]


def _device_behind(link: Any, plan: HardwarePlan, pins: list[Any]) -> Module:
    """The link, which `pins` attach, and the device of a plan at its streams of words.

    Nobody watches the device here, so that the logic which tells what happens in it is left out.
    """
    m = Module()
    m.submodules.device = device = Device(plan)
    m.submodules.link = link
    # The memory of the link lies far from that of the device.
    m.submodules.buffer = buffer = SkidBuffer(unsigned(WORD))
    wiring.connect(m, link.o, buffer.i)
    wiring.connect(m, buffer.o, device.words_in)
    wiring.connect(m, device.words_out, link.i)
    m.d.comb += [*pins, device.watched.ready.eq(1)]
    return m


class BoardTop(wiring.Component):
    """The device of a plan; rx, tx: the serial line. Everything runs at one clock, of `clock_hz`."""

    def __init__(self, plan: HardwarePlan, clock_hz: float, baud: float) -> None:
        self.plan = plan
        self.divisor = divisor(clock_hz, baud)
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1)})

    def elaborate(self, platform: Any) -> Module:
        link = UartLink(self.divisor)
        return _device_behind(link, self.plan, [link.rx.eq(self.rx), self.tx.eq(link.tx)])


class LinkTop(wiring.Component):
    """The device of a plan behind a link, whose other ports are `phy`."""

    def __init__(self, plan: HardwarePlan, link: Any, phy: Mapping[str, Any]) -> None:
        self.plan, self.link, self.phy = plan, link, phy
        super().__init__(phy)

    def elaborate(self, platform: Any) -> Module:
        return _device_behind(self.link, self.plan, attached(self.link, self, self.phy))


class EthernetTop(LinkTop):
    """The device of a plan behind a PHY's GMII, with addresses of its own; it runs at a clock of `clock_hz`.

    identity, settings: see `EthernetLink`.
    """

    def __init__(
        self, plan: HardwarePlan, own: Addresses, identity: int, clock_hz: float, **settings: int
    ) -> None:
        super().__init__(plan, EthernetLink(own, identity, clock_hz, **settings), GMII)


class RgmiiTop(wiring.Component):
    """The same behind the pins of a PHY's RGMII: see `Rgmii`."""

    def __init__(
        self,
        plan: HardwarePlan,
        own: Addresses,
        identity: int,
        clock_hz: float,
        rx_delay: float,
        tx_delay: float,
        ddr: Ddr = ECP5,
    ) -> None:
        self.top = EthernetTop(plan, own, identity, clock_hz)
        self.rgmii = Rgmii(rx_delay, tx_delay, clock_hz, ddr)
        super().__init__(RGMII)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.top = self.top
        m.submodules.rgmii = self.rgmii
        m.d.comb += attached(self.top, self.rgmii, GMII) + attached(self.rgmii, self, RGMII)
        return m
