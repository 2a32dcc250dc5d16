"""What a host drives a board's circuit over, as a board's file says it, and the pins of its PHYs."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amphw.ir.config_fields import option
from amphw.rtl.isa.datagrams import PORT, SCHEME
from amphw.rtl.isa.word_frames import BAUD
from amphw.rtl.toolchain.families import Pin
from amphw.rtl.toolchain.synthesis import ClockNet

KINDS = ("serial", "ethernet", "usb")
"""Of links of a board."""

AXI_STREAM = "axi-stream"
"""The kind of link of a circuit that is a part of a larger system."""

ADDRESS = "192.168.1.50"
"""Of a board in a network, where its file names no other."""

OWN_MACS = 0x024D
"""What Ethernet addresses of circuits begin with, before that of IPv4: the first byte says that no maker has
them."""

USB_RATES = {"full": 12_000_000, "high": 200_000_000}
"""By the speed of USB: the baud rate of a serial line that would pass as many words. Of 12 Mbit/s, up to 19
packets of 64 bytes fit into each millisecond; at high speed the circuit takes 12 cycles for each word's three
bytes, which is less than what fits."""

USB_CLOCKS = {"full": (48, 0.0024), "high": (60, 0.0004)}
"""By the speed of USB: MHz of the clock that a PHY has, and by how much it may be off where the chip makes
it: as much as devices of that speed may (USB 2.0, 7.1.11), less what an oscillator's crystal may."""

PHY_CLOCK = ClockNet("eth_rx_clk", 125.0, port=True, needed=True)
"""That of a PHY's RGMII at 1 Gbit/s, which is as exact as the PHY's crystal: no margin is kept for it."""


ULPI_CLOCKS = {
    "ecp5": ClockNet("ulpi_clk", 60.0, port=True, needed=True),
    "gowin": ClockNet("design.ulpi_clk", 60.0, needed=True),
}
"""That of a PHY of USB that makes it, by family: of `gateware.usb.pins.AtUlpi`."""


