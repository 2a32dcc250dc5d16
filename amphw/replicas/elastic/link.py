"""How members reach each other: what a carrier offers, and what is in front of every message."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from amphw.replicas.ako.message import Member

BODY, IDLE, BUSY, BEGAN, END = range(5)
"""Kinds of messages: a part of a gradient; nobody has to wait for its sender's rounds; that is over; its
sender has begun to owe all that its revision of the table has; its sender sends no more."""
_NUMBERS = 7


class MalformedError(ValueError):
    """A message is none that a member sends."""


class Head(NamedTuple):
    """In front of every message. round: of the sender, when it was made. revision: of the table that the
    sender went by then."""

    kind: int
    source: Member
    to: Member
    round: int
    revision: int

    def before(self, body: np.ndarray) -> np.ndarray:
        """As one message. body: uint8."""
        numbers = np.array([self.kind, *self.source, *self.to, self.round, self.revision], np.int64)
        return np.concatenate([numbers.view(np.uint8), body])

    @classmethod
    def of(cls, message: np.ndarray) -> tuple[Head, np.ndarray]:
        """The head and the body of a message, uint8. Raises MalformedError."""
        if len(message) < 8 * _NUMBERS:
            raise MalformedError(f"a message of {len(message)} bytes is shorter than its head")
        kind, a, b, c, d, round, revision = message[: 8 * _NUMBERS].copy().view(np.int64).tolist()
        if kind not in range(END + 1):
            raise MalformedError(f"there is no kind {kind} of messages")
        return cls(kind, Member(a, b), Member(c, d), round, revision), message[8 * _NUMBERS :]


class Link(Protocol):
    """One member's way to the others. address: where this one takes messages, for others' `connect`.
    refused: messages that came from somebody who does not know the job's secret.

    Messages from one member to another arrive in the order in which they were posted, or not at all where
    either is lost. Nothing here waits.
    """

    address: str
    refused: int

    def connect(self, peer: Member, address: str) -> None:
        """From now on this member can be posted to."""
        ...

    def disconnect(self, peer: Member) -> None:
        """It is gone; nothing happens for one that is not known."""
        ...

    def post(self, peer: Member, message: np.ndarray) -> bool:
        """Send uint8 -> whether it is on its way; where not, the peer is slow or gone."""
        ...

    def poll(self) -> list[np.ndarray]:
        """All that has come, uint8, oldest first of each sender."""
        ...

    def close(self, linger: float = 0.0) -> None:
        """linger: seconds in which what was posted may still leave."""
        ...
