"""How replicas reach each other. Strategies and collectives are written over this, and know no carrier."""

from __future__ import annotations

import time
import traceback
from typing import Protocol

import numpy as np

from amphw.host.checkpoint import CheckpointError
from amphw.host.run_folder import RunFolderError
from amphw.ir.errors import AmphwError

NAP = 1e-3
"""Seconds between looks for messages, where a rank has nothing else to do."""


class RankLostError(AmphwError):
    """Another rank is gone, or has failed, so that this one cannot go on."""


class Transport(Protocol):
    """One rank's way to the others. rank: its number, from 0. ranks: how many there are.

    Messages from one rank to another arrive in the order in which they were sent. sent, received: bytes of
    arrays so far, without what a carrier adds. All methods raise RankLostError once a rank is gone.
    """

    rank: int
    ranks: int
    sent: int
    received: int

    def send(self, to: int, values: np.ndarray) -> None:
        """Send a contiguous array, without waiting for the receiver. It may change afterwards."""
        ...

    def receive(self, source: int, into: np.ndarray) -> None:
        """Wait for the next array from a rank, which has as many bytes as `into`."""
        ...

    def flush(self) -> None:
        """Wait until all that was sent with `send` is on its way without this rank, which may compute now."""
        ...

    def post(self, to: int, values: np.ndarray) -> None:
        """Send a contiguous uint8 array that the receiver need not expect, without waiting for it.

        It finds the array with `poll`, apart from what it waits for with `receive`.
        """
        ...

    def posted(self, to: int) -> int:
        """Messages that this rank has posted to another and that, as far as is known here, it has not taken.

        A carrier that hands them to a system with room of its own knows no more than that they have left.
        """
        ...

    def poll(self, source: int) -> np.ndarray | None:
        """The next array that this rank has posted, uint8, in the order of posting; None: none has come."""
        ...

    def now(self) -> float:
        """Seconds, by the clock that this rank's time is measured with."""
        ...

    def nap(self) -> None:
        """Pass some time, where this rank can do nothing until something has come for `poll`."""
        ...

    def check(self) -> None:
        """Raise RankLostError where another rank has told that it cannot go on."""
        ...

    def fail(self, error: BaseException) -> bool:
        """This rank cannot go on: the others are told, with the reason. -> whether the first knows of it."""
        ...

    def close(self) -> None: ...


class RealTime:
    """Carriers whose ranks work in the time of this machine."""

    def now(self) -> float:
        return time.perf_counter()

    def nap(self) -> None:
        time.sleep(NAP)


class Wrapped:
    """What carriers over another one have in common; they count for themselves what they send and receive."""

    def __init__(self, transport: Transport):
        self._transport = transport
        self.rank, self.ranks = transport.rank, transport.ranks
        self.sent, self.received = transport.sent, transport.received

    def flush(self) -> None:
        self._transport.flush()

    def posted(self, to: int) -> int:
        return self._transport.posted(to)

    def now(self) -> float:
        return self._transport.now()

    def nap(self) -> None:
        self._transport.nap()

    def check(self) -> None:
        self._transport.check()

    def fail(self, error: BaseException) -> bool:
        return self._transport.fail(error)

    def close(self) -> None:
        self._transport.close()


def reason(rank: int, error: BaseException) -> str:
    """What the other ranks are told. A mistake in amphw or in a model comes with its traceback."""
    expected = isinstance(error, (AmphwError, CheckpointError, RunFolderError, KeyboardInterrupt))
    text = (str(error) or type(error).__name__) if expected else "".join(traceback.format_exception(error))
    return f"rank {rank} has failed: {text}"
