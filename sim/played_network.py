"""A circuit in a network, in the circuit's own time: the driver's end of a session, and a latency.

In place of a socket there is a queue in each direction; all else of the driver is that of a board. The host
itself takes no time.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from amphw.rtl.driver.datagram_end import DatagramEnd
from amphw.rtl.gateware.board_top import EthernetTop
from amphw.rtl.gateware.network.internet import Addresses
from amphw.rtl.plan.hardware import HardwarePlan
from amphw.rtl.verilated.simulation import Simulation
from sim.frames import End, datagram, opened
from sim.network_board import CARD, HERE, IP, MAC, BoardAndPhy, Phy

HOST = End(CARD, bytes([192, 168, 1, 1]), 40_001)

STEP_S = 2e-6
"""Simulated seconds between looks at what has come."""


class PlayedNetwork:
    """See `WordLine`. clock: the circuit's, in cycles a second, at which bytes of frames pass, too: slower
    than a PHY's, so that the link is no faster than a real one. latency: seconds from the host to the
    circuit, and as many back. sent: datagrams and bytes of frames on the wire, to the circuit and from it.
    """

    name, window, strict, identity = "simulated", 1 << 16, True, None

    def __init__(self, plan: HardwarePlan, clock: float, latency: float) -> None:
        self.clock, self.latency = clock, latency
        self.simulation = Simulation(BoardAndPhy(EthernetTop(plan, Addresses(MAC, IP), 0, clock)))
        self.phy = Phy(self.simulation)
        self.end = DatagramEnd(1, 0.0)
        self.sent = {"to": [0, 0], "from": [0, 0]}
        self._to: deque[tuple[float, bytes]] = deque()
        self._from: deque[tuple[float, bytes]] = deque()

    @property
    def now(self) -> float:
        return self.simulation.cycles / self.clock

    def start(self) -> None:
        while not self.end.open:
            self._step()

    def write(self, words: np.ndarray) -> None:
        self.end.write(words)

    def read(self, seconds: float) -> np.ndarray | None:
        if not self.end.open:
            return None
        until = self.now + seconds
        while self.now < until:
            self._step()
            came = self.end.take()
            if len(came):
                return came
        return None

    def _step(self) -> None:
        for data in self.end.due(self.now):
            self._count("to", data)
            self._to.append((self.now + self.latency, data))
        while self._to and self._to[0][0] <= self.now:
            self.phy.put(datagram(self._to.popleft()[1], HOST, HERE))
        for frame in self.phy.step(round(STEP_S * self.clock)):
            payload, _, _ = opened(frame)
            self._count("from", payload)
            self._from.append((self.now + self.latency, payload))
        while self._from and self._from[0][0] <= self.now:
            self.end.hear(self._from.popleft()[1], self.now)

    def _count(self, way: str, payload: bytes) -> None:
        """With what stands around a datagram: headers, Ethernet's check and preamble, and the gap behind."""
        self.sent[way][0] += 1
        self.sent[way][1] += max(60, len(payload) + 42) + 24

    def forgive(self) -> None:
        """Nothing goes wrong here."""

    def seconds(self, words: int) -> float:
        return STEP_S

    def complaint(self) -> str:
        return "the simulated circuit does not answer"

    def close(self) -> None:
        self.simulation.close()
