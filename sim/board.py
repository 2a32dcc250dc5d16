"""A board that is not there: the generated board top, simulated, its serial line at a pseudo-terminal.

    with SimulatedBoard(plan) as board:
        device = BoardDevice(f"{board.port},q4.12")

Everything of a real board is in it but the USB bridge and the board's wires: every bit of every byte passes
through the gates of the serial line, in the board's direction and back.
"""

from __future__ import annotations

import os
import select
import threading
import tty
from typing import Any

import numpy as np
from amaranth.hdl import Module, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.board_top import BoardTop
from amphw.rtl.gateware.link.uart import UartReceiver, UartTransmitter
from amphw.rtl.plan.hardware import HardwarePlan
from amphw.rtl.verilated.simulation import Simulation

DIVISOR = 4
"""Cycles a bit: as few as the serial line takes, because most of them do nothing."""

STEP = 4_000
"""Cycles between looks at the terminal."""


class BoardAndBridge(wiring.Component):
    """The board top, and opposite its pins a USB bridge: bytes in, bytes out, in words of 16 bits."""

    def __init__(self, plan: HardwarePlan) -> None:
        self.plan = plan
        word = stream.Signature(unsigned(16))
        super().__init__({"bytes_in": In(word), "bytes_out": Out(word)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.top = top = BoardTop(self.plan, DIVISOR, 1)
        m.submodules.transmitter = transmitter = UartTransmitter(DIVISOR)
        m.submodules.receiver = receiver = UartReceiver(DIVISOR)
        m.d.comb += [
            transmitter.i.payload.eq(self.bytes_in.payload),
            transmitter.i.valid.eq(self.bytes_in.valid),
            self.bytes_in.ready.eq(transmitter.i.ready),
            top.rx.eq(transmitter.tx),
            receiver.rx.eq(top.tx),
            self.bytes_out.payload.eq(receiver.o.payload),
            self.bytes_out.valid.eq(receiver.o.valid),
            receiver.o.ready.eq(self.bytes_out.ready),
        ]
        return m


class DirectLine:
    """The same as a line (`amphw.rtl.driver.serial_line.Line`) in this thread: it depends on no clock but its
    own, so that what is said over it is the same every time.

    said: (">" to the board or "<" from it, bytes), in their order.
    """

    name = "simulated"
    LOOKS = 100
    """Steps without a byte after which nothing more is awaited."""

    def __init__(self, plan: HardwarePlan) -> None:
        self.simulation = Simulation(BoardAndBridge(plan))
        self.said: list[tuple[str, bytes]] = []
        self._inward = np.zeros(0, np.uint16)

    def write(self, data: bytes) -> None:
        self.said.append((">", data))
        self._inward = np.concatenate([self._inward, np.frombuffer(data, np.uint8).astype(np.uint16)])

    def read(self, seconds: float) -> bytes:
        """Once everything that was written has been said, and the board is through with what it says."""
        came = b""
        for _ in range(self.LOOKS):
            got = self.simulation.exchange(self._inward, STEP)
            self._inward = self._inward[got.accepted :]
            came += got.words.astype(np.uint8).tobytes()
            if came and not len(got.words) and not len(self._inward):
                break
        if came:
            self.said.append(("<", came))
        return came

    def close(self) -> None:
        self.simulation.close()


class SimulatedBoard:
    """Runs in a thread until it is closed. port: the terminal's name, as of a serial port.

    damage: by number, from 0, the bytes from the board that are exchanged for others.
    """

    def __init__(self, plan: HardwarePlan, damage: dict[int, int] | None = None) -> None:
        self.simulation = Simulation(BoardAndBridge(plan))
        self.damage = damage or {}
        self.sent = 0  # bytes to the host
        self._inward = np.zeros(0, np.uint16)
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)
        self.port = os.ttyname(self._slave)
        self._stop = threading.Event()
        self.plug()

    def plug(self) -> None:
        """It goes on where it was unplugged."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        quiet = 0
        while not self._stop.is_set():
            ready, _, _ = select.select([self._master], [], [], 0.02 if quiet > 10 else 0)
            if ready:
                came = np.frombuffer(os.read(self._master, 4096), np.uint8)
                self._inward = np.concatenate([self._inward, came.astype(np.uint16)])
            got = self.simulation.exchange(self._inward, STEP)
            self._inward = self._inward[got.accepted :]
            quiet = 0 if ready or got.accepted or len(got.words) else quiet + 1
            out = bytearray(got.words.astype(np.uint8).tobytes())
            for number, byte in self.damage.items():
                if self.sent <= number < self.sent + len(out):
                    out[number - self.sent] = byte
            self.sent += len(out)
            os.write(self._master, out)

    def unplug(self) -> None:
        """From now on it says and hears nothing."""
        self._stop.set()
        self._thread.join()

    def close(self) -> None:
        self.unplug()
        self.simulation.close()
        os.close(self._master)
        os.close(self._slave)

    def __enter__(self) -> SimulatedBoard:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