@dataclass(frozen=True)
class LinkSettings:
    """[link]: what the host drives the circuit over."""

    kind: str = option(
        "serial",
        help="of link: the board's serial line, its Ethernet, the chip's own USB, or AXI4-Streams of a "
        "system that the circuit is a part of",
        choices=(*KINDS, AXI_STREAM),
    )
    baud: int = option(
        BAUD,
        help="of a serial line, bits a second: the most that the board's bridge keeps up with; with "
        "AXI4-Streams that of the example that comes with the circuit",
        minimum=1,
    )
    address: str = option(ADDRESS, help="of Ethernet, its IPv4 address in the network")
    mac: str = option(
        "", help="of Ethernet, such as 02:00:00:00:00:01; without it, one of nobody's made of `address`"
    )
    port: int = option(PORT, help="of Ethernet, its UDP port", minimum=1, maximum=65_535)

    @property
    def url(self) -> str:
        """Where a circuit is in a network, for `--device board:URL`."""
        return f"{SCHEME}{self.address}" + f":{self.port}" * (self.port != PORT)

    def __str__(self) -> str:
        if self.kind == "ethernet":
            return f"Ethernet, {self.url}"
        if self.kind == "usb":
            return "USB, where it is a serial port"
        if self.kind == AXI_STREAM:
            return "two AXI4-Streams of 16-bit words"
        return f"a serial line of {self.baud:,} baud"

    def told(self) -> dict[str, Any]:
        """What means something of a link of its kind, by key."""
        if self.kind == "ethernet":
            return {"kind": self.kind, "address": self.address, "mac": self.mac, "port": self.port}
        return {"kind": self.kind, **({} if self.kind == "usb" else {"baud": self.baud})}

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Of Ethernet: the address of the port, that of IPv4, and the UDP port. Raises ValueError for what is
        none."""
        ip = int(ipaddress.IPv4Address(self.address))
        if not self.mac:
            return OWN_MACS << 32 | ip, ip, self.port
        if not re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", self.mac) or int(self.mac[1], 16) & 1:
            raise ValueError(f"{self.mac!r} is no address of one Ethernet port")
        return int(self.mac.replace(":", ""), 16), ip, self.port


@dataclass(frozen=True)
class Phy:
    """[ethernet]: the PHY for 1 Gbit/s at an RGMII that amaranth-boards knows."""

    phy: int = option(-1, help="number of its resource eth_rgmii; -1 where there is none", minimum=-1)
    rx_delay_ns: float = option(2.0, help="by which received data is delayed in the chip", minimum=0.0)
    tx_delay_ns: float = option(
        2.0, help="by which the transmitted clock is delayed in the chip", minimum=0.0
    )


@dataclass(frozen=True)
class Usb:
    """[usb]: a port of USB at the chip itself, which amaranth-boards knows."""

    resource: str = option("", help="name of its resource, of number 0; empty where there is none")
    speed: str = option(
        "full",
        help="full, where the chip has the pair of wires, or high, where a PHY with a ULPI has it",
        choices=tuple(USB_RATES),
    )
    drives_clock: bool = option(False, help="whether the PHY takes its clock of 60 MHz from the chip")
    reset_low: bool = option(False, help="whether low resets the PHY")
    supply_volts: float = option(
        0.0,
        help="to which the chip has to set the supply of these pins itself (the resource vccio_ctrl, as on "
        "the ButterStick); 0 where it is there anyway",
        minimum=0.0,
    )
    levels: str = option("", help="the standard of its pins' levels; without it, that of amaranth-boards")

    @property
    def clock(self) -> str:
        """The port of the clock that the chip makes for it; empty where a PHY makes it."""
        if self.speed == "full":
            return "usb_clk"
        return "ulpi_clk" if self.drives_clock else ""

    def refused(self, family: str) -> str:
        """Why a chip of a family has no such port; empty if it has."""
        if family not in ULPI_CLOCKS:
            return "its chip is neither an ECP5 nor one of Gowin"
        if not self.resource:
            return "its file names no port ([usb])"
        if self.clock and family != "ecp5":
            return "a port whose clock the chip makes is built for an ECP5 only"
        return ""


_USB = {"d_p": "usb_p", "d_n": "usb_n", "pullup": "usb_pullup", "rst": "ulpi_reset"}
_SUPPLIES = {"pdm": "supply_pdm", "en": "supply_on"}
"""What amaranth-boards calls signals of USB and of supplies, and what we do; else it is `ulpi_NAME`."""


def usb_pins(
    usb: Usb, resource: Any, attributes: Mapping[str, Any], wired: Mapping[str, str]
) -> dict[str, Pin]:
    """Of a resource of amaranth-boards, by the ports of `gateware.usb.pins`."""
    supplies = resource.name == "vccio_ctrl"
    if usb.levels and not supplies:
        attributes = {**attributes, "IO_TYPE": usb.levels}
    found: dict[str, Pin] = {}
    for line in resource.ios if hasattr(resource.ios[0], "ios") else ():  # of several signals
        port = _SUPPLIES[line.name] if supplies else _USB.get(line.name, f"ulpi_{line.name}")
        if port == "ulpi_clk" and usb.drives_clock:
            port = "ulpi_clk_out"
        found |= _sites(port, line, attributes, wired)
    return found


_RGMII = {"rst": "reset", "tx_ctrl": "tx_ctl", "rx_ctrl": "rx_ctl"}
"""What some pin-outs call signals of an RGMII, and what we do."""


def rgmii_pins(resource: Any, attributes: Mapping[str, Any], wired: Mapping[str, str]) -> dict[str, Pin]:
    """Of a resource of amaranth-boards, by the ports of `gateware.network.rgmii.RGMII`."""
    found: dict[str, Pin] = {}
    for line in resource.ios:
        if line.name.startswith(("tx_", "rx_", "rst")):
            found |= _sites(f"eth_{_RGMII.get(line.name, line.name)}", line, attributes, wired)
    return found


def _sites(port: str, line: Any, attributes: Mapping[str, Any], wired: Mapping[str, str]) -> dict[str, Pin]:
    """Those of a signal, bit by bit if it has several."""
    found: dict[str, Pin] = {}
    sites = line.ios[0].names
    for number, site in enumerate(sites):
        while ":" in site:
            site = wired.get(site, "")
        pin = Pin(site, {name: str(value) for name, value in {**attributes, **line.attrs}.items()})
        found[f"{port}[{number}]" if len(sites) > 1 else port] = pin
    return found
