"""A board in a network that is not there: the generated board top, simulated, its PHY at a UDP socket.

    with NetworkBoard(plan) as board:
        device = BoardDevice(f"{board.port},q4.12")

Everything of a real board is in it but the PHY, its own clocks and the cable: every byte of every frame
passes through the gates of the link, which run at the circuit's clock here (`sim/benches/ethernet_bench.py`
has three).
"""

from __future__ import annotations

import random
import select
import socket
import threading
from typing import Any

import numpy as np
from amaranth.hdl import ClockSignal, Module, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.board_top import EthernetTop
from amphw.rtl.gateware.network.internet import Addresses
from amphw.rtl.isa.datagrams import PORT
from amphw.rtl.plan.hardware import HardwarePlan
from amphw.rtl.verilated.simulation import Simulation
from sim.frames import PREAMBLE, End, datagram, opened, with_check, without_check

MAC, IP = 0x024D_0000_0032, 0xC0A8_0132
HERE = End(MAC.to_bytes(6, "big"), IP.to_bytes(4, "big"), PORT)
CARD = bytes.fromhex("0250c2a1b2c3")
"""The address of the host's network card."""

STEP = 4_000
"""Cycles between looks at the socket."""

GAP = [0] * 12
THERE = 1 << 8


class BoardAndPhy(wiring.Component):
    """The board top, and opposite its GMII a PHY. Words are a byte, and THERE within a frame; of those to the
    board one is taken in each cycle, and those from it come in frames with a word without THERE between them.
    """

    def __init__(self, top: EthernetTop) -> None:
        self.top = top
        word = stream.Signature(unsigned(16))
        super().__init__({"bytes_in": In(word), "bytes_out": Out(word)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.top = top = self.top
        before = Signal()
        m.d.sync += before.eq(top.tx_enable)
        m.d.comb += [
            top.rx_clk.eq(ClockSignal()),
            top.tx_clk.eq(ClockSignal()),
            self.bytes_in.ready.eq(1),
            top.rx_data.eq(self.bytes_in.payload[:8]),
            top.rx_valid.eq(self.bytes_in.valid & self.bytes_in.payload[8]),
            self.bytes_out.payload.eq(top.tx_data | top.tx_enable << 8),
            self.bytes_out.valid.eq(top.tx_enable | before),
        ]
        return m


class Phy:
    """Frames, without preamble and check, into a simulated board and out of it."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self._inward = np.zeros(0, np.uint16)
        self._outward = bytearray()

    def put(self, frame: bytes) -> None:
        wire = np.frombuffer(with_check(frame), np.uint8).astype(np.uint16) | THERE
        self._inward = np.concatenate([self._inward, wire, np.array(GAP, np.uint16)])

    def step(self, cycles: int) -> list[bytes]:
        """Let time pass -> the frames that have come meanwhile. AssertionError for a frame that is none."""
        got = self.simulation.exchange(self._inward, cycles)
        self._inward = self._inward[got.accepted :]
        frames = []
        for word in got.words.tolist():
            if word & THERE:
                self._outward.append(word & 0xFF)
            elif self._outward.startswith(PREAMBLE[:1]):
                frames.append(without_check(bytes(self._outward)))
                self._outward.clear()
        return frames

    @property
    def busy(self) -> bool:
        return bool(len(self._inward) or self._outward)


class NetworkBoard:
    """Runs in a thread until it is closed. port: what `board:` is told, udp://ADDRESS:PORT.

    lose: the share of datagrams that are lost, in each direction; double: of those that come twice; delay: of
    those that come after the next one. spoil: of those with a byte that is another than it was.
    """

    def __init__(self, plan: HardwarePlan, identity: int = 0, **settings: int) -> None:
        own = Addresses(MAC, IP)
        # Simulated time goes slowly: neither a session nor what is on its way may be given up too soon.
        given = {"hold": 2_000_000, "retry": 60_000, **settings}
        self.simulation = Simulation(BoardAndPhy(EthernetTop(plan, own, identity, 1e6, **given)))
        self.lose = self.double = self.delay = self.spoil = 0.0
        self.lost = 0
        self._phy = Phy(self.simulation)
        self._random = random.Random(3)
        self._late: dict[str, list[Any]] = {"in": [], "out": []}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = f"udp://127.0.0.1:{self._socket.getsockname()[1]}"
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self.plug()

    def plug(self) -> None:
        """It goes on where it was unplugged; what was sent to it meanwhile is lost."""
        self._socket.setblocking(False)
        try:
            while True:
                self._socket.recv(1 << 16)
        except OSError:
            pass
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            quiet = 0
            while not self._stop.is_set():
                ready, _, _ = select.select([self._socket], [], [], 0.002 if quiet > 10 else 0)
                if ready:
                    try:
                        data, (host, port) = self._socket.recvfrom(1 << 16)
                    except ConnectionRefusedError:  # of somebody who has gone
                        continue
                    sender = End(CARD, socket.inet_aton(host), port)
                    for each, who in self._network("in", (data, sender)):
                        self._phy.put(datagram(each, who, HERE))
                frames = self._phy.step(STEP)
                quiet = 0 if ready or frames or self._phy.busy else quiet + 1
                for frame in frames:
                    payload, _, to = opened(frame)
                    for each, who in self._network("out", (payload, to)):
                        self._socket.sendto(each, (socket.inet_ntoa(who.ip), who.port))
        except BaseException as error:
            self.error = error

    def _network(self, way: str, sent: tuple[bytes, End]) -> list[tuple[bytes, End]]:
        """What becomes of a datagram on its way."""
        chance, late = self._random.random, self._late[way]
        if chance() < self.lose:
            self.lost += 1
            return []
        payload, who = sent
        if chance() < self.spoil:
            at = self._random.randrange(len(payload))
            payload = payload[:at] + bytes([payload[at] ^ 1 << self._random.randrange(8)]) + payload[at + 1 :]
        if chance() < self.delay:
            late.append((payload, who))
            return []
        arrives = [(payload, who)] * (2 if chance() < self.double else 1) + late
        late.clear()
        return arrives

    def unplug(self) -> None:
        """From now on it says and hears nothing."""
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        try:
            self.unplug()
        finally:
            self.simulation.close()
            self._socket.close()

    def __enter__(self) -> NetworkBoard:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
