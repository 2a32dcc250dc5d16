"""The pair of wires between a simulated device at full speed and a host in this process."""

from __future__ import annotations

from typing import Any

import numpy as np
from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Module, Mux, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.verilated.simulation import Simulation
from sim.usb_wire import DRIVEN, SE0, J, packet_of, samples, token
from sim.usb_wire import SOF as START_OF_FRAME

BITS_PER_MS = 12_000
PULLED = 8
"""Set in a sample where the device pulls D+ up."""

PATIENCE = 18
"""Bits after which a host takes it that no answer comes (USB 2.0, 7.1.19.1)."""


class AtWires(wiring.Component):
    """A top module with the ports `gateware.usb.link.WIRES`, and its pair of wires. Words of `bytes_in` are
    samples of what the host drives, one in each cycle, and those of `bytes_out` of what the device does.

    clocks: how many cycles here a cycle of the circuit takes, at least 1; one of USB's clock takes two, so
    that the circuit's drifts against it. 0: all have one clock, and a bit
    takes four cycles in place of eight.
    """

    def __init__(self, top: Any, clocks: float = 0) -> None:
        self.top, self.step = top, round((1 << 16) / clocks) if clocks else 0
        word = stream.Signature(unsigned(16))
        super().__init__({"bytes_in": In(word), "bytes_out": Out(word)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        top = self.top
        if self.step:
            m.domains.circuit = circuit = ClockDomain("circuit", reset_less=True, local=True)
            m.domains.half = half = ClockDomain("half", reset_less=True, local=True)
            # Registers as clocks, either edge of which is a tick here: see `verilated/shim.cpp.in`.
            phase, second, here, there = Signal(17), Signal(), Signal(), Signal()
            m.d.sync += [phase.eq(phase[:16] + self.step), second.eq(~second)]
            m.d.sync += [here.eq(here ^ phase[16]), there.eq(there ^ second)]
            m.d.comb += [circuit.clk.eq(here), half.clk.eq(there), top.usb_clk.eq(ClockSignal("half"))]
            m.submodules.top = DomainRenamer("circuit")(top)
        else:
            m.submodules.top = top
            m.d.comb += top.usb_clk.eq(ClockSignal())
        host, wires, idle = Signal(16), Signal(2), Signal(2)
        m.d.comb += [
            self.bytes_in.ready.eq(1),
            host.eq(Mux(self.bytes_in.valid, self.bytes_in.payload, 0)),
            idle.eq(Mux(top.usb_pullup, J, SE0)),
            wires.eq(Mux(host[2], host[:2], Mux(top.usb_oe, top.usb_p_o | top.usb_n_o << 1, idle))),
            top.usb_p_i.eq(wires[0]),
            top.usb_n_i.eq(wires[1]),
            self.bytes_out.valid.eq(1),
            self.bytes_out.payload.eq(top.usb_p_o | top.usb_n_o << 1 | top.usb_oe << 2 | top.usb_pullup << 3),
        ]
        return m


class SimulatedWires:
    """See `sim.usb_host.Wires`. late: bits from the end of a packet to the beginning of the answer, the most.

    drift: by how much the host's bits are longer than the device's, as a fraction. plugged: whether the cable
    is in. A frame begins each millisecond.
    """

    def __init__(self, top: Any, clocks: float = 0, drift: float = 0.0) -> None:
        self.simulation = Simulation(AtWires(top, clocks))
        self.per_bit = 8 if clocks else 4
        self.drift, self.plugged, self.frames = drift, True, True
        self.late, self.frame, self.pulled = 0.0, 0, False
        self._since = 0  # cycles of this frame
        self._heard = np.zeros(0, np.uint16)  # what the device did since our last packet

    def _run(self, words: np.ndarray, cycles: int) -> np.ndarray:
        if not self.plugged:
            words = np.zeros(0, np.uint16)
        got = self.simulation.exchange(words, cycles)
        self._since += cycles
        if got.words.size:
            self.pulled = bool(got.words[-1] & PULLED)
        return got.words

    def say(self, packet: bytes) -> None:
        if self.frames and self._since > BITS_PER_MS * self.per_bit:
            self._since = 0
            self.frame = self.frame + 1 & 0x7FF
            self._say(token(START_OF_FRAME, self.frame & 0x7F, self.frame >> 7))
        self._say(packet)

    def _say(self, packet: bytes) -> None:
        self._run(np.zeros(0, np.uint16), 3 * self.per_bit)
        wave = samples(packet, self.per_bit * (1 + self.drift))
        came = self._run(wave, wave.size)
        assert not self.plugged or not np.any(came & DRIVEN), "the device speaks while the host does"
        self._heard = np.zeros(0, np.uint16)

    def hear(self) -> bytes | None:
        step = 24 * self.per_bit
        while True:
            self._heard = np.concatenate([self._heard, self._run(np.zeros(0, np.uint16), step)])
            driven = np.flatnonzero(self._heard & DRIVEN)
            if not driven.size:
                if self._heard.size > PATIENCE * self.per_bit:
                    return None
                continue
            if driven[-1] < self._heard.size - 1:
                break
        first, last = driven[0], driven[-1]
        if not self.plugged or first > PATIENCE * self.per_bit:
            return None
        # A packet ends with two bits of SE0 and one of J, which the host's last sample is behind.
        self.late = max(self.late, first / self.per_bit + 1)
        bits = self._heard[first + self.per_bit // 2 : last + 1 : self.per_bit] & 3
        return packet_of(bits.tolist())

    def reset(self, milliseconds: float) -> None:
        cycles = round(milliseconds * BITS_PER_MS * self.per_bit)
        self._run(np.full(cycles, DRIVEN | SE0, np.uint16), cycles)
        self.wait(0.01)

    def wait(self, milliseconds: float) -> None:
        self._run(np.zeros(0, np.uint16), round(milliseconds * BITS_PER_MS * self.per_bit))

    @property
    def attached(self) -> bool:
        return self.plugged and self.pulled

    def close(self) -> None:
        self.simulation.close()
