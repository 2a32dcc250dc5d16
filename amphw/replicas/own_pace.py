"""Ranks that go at their own pace: messages that nobody waits for, and where all meet.

A message begins with a number: `BODY`, and then it is the strategy's; any other one calls all together, and
says how many instances its sender has taken. All then take as many as the one that has taken the most, so
that what has been trained on is the beginning of the instances.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from amphw.ir.device import Device
from amphw.replicas.average import Average
from amphw.replicas.paced import Paced
from amphw.replicas.packed import Traffic, packed
from amphw.replicas.rounds import Rounds
from amphw.replicas.transport import Transport

BODY = -1


class OwnPace(Average):
    """See `Strategy`. When all meet, before validation and what is saved, they take the mean as `Average`
    does, by which they agree to the bit.

    A strategy of its own says what it posts, and takes what others have posted (`take`).
    """

    own_pace = True

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        """All have met, and no message is under way."""
        self._sent: dict[int, int] = {}
        self._received: dict[int, int] = {}
        self._called: dict[int, int] = {}  # instances that ranks have taken which call all together

    @property
    def paced(self) -> Paced | None:
        """How far this rank has come; None: there is no bound on how far ahead it may be."""
        return None

    def take(self, source: int, body: np.ndarray, traffic: Traffic) -> None:
        """What another rank has posted."""
        raise NotImplementedError

    def moves(self, ranks: int, size: float, alpha: float | None) -> float | None:
        return None  # how often ranks tell each other is theirs

    def plan(self, device: Device, transport: Transport) -> np.ndarray:
        """int64 [ranks * ranks]: how many messages each rank has sent to each, zeros but for this one's."""
        counts = np.zeros((transport.ranks, transport.ranks), np.int64)
        for to, sent in self._sent.items():
            counts[transport.rank, to] = sent
        return counts.reshape(-1)

    def _arrive(self, transport: Transport, traffic: Traffic, planned: np.ndarray) -> None:
        """Wait for all that was sent to this rank. planned: the sum of all ranks' `plan`s."""
        expected = planned.reshape(transport.ranks, transport.ranks)[:, transport.rank].tolist()
        self._wait(
            transport, traffic, lambda: all(self._received.get(s, 0) == n for s, n in enumerate(expected))
        )

    def _agree(self, transport: Transport, traffic: Traffic, rounds: Rounds) -> None:
        """Call all together, once: all are to take as many instances as the rank that has taken the most."""
        if rounds.limit is not None:
            return
        self._post_to_all(transport, rounds.done, [])
        self._called[transport.rank] = rounds.done
        self._wait(transport, traffic, lambda: len(self._called) == transport.ranks)
        rounds.limit = max(self._called.values())

    def _post(self, transport: Transport, to: int, head: int, arrays: Sequence[np.ndarray]) -> None:
        transport.post(to, packed([np.array([head], np.int64), *arrays]))
        self._sent[to] = self._sent.get(to, 0) + 1

    def _post_to_all(self, transport: Transport, head: int, arrays: Sequence[np.ndarray]) -> None:
        for to in range(transport.ranks):
            if to != transport.rank:
                self._post(transport, to, head, arrays)

    def _wait(self, transport: Transport, traffic: Traffic, done: Callable[[], bool]) -> None:
        began = transport.now()
        while not done():
            if not self._take_in(transport, traffic):
                transport.check()
                transport.nap()
        traffic.waited += transport.now() - began

    def _take_in(self, transport: Transport, traffic: Traffic) -> bool:
        """All messages that have come -> whether there were any."""
        came = False
        for source in range(transport.ranks):
            while source != transport.rank and (message := transport.poll(source)) is not None:
                came = True
                self._received[source] = self._received.get(source, 0) + 1
                head = int(message[:8].view(np.int64)[0])
                if head == BODY:
                    self.take(source, message[8:], traffic)
                else:
                    self._called[source] = head
        return came
