"""A carrier that writes down what a rank does, so that it can be played again in simulated time.

What ranks exchange does not depend on how fast anything is: the same strategies over the same instances send
the same messages. So they are run once, over any carrier, and `simulated` plays what was written down.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np

from amphw.ir.errors import AmphwError
from amphw.replicas.transport import Transport, Wrapped

Kind = Literal["agreement", "ring", "rows", "served"]
_KINDS: dict[str, Kind] = {"all_reduce": "ring", "all_gather": "rows"}


@dataclass(frozen=True)
class Compute:
    """A rank computes for some seconds."""

    seconds: float


@dataclass(frozen=True)
class Software:
    """A rank works for some seconds on what is exchanged: it packs, adds up and looks up rows."""

    seconds: float


@dataclass(frozen=True)
class Send:
    """To another rank. handled: as how many bytes it counts where it is packed; None: as they are."""

    to: int
    bytes: float
    kind: Kind
    handled: float | None = None


@dataclass(frozen=True)
class Receive:
    """The next message of another rank, of so many bytes."""

    source: int
    bytes: float = 0.0


Act = Compute | Software | Send | Receive


class Recorder(Wrapped):
    """A `Transport` over another one, which does the work. acts: of this rank so far.

    scale: by how much arrays that are exchanged stand for larger ones. What ranks agree on (integers of 64
    bits, such as how many rows go where) is as large as it would be. clock: seconds, of the thread that makes
    this and calls it, such as `time.thread_time`: what passes between calls is `Software`; without it that
    takes no time.
    """

    def __init__(self, transport: Transport, scale: float = 1.0, clock: Callable[[], float] | None = None):
        super().__init__(transport)
        self._scale, self._clock = scale, clock or (lambda: 0.0)
        self.acts: list[Act] = []
        self._left = self._clock()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What is done inside is not counted as work of this rank; what was done before is."""
        worked = self._clock() - self._left
        if worked > 0.0:
            self.acts.append(Software(worked))
        yield
        self._left = self._clock()

    def compute(self, seconds: float) -> None:
        with self.apart():
            self.acts.append(Compute(seconds))

    def send(self, to: int, values: np.ndarray) -> None:
        # Which collective a message is part of is seen from who calls: collectives need not know of this.
        kind = _KINDS.get(sys._getframe(1).f_code.co_name, "served")
        with self.apart():
            agrees = values.dtype == np.int64
            self.acts.append(Send(to, self._large(values), "agreement" if agrees else kind))
            self._transport.send(to, values)
        self.sent += values.nbytes

    def receive(self, source: int, into: np.ndarray) -> None:
        with self.apart():
            self.acts.append(Receive(source, self._large(into)))
            self._transport.receive(source, into)
        self.received += into.nbytes

    def _large(self, values: np.ndarray) -> float:
        return values.nbytes * (1.0 if values.dtype == np.int64 else self._scale)

    def post(self, to: int, values: np.ndarray) -> None:
        raise AmphwError("messages that nobody waits for cannot be played in simulated time")

    def posted(self, to: int) -> int:
        return 0

    def poll(self, source: int) -> np.ndarray | None:
        return None
