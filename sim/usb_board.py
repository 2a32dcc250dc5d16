"""A board at a port of USB that is not there: the generated board top, simulated, opposite a host of USB
whose serial port is a pseudo-terminal.

    with UsbBoard(plan) as board:
        device = BoardDevice(f"{board.port},q4.12")

Everything of a real board is in it but the pins and the clocks, which are one here: every bit of every packet
is on the simulated wires, or every byte at the simulated PHY's ULPI. The host finds the device and opens its
port before anything else.
"""

from __future__ import annotations

import os
import random
import select
import threading
import tty
from typing import Any

from amphw.rtl.gateware.board_top import LinkTop
from amphw.rtl.gateware.usb.link import ULPI, WIRES, FullSpeedLink, HighSpeedLink
from amphw.rtl.gateware.usb.serial_port import DATA
from amphw.rtl.plan.hardware import HardwarePlan
from sim.ulpi_phy import UlpiWires
from sim.usb_host import Host
from sim.usb_wires import SimulatedWires

ROOM = 4096
"""Bytes from the terminal that a host keeps before it reads no more of it."""


class UsbBoard:
    """Runs in a thread until it is closed. port: the terminal's name, as of a serial port. high: at high
    speed, behind a PHY.

    spoil: the share of packets to the board that are damaged; lose: of confirmations to it that are lost.
    """

    def __init__(self, plan: HardwarePlan, high: bool = False) -> None:
        self.wires: Any
        if high:
            self.wires = UlpiWires(LinkTop(plan, HighSpeedLink(60e6, "", 1e-5), ULPI))
            self.wires.wait(1.3)  # as long as a PHY is left alone
        else:
            self.wires = SimulatedWires(LinkTop(plan, FullSpeedLink(48e6, "", 1e-5), WIRES))
        self.spoil = self.lose = 0.0
        self.host = Host(self.wires)
        chance = random.Random(7).random
        self.host.faults.damages_data = lambda: chance() < self.spoil
        self.host.faults.loses_ack = lambda: chance() < self.lose
        self._outward = b""
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)
        self.port = os.ttyname(self._slave)
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self.plug()

    def plug(self) -> None:
        """The cable is in: the host finds the device, whatever it was doing before."""
        self._outward = b""
        while select.select([self._master], [], [], 0)[0]:
            os.read(self._master, 4096)
        self.wires.plugged = True  # what a PHY sees of this is a reset
        self.wires.wait(0.1)
        self.host.find()
        self.host.open()
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            quiet = 0
            while not self._stop.is_set():
                wait = 0.01 if quiet > 100 else 0
                if len(self._outward) < ROOM and select.select([self._master], [], [], wait)[0]:
                    self._outward += os.read(self._master, 4096)
                    quiet = 0
                now = self._outward[: self.host.packet]
                if now and self.host.send(DATA, now):
                    self._outward = self._outward[len(now) :]
                    quiet = 0
                quiet = 0 if self._take() else quiet + 1
        except BaseException as error:
            self.error = error

    def _take(self) -> bool:
        came = self.host.receive(DATA)
        if came:
            os.write(self._master, came)
        return came is not None

    def unplug(self) -> None:
        """From now on it says and hears nothing."""
        self._stop.set()
        self._thread.join()
        self.wires.plugged = False
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        try:
            self.unplug()
        finally:
            self.wires.close()
            os.close(self._master)
            os.close(self._slave)

    def __enter__(self) -> UsbBoard:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
