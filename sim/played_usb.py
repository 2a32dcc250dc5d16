"""A circuit at a port of USB, in the circuit's own time: what a driver of serial ports writes and reads, and
a host that moves packets as fast as the wires take them. The host itself takes no time."""

from __future__ import annotations

from typing import Any

from amphw.rtl.gateware.board_top import LinkTop
from amphw.rtl.gateware.usb.link import ULPI, WIRES, FullSpeedLink, HighSpeedLink
from amphw.rtl.gateware.usb.serial_port import DATA
from amphw.rtl.plan.hardware import HardwarePlan
from sim.ulpi_phy import UlpiWires
from sim.usb_host import Host
from sim.usb_wires import SimulatedWires

CLOCKS = {"full": 48e6, "high": 60e6}
"""By the speed, cycles a second: of USB's clock, which the circuit has, too."""


class PlayedUsb:
    """See `amphw.rtl.driver.serial_line.Line`. sent: bytes to the circuit and from it.

    While there is something to be sent, packets to the circuit and questions for packets from it take turns.
    """

    name = "simulated"

    def __init__(self, plan: HardwarePlan, speed: str) -> None:
        self.clock = CLOCKS[speed]
        self.wires: Any
        if speed == "high":
            self.wires = UlpiWires(LinkTop(plan, HighSpeedLink(self.clock, "", 1e-5), ULPI))
            self.wires.wait(1.3)  # as long as a PHY is left alone
        else:
            self.wires = SimulatedWires(LinkTop(plan, FullSpeedLink(self.clock, "", 1e-5), WIRES))
            self.wires.wait(0.1)
        self.host = Host(self.wires)
        self.host.find()
        self.host.open()
        self.sent = {"to": 0, "from": 0}
        self._outward = b""

    @property
    def now(self) -> float:
        return float(self.wires.simulation.cycles) / self.clock

    def write(self, data: bytes) -> None:
        self._outward += data
        self.sent["to"] += len(data)

    def read(self, seconds: float) -> bytes:
        until = self.now + seconds
        while self.now < until:
            part = self._outward[: self.host.packet]
            if part and self.host.send(DATA, part):
                self._outward = self._outward[len(part) :]
            if came := self.host.receive(DATA):
                self.sent["from"] += len(came)
                return came
        return b""

    def close(self) -> None:
        self.wires.close()
