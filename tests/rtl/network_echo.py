"""A link over Ethernet that gives back its words: the smallest circuit in a network."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring

from amphw.rtl.gateware.board_top import attached
from amphw.rtl.gateware.network.ethernet import GMII, EthernetLink
from amphw.rtl.gateware.network.rgmii import RGMII, Rgmii


class Echo(wiring.Component):
    """A link that gives back its words."""

    def __init__(self, link: EthernetLink) -> None:
        self.link = link
        super().__init__(GMII)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.link = link = self.link
        wiring.connect(m, link.o, link.i)
        m.d.comb += attached(link, self, GMII)
        return m


class EchoAtPins(wiring.Component):
    """The same at the pins of a PHY's RGMII."""

    def __init__(self, link: EthernetLink, rgmii: Rgmii) -> None:
        self.echo, self.rgmii = Echo(link), rgmii
        super().__init__(RGMII)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.echo = self.echo
        m.submodules.rgmii = self.rgmii
        m.d.comb += attached(self.echo, self.rgmii, GMII) + attached(self.rgmii, self, RGMII)
        return m
