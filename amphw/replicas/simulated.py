"""What ranks have done (`recorded`), played in simulated time on machines with network interfaces.

The ranks of a machine share its interface, which sends and receives at once, each at its rate, one message
after the other; between themselves they have the machine's memory. Switches have room for everything. Time
comes from no clock, and equal times are taken in a fixed order, so the same acts give the same seconds.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from amphw.ir.errors import AmphwError
from amphw.replicas.recorded import Act, Compute, Receive, Send


@dataclass(frozen=True)
class Machines:
    """of: the machine of each rank. nic: bytes a second of an interface, each way; latency: seconds from one
    to another. memory: bytes a second between ranks of a machine. handling: bytes a second that a machine
    packs or unpacks and adds up, of gathered rows and of what goes to or comes from a server on another
    machine; its ranks take turns, and a rank does nothing else meanwhile."""

    of: Sequence[int]
    nic: float = math.inf
    latency: float = 0.0
    memory: float = math.inf
    handling: float = math.inf


@dataclass(frozen=True)
class Message:
    """far: whether it crossed the network, from a rank to another."""

    source: int
    send: Send
    far: bool


@dataclass
class Spent:
    """Seconds of one rank. compute: as it said. wait: for others, until all had agreed on a step. transfer:
    everything else. clock: their sum."""

    compute: float = 0.0
    wait: float = 0.0
    transfer: float = 0.0

    @property
    def clock(self) -> float:
        return self.compute + self.wait + self.transfer


@dataclass
class _Rank:
    number: int
    acts: Sequence[Act]
    at: int = 0
    spent: Spent = field(default_factory=Spent)


def play(acts: Sequence[Sequence[Act]], machines: Machines) -> list[Spent]:
    """What each rank spends its time with. acts: by rank, in order; what is sent is also received.

    Raises AmphwError where a rank waits for a message that nobody sends.
    """
    return _Play(acts, machines).run()


class _Play:
    """Events are (time, order, what): a rank that goes on, an act of sending of which the first
    byte reaches the receiver's interface, or a message that has arrived."""

    def __init__(self, acts: Sequence[Sequence[Act]], machines: Machines):
        self._machines = machines
        self._ranks = [_Rank(number, each) for number, each in enumerate(acts)]
        self._out = dict.fromkeys(machines.of, 0.0)
        self._in = dict.fromkeys(machines.of, 0.0)
        self._hands = dict.fromkeys(machines.of, 0.0)
        self._events: list[tuple[float, int, _Rank | tuple[int, Send] | Message]] = []
        self._order = 0
        self._arrived: dict[tuple[int, int], deque[Message]] = {}
        self._waiting: set[tuple[int, int]] = set()

    def run(self) -> list[Spent]:
        for rank in self._ranks:
            self._at(0.0, rank)
        while self._events:
            now, _, what = heapq.heappop(self._events)
            if isinstance(what, _Rank):
                self._go_on(what)
            elif isinstance(what, Message):
                self._deliver(what, now)
            else:
                self._reach(*what, now)
        for source, stuck in sorted(self._waiting):
            raise AmphwError(f"rank {stuck} waits for a message of rank {source}, which sends none")
        return [rank.spent for rank in self._ranks]

    def _at(self, time: float, what: _Rank | tuple[int, Send] | Message) -> None:
        self._order += 1
        heapq.heappush(self._events, (time, self._order, what))

    def _go_on(self, rank: _Rank) -> None:
        """One act: others may have something to do before the next."""
        if rank.at == len(rank.acts):
            return
        act = rank.acts[rank.at]
        if isinstance(act, Receive):
            self._receive(rank, act.source, rank.spent.clock)
            return
        rank.at += 1
        if isinstance(act, Compute):
            rank.spent.compute += act.seconds
        else:
            self._send(rank, act)
        self._at(rank.spent.clock, rank)

    def _send(self, rank: _Rank, act: Send) -> None:
        m = self._machines
        if m.of[rank.number] == m.of[act.to]:
            self._at(rank.spent.clock + act.bytes / m.memory, Message(rank.number, act, False))
            return
        self._handle(rank, act)
        begins = max(rank.spent.clock, self._out[m.of[rank.number]])
        self._out[m.of[rank.number]] = begins + act.bytes / m.nic
        self._at(begins + m.latency, (rank.number, act))

    def _reach(self, source: int, act: Send, now: float) -> None:
        """The receiver's interface may have others to take in before."""
        there = self._machines.of[act.to]
        self._in[there] = max(now, self._in[there]) + act.bytes / self._machines.nic
        self._at(self._in[there], Message(source, act, True))

    def _deliver(self, message: Message, now: float) -> None:
        pair = (message.source, message.send.to)
        self._arrived.setdefault(pair, deque()).append(message)
        if pair in self._waiting:
            self._waiting.remove(pair)
            self._receive(self._ranks[message.send.to], message.source, now)

    def _receive(self, rank: _Rank, source: int, now: float) -> None:
        found = self._arrived.get((source, rank.number))
        if not found:
            self._waiting.add((source, rank.number))
            return
        message = found.popleft()
        rank.at += 1
        waited = now - rank.spent.clock
        if message.send.kind == "agreement":
            rank.spent.wait += waited
        else:
            rank.spent.transfer += waited
            if message.far:
                self._handle(rank, message.send)
        self._at(rank.spent.clock, rank)

    def _handle(self, rank: _Rank, act: Send) -> None:
        if act.kind not in ("rows", "served"):
            return
        here = self._machines.of[rank.number]
        size = act.bytes if act.handled is None else act.handled
        done = max(rank.spent.clock, self._hands[here]) + size / self._machines.handling
        rank.spent.transfer += done - rank.spent.clock
        self._hands[here] = done
