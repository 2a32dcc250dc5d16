"""What ranks exchange and when, and how the traces of all reach the first rank."""

from __future__ import annotations

import json
import time
import zlib
from collections import Counter, deque
from pathlib import Path

import numpy as np

from amphw.host.rank_trace import Message, Phase, RankTrace
from amphw.replicas.transport import Transport, Wrapped

LIMIT = 20_000
"""Of a rank, the newest so many phases and, apart from them, messages are kept."""
PINGS = 8
BOOT = Path("/proc/sys/kernel/random/boot_id")


class Recorded(Wrapped):
    """A transport that notes every message; otherwise the one that it is given. See `Transport`."""

    def __init__(self, transport: Transport):
        super().__init__(transport)
        self.messages: deque[Message] = deque(maxlen=LIMIT)
        self._counts: Counter[tuple[bool, int, bool]] = Counter()

    def send(self, to: int, values: np.ndarray) -> None:
        began = time.perf_counter()
        self._transport.send(to, values)
        self.sent += values.nbytes
        self._note(True, to, began, values.nbytes)

    def post(self, to: int, values: np.ndarray) -> None:
        began = time.perf_counter()
        self._transport.post(to, values)
        self.sent += values.nbytes
        self._note(True, to, began, values.nbytes, posted=True)

    def poll(self, source: int) -> np.ndarray | None:
        began = time.perf_counter()
        found = self._transport.poll(source)
        if found is not None:
            self.received += found.nbytes
            self._note(False, source, began, found.nbytes, posted=True)
        return found

    def receive(self, source: int, into: np.ndarray) -> None:
        began = time.perf_counter()
        self._transport.receive(source, into)
        self.received += into.nbytes
        self._note(False, source, began, into.nbytes)

    def _note(self, sends: bool, peer: int, began: float, size: int, posted: bool = False) -> None:
        """What is posted arrives in an order of its own, and has numbers of its own: the odd ones."""
        number = 2 * self._counts[sends, peer, posted] + posted
        self._counts[sends, peer, posted] += 1
        took = time.perf_counter() - began
        self.messages.append(Message(sends, peer, number, 1e6 * began, 1e6 * took, size))


class Recorder:
    """The phases of this rank's exchanges."""

    def __init__(self) -> None:
        self.phases: deque[Phase] = deque(maxlen=LIMIT)
        self._moved: dict[str, int] = {}

    def add(self, name: str, began: float, ended: float, moved: dict[str, int] | None = None) -> None:
        """began, ended: seconds of `perf_counter`. moved: bytes moved by now, by parameter."""
        here: dict[str, int] = {}
        if moved is not None:
            here = {name: n - self._moved.get(name, 0) for name, n in moved.items()}
            self._moved = moved
        self.phases.append(Phase(name, 1e6 * began, 1e6 * (ended - began), here))


def gather_traces(transport: Transport, mine: RankTrace) -> list[RankTrace]:
    """All ranks' traces on the first one, in order, and none on the others; all ranks call this.

    Ranks of one machine have one clock. The clock of another machine is compared with the first rank's by
    round trips, of which the quickest counts: it is off by half of that at most.
    """
    if transport.rank > 0:
        data = np.frombuffer(zlib.compress(json.dumps(mine.to_json()).encode()), np.uint8)
        transport.send(0, np.array([data.size, _machine()], np.int64))
        transport.send(0, data)
        now = np.zeros(1)
        for _ in range(PINGS):
            transport.receive(0, now)
            transport.send(0, np.array([time.perf_counter()]))
        return []
    found = [mine]
    for rank in range(1, transport.ranks):
        head = np.zeros(2, np.int64)
        transport.receive(rank, head)
        data = np.zeros(int(head[0]), np.uint8)
        transport.receive(rank, data)
        other = RankTrace.from_json(json.loads(zlib.decompress(data.tobytes())))
        offset = _offset(transport, rank)
        other.offset_us = 0.0 if head[1] and head[1] == _machine() else 1e6 * offset
        found.append(other)
    return found


def _offset(transport: Transport, rank: int) -> float:
    """Seconds that a rank's clock is ahead of this one's."""
    trips = []
    there = np.zeros(1)
    for _ in range(PINGS):
        began = time.perf_counter()
        transport.send(rank, np.array([began]))
        transport.receive(rank, there)
        ended = time.perf_counter()
        trips.append((ended - began, float(there[0]) - (began + ended) / 2))
    return min(trips)[1]


def _machine() -> int:
    """A number that ranks with one clock have in common; 0 where the system tells none."""
    try:
        return zlib.crc32(BOOT.read_bytes())
    except OSError:
        return 0
