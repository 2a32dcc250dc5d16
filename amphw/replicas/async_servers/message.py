"""What workers and servers tell each other, as bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from amphw.replicas.wire import coded_kind, decode, encode

PUSH, ANSWER, FINISHED = range(3)
_HEADER = 3
"""Integers of 64 bits: what it is, the sender's round, and nanoseconds for which an answer was held."""


@dataclass(frozen=True)
class Message:
    """kind: PUSH, ANSWER, or FINISHED, which has nothing more. counts: int64, of a push the rows of each
    node, of an answer the rounds of each worker that the server has applied. held: seconds. values: of the
    server's part; None: all zero."""

    kind: int
    round: int = 0
    held: float = 0.0
    counts: np.ndarray | None = None
    values: np.ndarray | None = None


def coded(message: Message, wire: str) -> list[np.ndarray]:
    """Arrays that are packed one after the other. wire: as in `encode`."""
    out = [np.array([message.kind, message.round, round(1e9 * message.held)], np.int64)]
    out += [] if message.counts is None else [message.counts]
    return out if message.values is None else [*out, encode(message.values, wire)]


def decoded(body: np.ndarray, nodes: int, workers: int, wire: str, kind: np.dtype) -> Message:
    """What `coded` has made. nodes: that have parameters; kind: of their numbers."""
    what, number, held = body[: 8 * _HEADER].copy().view(np.int64).tolist()
    if what == FINISHED:
        return Message(what)
    end = 8 * (_HEADER + (nodes if what == PUSH else workers))
    counts, rest = body[8 * _HEADER : end].copy().view(np.int64), body[end:].copy()
    values = decode(rest.view(coded_kind(kind, wire)), wire, kind) if rest.size else None
    return Message(what, number, held / 1e9, counts, values)
