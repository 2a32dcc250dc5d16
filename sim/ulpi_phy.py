"""A PHY of USB with a ULPI at high speed, between a simulated device and a host in this process. Written from
the UTMI+ Low Pin Interface's specification, 1.1."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from amaranth.hdl import Cat, ClockSignal, Const, Module, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.verilated.simulation import Simulation
from sim.usb_wire import SE0, J, K, token
from sim.usb_wire import SOF as START_OF_FRAME

BYTE, STATUS, BEGINS, CHIRP = 1 << 8, 1 << 9, 1 << 10, 1 << 11
"""Marks of words: a byte of a packet; to the device a status (RX CMD), from it what it writes into the
register of its function; how many cycles behind the last packet it begins to speak; that it chirps. A word
without one ends a packet."""

POWERED = 0b11 << 2
"""Of a status: that the host's voltage is there. The wires are in its low two bits."""
ACTIVE = 0b01 << 4
FUNCTION = 0x04
"""The register. Bit 2 is the terminations' of full speed, bits 4 and 3 the mode, 2 that of chirps."""

CYCLES_PER_MS = 60_000
MICROFRAME = CYCLES_PER_MS // 8
PATIENCE = 100
"""Cycles after which a host takes it that no answer comes: 736 bits (USB 2.0, 7.1.19.2), and a few."""


