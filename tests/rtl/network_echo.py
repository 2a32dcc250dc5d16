"""Links that give back their words: the smallest circuits behind a PHY."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Module
from amaranth.lib import wiring

from amphw.rtl.gateware.board_top import attached
from amphw.rtl.gateware.network.ethernet import GMII, EthernetLink
from amphw.rtl.gateware.network.rgmii import RGMII, Rgmii


class Echo(wiring.Component):
    """A link that gives back its words, with the ports `phy`."""

    def __init__(self, link: Any, phy: Mapping[str, Any] = GMII) -> None:
        self.link, self.phy = link, phy
        super().__init__(phy)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.link = link = self.link
        wiring.connect(m, link.o, link.i)
        m.d.comb += attached(link, self, self.phy)
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
