"""The host's end of a session, in a time and a network of the test's own."""

from __future__ import annotations

import heapq
import random

import numpy as np
import pytest

from amphw.rtl.driver.datagram_end import CALL, LATEST, PING, DatagramEnd
from amphw.rtl.isa.datagrams import RING, About, Datagram, DatagramKind
from tests.rtl.driver.fake_circuit import FakeCircuit

TURN = 0.001
REPEAT = 0.01


class Network:
    """Carries datagrams between an end and a circuit; each takes `least` to `most` seconds, or is lost."""

    def __init__(self, end: DatagramEnd, circuit: FakeCircuit, seed: int = 1, **chances: float) -> None:
        self.end, self.circuit, self.chances = end, circuit, chances
        self.now = 0.0
        self.random = random.Random(seed)
        self.on_way: list[tuple[float, int, bytes, bool]] = []
        self.to_circuit = 0
        self._number = 0
        self._turn = self._repeat = 0.0

    def send(self, data: bytes, inward: bool) -> None:
        if self.random.random() < self.chances.get("lose", 0.0):
            return
        for _ in range(2 if self.random.random() < self.chances.get("double", 0.0) else 1):
            takes = 0.0001 + self.random.random() * self.chances.get("spread", 0.0)
            self._number += 1
            heapq.heappush(self.on_way, (self.now + takes, self._number, data, inward))

    def step(self) -> None:
        """On to whatever happens next."""
        for data in self.end.due(self.now):
            self.to_circuit += 1
            self.send(data, True)
        comes = self.on_way[0][0] if self.on_way else self.now + 1
        self.now = min(comes, self.now + self.end.next(self.now) + 1e-9, self._turn + TURN)
        while self.on_way and self.on_way[0][0] <= self.now:
            _, _, data, inward = heapq.heappop(self.on_way)
            if inward:
                for said in self.circuit.hear(data):
                    self.send(said, False)
            else:
                self.end.hear(data, self.now)
        if self.now >= self._turn + TURN:
            self._turn = self.now
            again = self.now >= self._repeat + REPEAT
            self._repeat = self.now if again else self._repeat
            for said in self.circuit.repeat() if again else self.circuit.turn():
                self.send(said, False)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.step()


def words(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 16, count).astype(np.uint16)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "chances",
    [
        {},
        {"lose": 0.05},
        {"lose": 0.4},
        {"double": 0.5},
        {"spread": 0.02},
        {"lose": 0.2, "double": 0.2, "spread": 0.01},
    ],
)
def test_every_word_arrives_once_and_in_order(chances: dict[str, float], seed: int) -> None:
    end, circuit = DatagramEnd(9, 0.0), FakeCircuit(takes=700)
    network = Network(end, circuit, seed, **chances)
    sent, came = words(20_000, seed), np.zeros(0, np.uint16)
    for part in np.array_split(sent, 7):
        end.write(part)
        network.run(0.01)
        came = np.concatenate([came, end.take()])
    while len(came) < len(sent):
        network.step()
        came = np.concatenate([came, end.take()])
        assert network.now < 100
    assert circuit.taken == sent.tolist() and came.tolist() == (sent + 1).tolist()
    assert circuit.most <= RING
    network.run(2 * LATEST + 1)
    assert end.waiting == 0


def test_nothing_is_sent_twice_where_nothing_is_lost() -> None:
    end, circuit = DatagramEnd(9, 0.0), FakeCircuit(takes=100)
    network = Network(end, circuit)
    end.write(words(10_000))
    network.run(1.0)
    assert end.again == 0 and len(circuit.taken) == 10_000


def test_a_single_loss_does_not_wait_for_its_time() -> None:
    """What comes behind it tells that it is missing; so it does the next time."""
    end, circuit = DatagramEnd(9, 0.0), FakeCircuit()
    network = Network(end, circuit)
    network.run(0.01)
    for _ in range(2):
        end.write(words(RING))
        first, *rest = end.due(network.now)
        assert len(rest) == 3
        for data in rest:
            for said in circuit.hear(data):
                end.hear(said, network.now)
        again = end.due(network.now)
        assert again[0] == first and len(again) == 4
        for data in again:
            for said in circuit.hear(data):
                end.hear(said, network.now)
        assert end.waiting == 0


def test_it_asks_for_a_sign_of_life_and_says_how_long_there_was_none() -> None:
    end, circuit = DatagramEnd(9, 0.0), FakeCircuit()
    network = Network(end, circuit)
    network.run(1.0)
    assert 3 <= network.to_circuit <= 1.0 / PING + 2
    assert end.silent(network.now) < 0.1
    network.chances["lose"] = 1.0
    network.run(3.0)
    assert 2.5 < end.silent(network.now) < 3.5
    network.chances["lose"] = 0.0
    end.write(words(50))
    network.run(2 * LATEST)
    assert end.silent(network.now) < 0.1 and len(circuit.taken) == 50


def test_time_in_which_nobody_looks_is_no_silence() -> None:
    """A host that computes for a minute has asked for nothing meanwhile."""
    end, circuit = DatagramEnd(9, 0.0), FakeCircuit()
    network = Network(end, circuit)
    network.run(1.0)
    network.now += 60.0
    assert end.silent(network.now) < 1.0
    network.run(1.0)
    assert end.silent(network.now) < 0.1


def test_nobody_answers() -> None:
    end = DatagramEnd(9, 0.0)
    starts = sum(len(end.due(k * CALL / 4)) for k in range(41))
    assert not end.open and starts == 11


def test_who_answers_instead() -> None:
    end = DatagramEnd(9, 0.0)
    holder = About(1, 2, 3, 0xC0A8_0101, 40_001)
    end.hear(Datagram(DatagramKind.BUSY, 9, words=holder.pack()).encode(), 0.0)
    assert end.busy == holder and not end.open
    circuit = FakeCircuit()
    for data in circuit.hear(Datagram(DatagramKind.START, 9).encode()):
        end.hear(data, 0.0)
    assert end.about == [circuit.about]
    for data in circuit.hear(Datagram(DatagramKind.START, 9).encode()):  # the same answer again
        end.hear(data, 0.0)
    assert len(end.about) == 1
    other = FakeCircuit(mac=0x024D_0000_0033)
    for data in other.hear(Datagram(DatagramKind.START, 9).encode()):
        end.hear(data, 0.0)
    assert end.about == [circuit.about, other.about]
    for data in other.hear(Datagram(DatagramKind.DATA, 10).encode()):  # of another session
        end.hear(data, 0.0)
    assert end.stranger is None
    end.hear(Datagram(DatagramKind.STRANGER, 9, words=other.about.pack()).encode(), 0.0)
    assert end.stranger == other.about