class AtUlpi(wiring.Component):
    """A top module with the ports `gateware.usb.link.ULPI`, and its PHY."""

    def __init__(self, top: Any) -> None:
        self.top = top
        word = stream.Signature(unsigned(16))
        super().__init__({"bytes_in": In(word), "bytes_out": Out(word), "held": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.top = top = self.top
        came, said = self.bytes_in, self.bytes_out
        says, direction, nxt, out = top.ulpi_data_o, top.ulpi_dir, top.ulpi_nxt, top.ulpi_data_i
        since, address, value, raw = Signal(8), Signal(6), Signal(8), Signal()
        # Bytes do not come and go in every cycle: bits that are stuffed take time.
        chance = Signal(16, init=0xACE1)
        pause = Signal()
        m.d.sync += chance.eq(Cat(chance[1:], chance[0] ^ chance[2] ^ chance[3] ^ chance[5]))
        m.d.sync += since.eq(since + (since != 255))
        m.d.comb += [top.ulpi_clk.eq(ClockSignal()), pause.eq(chance[:2] == 0), self.held.eq(top.ulpi_reset)]

        def tell(payload: Any) -> None:
            m.d.comb += [said.valid.eq(1), said.payload.eq(payload)]

        with m.FSM(name="phy"):
            with m.State("Idle"):
                with m.If(top.ulpi_reset):
                    pass
                with m.Elif(says[6:] == 0b01):
                    tell(Const(BEGINS, 16) | since)
                    m.next = "Command"
                with m.Elif(says[6:] == 0b10):
                    m.next = "Address"
                with m.Elif(came.valid & (came.payload & BYTE).any()):
                    m.next = "Turn"
                with m.Elif(came.valid & (came.payload & STATUS).any()):
                    m.next = "Turn to say"
                with m.Else():
                    m.d.comb += came.ready.eq(1)
            # The device speaks.
            with m.State("Command"):
                m.d.comb += nxt.eq(1)
                m.d.sync += raw.eq(says[:4] == 0)
                with m.If(says[:4] == 0):
                    tell(Const(CHIRP, 16))
                with m.Else():
                    tell(Cat(says[:4], ~says[:4], Const(BYTE >> 8, 8)))
                m.next = "Bytes"
            with m.State("Bytes"):
                with m.If(top.ulpi_stp):
                    tell(Const(0, 16))
                    m.next = "Idle"
                with m.Else():
                    m.d.comb += nxt.eq(~pause)
                    with m.If(~pause & ~raw):
                        tell(Cat(says, Const(BYTE >> 8, 8)))
            with m.State("Address"):
                m.d.comb += nxt.eq(1)
                m.d.sync += address.eq(says)
                m.next = "Value"
            with m.State("Value"):
                m.d.comb += nxt.eq(1)
                m.d.sync += value.eq(says)
                m.next = "Written"
            with m.State("Written"):
                with m.If(top.ulpi_stp):
                    with m.If(address == FUNCTION):
                        tell(Cat(value, Const(STATUS >> 8, 8)))
                    m.next = "Idle"
            # The host speaks.
            with m.State("Turn"):
                m.d.comb += [direction.eq(1), nxt.eq(1)]
                m.next = "Begins"
            with m.State("Begins"):
                m.d.comb += [direction.eq(1), out.eq(J | POWERED | ACTIVE)]
                m.next = "Packet"
            with m.State("Packet"):
                m.d.comb += [direction.eq(1), out.eq(J | POWERED | ACTIVE)]
                with m.If(~came.valid | ~(came.payload & BYTE).any()):
                    m.d.comb += out.eq(SE0 | POWERED)
                    m.d.sync += since.eq(0)
                    m.next = "Turn back"
                with m.Elif(~pause):
                    m.d.comb += [nxt.eq(1), out.eq(came.payload), came.ready.eq(1)]
            with m.State("Turn to say"):
                m.d.comb += direction.eq(1)
                m.next = "Status"
            with m.State("Status"):
                m.d.comb += [direction.eq(1), out.eq(came.payload), came.ready.eq(1)]
                m.next = "Turn back"
            with m.State("Turn back"):
                m.next = "Idle"
        return m


class UlpiWires:
    """See `sim.usb_host.Wires`. late: cycles from the end of a packet until an answer begins, the most.

    high: whether the host offers high speed. function: what the device has written last of its function.
    """

    def __init__(self, top: Any) -> None:
        self.simulation = Simulation(AtUlpi(top))
        self.late, self.frame, self.high, self.function = 0, 0, True, 0x41
        self.chirping = False
        self._since = 0
        self._packets: deque[bytes] = deque()
        self._bytes = bytearray()

    def _run(self, words: list[int], cycles: int) -> None:
        left = np.array(words, np.uint16)
        until = self.simulation.cycles + cycles
        while left.size or self.simulation.cycles < until:
            got = self.simulation.exchange(left, 4 if left.size else until - self.simulation.cycles)
            left = left[got.accepted :]
            self._since += got.cycles
            for word in got.words.tolist():
                self._heard(word)

    def _heard(self, word: int) -> None:
        if word & BYTE:
            self._bytes.append(word & 0xFF)
        elif word & STATUS:
            self.function = word & 0xFF
        elif word & BEGINS:
            self.late = max(self.late, word & 0xFF) if not self.function >> 3 & 3 else self.late
        elif word & CHIRP:
            self.chirping = True
        else:
            self.chirping = False
            if self._bytes:
                self._packets.append(bytes(self._bytes))
                self._bytes.clear()

    def say(self, packet: bytes) -> None:
        if self._since > MICROFRAME:
            self._since = 0
            self.frame = self.frame + 1 & 0x7FF
            self._say(token(START_OF_FRAME, self.frame & 0x7F, self.frame >> 7))
        self._say(packet)

    def _say(self, packet: bytes) -> None:
        assert not self._packets and not self._bytes, "the device speaks unasked"
        self._run([*(BYTE | byte for byte in packet), 0], 0)

    def hear(self) -> bytes | None:
        for _ in range(PATIENCE // 20):
            self._run([], 20)
            while self._bytes:
                self._run([], 20)
            if self._packets:
                return self._packets.popleft()
        return None

    def status(self, wires: int, milliseconds: float) -> None:
        """The wires are in this state from now on, for so long at least."""
        self._run([STATUS | POWERED | wires], round(milliseconds * CYCLES_PER_MS))

    def reset(self, milliseconds: float) -> None:
        """With the handshake by which a device and a host find each other at high speed: the device chirps,
        and the host answers with a row of chirps. Out of high speed a reset begins as a suspension does."""
        self._until(lambda: self.chirping, "the device does not chirp")
        self._until(lambda: not self.chirping, "the device chirps on")
        if not self.high:
            self.status(SE0, 3)
            self.status(J, 0.1)
            return
        for _ in range(10):
            for wires in (K, J):
                self.status(wires, 0.05)
        self.status(SE0, 0.2)
        self._since = 0

    def _until(self, done: Callable[[], bool], otherwise: str) -> None:
        for _ in range(80):
            if done():
                return
            self.status(SE0, 0.1)
        raise AssertionError(f"{otherwise}: {self.function:08b}")

    def wait(self, milliseconds: float) -> None:
        self._run([], round(milliseconds * CYCLES_PER_MS))

    @property
    def attached(self) -> bool:
        return bool(self.function >> 2 & 1) or self.function & 3 == 0

    def close(self) -> None:
        self.simulation.close()
