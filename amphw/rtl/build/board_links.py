"""What a host drives a board's circuit over, as a board's file says it, and the pins of an Ethernet PHY."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amphw.ir.config_fields import option
from amphw.rtl.isa.datagrams import PORT
from amphw.rtl.isa.word_frames import BAUD
from amphw.rtl.toolchain.families import Pin
from amphw.rtl.toolchain.synthesis import ClockNet

KINDS = ("serial", "ethernet")
"""Of links of a board."""

AXI_STREAM = "axi-stream"
"""The kind of link of a circuit that is a part of a larger system."""

ADDRESS = "192.168.1.50"
"""Of a board in a network, where its file names no other."""

OWN_MACS = 0x024D
"""What Ethernet addresses of circuits begin with, before that of IPv4: the first byte says that no maker has
them."""

PHY_CLOCK = ClockNet("eth_rx_clk", 125.0, port=True, needed=True)
"""That of a PHY's RGMII at 1 Gbit/s, which is as exact as the PHY's crystal: no margin is kept for it."""


@dataclass(frozen=True)
class LinkSettings:
    """[link]: what the host drives the circuit over."""

    kind: str = option(
        "serial",
        help="of link: the board's serial line, its Ethernet, or AXI4-Streams of a system that the circuit "
        "is a part of",
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

    def __str__(self) -> str:
        if self.kind == "ethernet":
            return f"Ethernet, udp://{self.address}"
        if self.kind == AXI_STREAM:
            return "two AXI4-Streams of 16-bit words"
        return f"a serial line of {self.baud:,} baud"

    def told(self) -> dict[str, Any]:
        """What means something of a link of its kind, by key."""
        if self.kind == "ethernet":
            return {"kind": self.kind, "address": self.address, "mac": self.mac, "port": self.port}
        return {"kind": self.kind, "baud": self.baud}

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


_RGMII = {"rst": "reset", "tx_ctrl": "tx_ctl", "rx_ctrl": "rx_ctl"}
"""What some pin-outs call signals of an RGMII, and what we do."""


def rgmii_pins(resource: Any, attributes: Mapping[str, Any], wired: Mapping[str, str]) -> dict[str, Pin]:
    """Of a resource of amaranth-boards, by the ports of `gateware.network.rgmii.RGMII`."""
    found = {}
    for line in resource.ios:
        if line.name.startswith(("tx_", "rx_", "rst")):
            port = f"eth_{_RGMII.get(line.name, line.name)}"
            sites = line.ios[0].names
            for number, site in enumerate(sites):
                while ":" in site:
                    site = wired.get(site, "")
                pin = Pin(site, {name: str(value) for name, value in {**attributes, **line.attrs}.items()})
                found[f"{port}[{number}]" if len(sites) > 1 else port] = pin
    return found
