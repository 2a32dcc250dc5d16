"""A link over Ethernet at the pins of an RGMII, each half of a byte with an edge of the PHY's clock.

The bits of a PHY change in the middle between the edges of its clock, as one that delays the clock has
them; the circuit's change with the edges of its own.
"""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import Timer

from amphw.rtl.driver import datagram_end
from amphw.rtl.driver.datagram_end import DatagramEnd
from amphw.rtl.isa.datagrams import PORT
from sim.bench import Bench, generator, settings
from sim.frames import End, datagram, opened, with_check, without_check

BOARD = End(settings()["mac"].to_bytes(6, "big"), settings()["ip"].to_bytes(4, "big"), PORT)
HOST = End(bytes.fromhex("0250c2a1b2c3"), bytes([192, 168, 1, 1]), 40_001)
HALF = 4
"""Nanoseconds between two edges of the PHY's clock."""

datagram_end.CALL = 0.002


class Phy:
    """waits: bytes to the circuit, None for a pause. frames: what came from it."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.waits: list[int | None] = []
        self.frames: list[bytes] = []
        self.now = 0  # ns
        for port in (dut.eth_rx_clk, dut.eth_rx_ctl, dut.eth_rx_data):
            port.value = 0

    def put(self, frame: bytes) -> None:
        self.waits += [*with_check(frame), *[None] * 12]

    async def run(self) -> None:
        dut, wire = self.dut, bytearray()
        while True:
            byte = self.waits.pop(0) if self.waits else None
            halves = []
            for half in (0, 1):
                dut.eth_rx_ctl.value = byte is not None
                dut.eth_rx_data.value = 0 if byte is None else byte >> 4 * half & 15
                await Timer(HALF // 2, unit="ns")
                dut.eth_rx_clk.value = 1 - half
                await Timer(HALF // 2, unit="ns")
                assert int(dut.eth_tx_clk.value) == 1 - half  # with its data, for the PHY to delay
                halves.append((int(dut.eth_tx_ctl.value), int(dut.eth_tx_data.value)))
            self.now += 2 * HALF
            (valid, low), (mixed, high) = halves
            assert valid == mixed, "the circuit says that its own frame is wrong"
            if valid:
                wire.append(low | high << 4)
            elif wire:
                self.frames.append(without_check(bytes(wire)))
                wire.clear()


@cocotb.test()
async def words_at_the_pins(dut: Any) -> None:
    """As at the GMII; and the PHY is reset, and let go."""
    bench, phy = Bench(dut), Phy(dut)
    await bench.start()
    assert int(dut.eth_reset.value) == 0
    cocotb.start_soon(phy.run())
    end, heard = DatagramEnd(77, 0.0), np.zeros(0, np.uint16)
    sent = generator().integers(0, 1 << 16, 1500).astype(np.uint16)
    end.write(sent)
    for _ in range(100_000):
        await bench.step()
        now = 50e-9 * phy.now
        for frame in phy.frames:
            payload, source, to = opened(frame)
            assert (source, to) == (BOARD, HOST)
            end.hear(payload, now)
        phy.frames.clear()
        for data in end.due(now):
            phy.put(datagram(data, HOST, BOARD))
        heard = np.concatenate([heard, end.take()])
        if len(heard) == len(sent) and not end.waiting:
            break
    assert heard.tolist() == sent.tolist() and end.again == 0
    assert int(dut.eth_reset.value) == 1
