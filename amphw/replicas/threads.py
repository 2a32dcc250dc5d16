"""Ranks that are threads of one process: for tests, and where there is no engine for processes."""

from __future__ import annotations

import queue
from dataclasses import dataclass, field

import numpy as np

from amphw.replicas.transport import RankLostError, RealTime, reason

LOOK = 0.05
"""Seconds after which whoever waits looks whether a rank has failed."""


@dataclass
class ThreadGroup:
    """What the ranks of a process share: two queues from each to each."""

    ranks: int
    failed: str = ""
    queues: dict[tuple[int, int], queue.SimpleQueue[np.ndarray]] = field(init=False)
    posts: dict[tuple[int, int], queue.SimpleQueue[np.ndarray]] = field(init=False)

    def __post_init__(self) -> None:
        every = range(self.ranks)
        self.queues = {(a, b): queue.SimpleQueue() for a in every for b in every if a != b}
        self.posts = {pair: queue.SimpleQueue() for pair in self.queues}

    def transports(self) -> list[ThreadTransport]:
        return [ThreadTransport(self, rank) for rank in range(self.ranks)]


class ThreadTransport(RealTime):
    """See `Transport`."""

    def __init__(self, group: ThreadGroup, rank: int):
        self._group, self.rank, self.ranks = group, rank, group.ranks
        self.sent = self.received = 0

    def send(self, to: int, values: np.ndarray) -> None:
        self.check()
        self._group.queues[self.rank, to].put(values.copy())
        self.sent += values.nbytes

    def flush(self) -> None:
        """Nothing is under way."""

    def receive(self, source: int, into: np.ndarray) -> None:
        while True:
            self.check()
            try:
                found = self._group.queues[source, self.rank].get(timeout=LOOK)
            except queue.Empty:
                continue
            into[...] = found
            self.received += found.nbytes
            return

    def post(self, to: int, values: np.ndarray) -> None:
        self.check()
        self._group.posts[self.rank, to].put(values.copy())
        self.sent += values.nbytes

    def posted(self, to: int) -> int:
        return self._group.posts[self.rank, to].qsize()

    def poll(self, source: int) -> np.ndarray | None:
        self.check()
        try:
            found = self._group.posts[source, self.rank].get_nowait()
        except queue.Empty:
            return None
        self.received += found.nbytes
        return found

    def check(self) -> None:
        if self._group.failed:
            raise RankLostError(self._group.failed)

    def fail(self, error: BaseException) -> bool:
        self._group.failed = self._group.failed or reason(self.rank, error)
        return True

    def close(self) -> None:
        """Nothing is to be let go of."""
