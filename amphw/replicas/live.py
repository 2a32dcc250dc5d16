"""Ranks that decide as they go, in simulated time: the strategies of training, unchanged, each in a thread of
its own, of which one runs at a time: the one whose turn it is by the simulated clock.

What is sent does depend on when messages come where ranks go at their own pace, so nothing can be written
down beforehand (`recorded`). Messages carry what they carry in training.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from math import isinf

import numpy as np

from amphw.replicas.recorded import Act, Compute, Nap, Post, Take, receiving, sending
from amphw.replicas.simulated import Machines, Play, Spent
from amphw.replicas.transport import RankLostError

Pair = tuple[int, int]
"""From a rank to another."""


class Live:
    """ranks: how many. scale: by how much what is posted stands for larger messages, headers too."""

    def __init__(self, ranks: int, machines: Machines, scale: float = 1.0):
        self.scale, self.ranks = scale, ranks
        self.takes_time = bool(machines.carrying) or not isinf(machines.handling)
        self.sent: dict[Pair, deque[np.ndarray]] = {}
        self.posted: dict[Pair, deque[np.ndarray]] = {}  # those that have arrived
        self.under_way: Counter[Pair] = Counter()
        self._carriers = [LiveTransport(self, rank) for rank in range(ranks)]
        self._play = Play([each.next for each in self._carriers], machines)

    @property
    def spent(self) -> list[Spent]:
        """Of each rank so far."""
        return self._play.spent

    def run(self, work: Callable[[LiveTransport], None]) -> None:
        """Every rank does its work, which is given its carrier. Raises what one raises, and AmphwError where
        ranks wait for each other for ever."""
        threads = [
            threading.Thread(target=each.run, args=(work,), name=f"rank {each.rank}")
            for each in self._carriers
        ]
        for thread in threads:
            thread.start()
        try:
            self._play.run()
        finally:
            for each in self._carriers:
                each.end()
            for thread in threads:
                thread.join()


class LiveTransport:
    """See `Transport`. Its rank's thread runs from one act to the next, while the player waits for it."""

    def __init__(self, live: Live, rank: int):
        self._live, self.rank, self.ranks = live, rank, live.ranks
        self.sent = self.received = 0
        self._now = 0.0
        # Whoever waits for one of these acquires it, and the other side releases it.
        self._turn, self._given = threading.Lock(), threading.Lock()
        self._turn.acquire()
        self._given.acquire()
        self._act: Act | None = None
        self._error: BaseException | None = None
        self._ended = False

    # --- the player's side --------------------------------------------------------------------------

    def next(self, now: float) -> Act | None:
        """Let the rank go on until its next act."""
        self._now = now
        self._turn.release()
        self._given.acquire()
        if self._error is not None:
            raise self._error
        return self._act

    def run(self, work: Callable[[LiveTransport], None]) -> None:
        """The rank's thread."""
        self._turn.acquire()
        try:
            self.check()
            work(self)
        except BaseException as error:  # whatever it is, the player waits for this rank
            self._error = error
        self._act = None
        with suppress(RuntimeError):  # a player that was interrupted does not wait for it
            self._given.release()

    def end(self) -> None:
        """A rank that is not through is not going to be."""
        self._ended = True
        self._turn.release()

    # --- the rank's side ----------------------------------------------------------------------------

    def _do(self, act: Act) -> None:
        self._act = act
        self._given.release()
        self._turn.acquire()
        self.check()

    def compute(self, seconds: float) -> None:
        self._do(Compute(seconds))

    @property
    def spent(self) -> Spent:
        return self._live.spent[self.rank]

    def send(self, to: int, values: np.ndarray) -> None:
        self._live.sent.setdefault((self.rank, to), deque()).append(values.copy())
        self.sent += values.nbytes
        self._do(sending(to, values, self._live.scale, sys._getframe(1).f_code.co_name))

    def receive(self, source: int, into: np.ndarray) -> None:
        self._do(receiving(source, into, self._live.scale))
        into[...] = self._live.sent[source, self.rank].popleft()
        self.received += into.nbytes

    def flush(self) -> None:
        """What is sent leaves without this rank."""

    def post(self, to: int, values: np.ndarray) -> None:
        live, pair, message = self._live, (self.rank, to), values.copy()
        live.under_way[pair] += 1

        def arrives() -> None:
            live.under_way[pair] -= 1
            live.posted.setdefault(pair, deque()).append(message)

        self.sent += values.nbytes
        self._do(Post(to, values.nbytes * live.scale, arrives))

    def posted(self, to: int) -> int:
        """Those that have not arrived."""
        return self._live.under_way[self.rank, to]

    def poll(self, source: int) -> np.ndarray | None:
        here = self._live.posted.get((source, self.rank))
        if not here:
            return None
        message = here.popleft()
        self.received += message.nbytes
        if self._live.takes_time:
            self._do(Take(source, message.nbytes * self._live.scale))
        return message

    def now(self) -> float:
        return self._now

    def nap(self) -> None:
        self._do(Nap())

    def check(self) -> None:
        if self._ended:
            raise RankLostError("the ranks in simulated time have ended")

    def fail(self, error: BaseException) -> bool:
        return False

    def close(self) -> None:
        """There is nothing to let go of."""
