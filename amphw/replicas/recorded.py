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


@dataclass(frozen=True)
class Post:
    """To another rank, which need not expect it. arrives: is called once it is there."""

    to: int
    bytes: float
    arrives: Callable[[], None]


@dataclass(frozen=True)
class Take:
    """A message of so many bytes that another rank has posted."""

    source: int
    bytes: float


@dataclass(frozen=True)
class Nap:
    """Until something that was posted by this rank or to it has arrived."""


Act = Compute | Software | Send | Receive | Post | Take | Nap


def sending(to: int, values: np.ndarray, scale: float, caller: str) -> Send:
    """What a carrier is asked to send. Which collective it is part of is seen from the name of the function
    that calls: collectives need not know of this. scale: as in `Recorder`."""
    agrees = values.dtype == np.int64
    return Send(to, _large(values, scale), "agreement" if agrees else _KINDS.get(caller, "served"))


def receiving(source: int, into: np.ndarray, scale: float) -> Receive:
    """The same of what it waits for."""
    return Receive(source, _large(into, scale))


def _large(values: np.ndarray, scale: float) -> float:
    return values.nbytes * (1.0 if values.dtype == np.int64 else scale)


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
        with self.apart():
            self.acts.append(sending(to, values, self._scale, sys._getframe(1).f_code.co_name))
            self._transport.send(to, values)
        self.sent += values.nbytes

    def receive(self, source: int, into: np.ndarray) -> None:
        with self.apart():
            self.acts.append(receiving(source, into, self._scale))
            self._transport.receive(source, into)
        self.received += into.nbytes

    def post(self, to: int, values: np.ndarray) -> None:
        raise AmphwError("what is posted depends on when messages come: see `live`, which knows the time")

    def posted(self, to: int) -> int:
        return 0

    def poll(self, source: int) -> np.ndarray | None:
        return None
