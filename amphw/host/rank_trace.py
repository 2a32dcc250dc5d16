"""The trace of several ranks in one file: a process of the timeline for each rank, with what it computed,
when it waited and exchanged, and an arrow for each message, from its sender to its receiver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

from amphw.host.records import Slice

SYNCHRONISATION, MESSAGES = 1_000_001, 1_000_002
"""Numbers of threads, above those of all workers: phases of exchanges, and the messages in them."""


@dataclass(slots=True)
class Phase:
    """A stretch of an exchange, such as "transfer". bytes: sent and received in it, by parameter."""

    name: str
    start_us: float
    duration_us: float
    bytes: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Message:
    """One that a rank has sent (`sends`) or received. number: among all from that sender to that receiver."""

    sends: bool
    peer: int
    number: int
    start_us: float
    duration_us: float
    bytes: int


@dataclass
class RankTrace:
    """What one rank did, on its own clock. offset_us: what its clock is ahead of the first rank's."""

    rank: int
    slices: list[Slice] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    offset_us: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RankTrace:
        """The inverse of `to_json`."""
        return cls(
            data["rank"],
            [Slice(**each) for each in data["slices"]],
            [Phase(**each) for each in data["phases"]],
            [Message(**each) for each in data["messages"]],
            data["offset_us"],
        )


def process_of(rank: int) -> int:
    """Its number in the file: 0 is the kernel's idle task to Perfetto."""
    return rank + 1


def rank_events(traces: Sequence[RankTrace], first_flow: int) -> Iterator[dict[str, Any]]:
    """Chrome trace events of exchanges and messages. first_flow: the first number that no other arrow has."""
    for trace in traces:
        yield from _exchanges(trace)
    yield from _arrows(traces, first_flow)


def _exchanges(trace: RankTrace) -> Iterator[dict[str, Any]]:
    pid = process_of(trace.rank)

    def drawn(what: Phase | Message, thread: int, name: str, category: str) -> dict[str, Any]:
        return {
            "ph": "X",
            "pid": pid,
            "tid": thread,
            "ts": round(what.start_us - trace.offset_us, 3),
            "dur": round(what.duration_us, 3),
            "name": name,
            "cat": category,
            "args": {"bytes": what.bytes},
        }

    for thread, name in ((SYNCHRONISATION, "synchronisation"), (MESSAGES, "messages")):
        common = {"ph": "M", "pid": pid, "tid": thread}
        yield common | {"name": "thread_name", "args": {"name": name}}
        yield common | {"name": "thread_sort_index", "args": {"sort_index": thread}}
    for phase in trace.phases:
        yield drawn(phase, SYNCHRONISATION, phase.name, "synchronisation")
    for message in trace.messages:
        name = f"{'to' if message.sends else 'from'} rank {message.peer}"
        yield drawn(message, MESSAGES, name, "message")


def _arrows(traces: Sequence[RankTrace], first_flow: int) -> Iterator[dict[str, Any]]:
    """For each message of which both ends are kept: from within its sending to within its receiving, as an
    event belongs to the slice that encloses its time."""
    sent = {
        (trace.rank, m.peer, m.number): m.start_us - trace.offset_us
        for trace in traces
        for m in trace.messages
        if m.sends
    }
    flows = count(first_flow)
    for trace in traces:
        for m in trace.messages:
            left = None if m.sends else sent.get((m.peer, trace.rank, m.number))
            if left is None:
                continue
            # Where clocks are off by more than a message takes, an arrow must not point back.
            arrived = max(left, m.start_us + m.duration_us - trace.offset_us - 0.001)
            common = {"id": next(flows), "cat": "rank message", "name": "rank message", "tid": MESSAGES}
            yield common | {"ph": "s", "pid": process_of(m.peer), "ts": round(left, 3)}
            yield common | {"ph": "f", "bp": "e", "pid": process_of(trace.rank), "ts": round(arrived, 3)}
