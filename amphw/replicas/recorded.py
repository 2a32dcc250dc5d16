"""A carrier that writes down what a rank does, so that it can be played again in simulated time.

What ranks exchange does not depend on how fast anything is: the same strategies over the same instances send
the same messages. So they are run once, over any carrier, and `simulated` plays what was written down.
"""

from __future__ import annotations

import sys
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
class Send:
    """To another rank. handled: as how many bytes it counts where it is packed; None: as they are."""

    to: int
    bytes: float
    kind: Kind
    handled: float | None = None


@dataclass(frozen=True)
class Receive:
    """The next message of another rank."""

    source: int


Act = Compute | Send | Receive


class Recorder(Wrapped):
    """A `Transport` over another one, which does the work. acts: of this rank so far.

    scale: by how much arrays that are exchanged stand for larger ones. What ranks agree on (integers of 64
    bits, such as how many rows go where) is as large as it would be.
    """

    def __init__(self, transport: Transport, scale: float = 1.0):
        super().__init__(transport)
        self._scale = scale
        self.acts: list[Act] = []

    def compute(self, seconds: float) -> None:
        self.acts.append(Compute(seconds))

    def send(self, to: int, values: np.ndarray) -> None:
        # Which collective a message is part of is seen from who calls: collectives need not know of this.
        kind = _KINDS.get(sys._getframe(1).f_code.co_name, "served")
        if values.dtype == np.int64:
            self.acts.append(Send(to, values.nbytes, "agreement"))
        else:
            self.acts.append(Send(to, values.nbytes * self._scale, kind))
        self._transport.send(to, values)
        self.sent += values.nbytes

    def receive(self, source: int, into: np.ndarray) -> None:
        self.acts.append(Receive(source))
        self._transport.receive(source, into)
        self.received += into.nbytes

    def post(self, to: int, values: np.ndarray) -> None:
        raise AmphwError("messages that nobody waits for cannot be played in simulated time")

    def posted(self, to: int) -> int:
        return 0

    def poll(self, source: int) -> np.ndarray | None:
        return None
