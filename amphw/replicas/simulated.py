"""What ranks do, in simulated time on machines with network interfaces: what was written down (`recorded`),
or what they decide when they are asked (`live`).

The ranks of a machine share its interface, which sends and receives at once, each at its rate, one message
after the other; between themselves they have the machine's memory. Switches have room for everything. Time
comes from no clock, and equal times are taken in a fixed order, so the same acts give the same seconds.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from amphw.ir.errors import AmphwError
from amphw.replicas.recorded import Act, Compute, Nap, Post, Receive, Send, Software, Take


@dataclass(frozen=True)
class Machines:
    """of: the machine of each rank. nic: bytes a second of an interface, each way; burst: bytes that it lets
    through at once after it was idle; latency: seconds from one machine to another. memory: bytes a second
    between ranks of a machine. handling: bytes a second that a machine packs or unpacks and adds up, of
    gathered rows and of what goes to or comes from a server on another machine; its ranks take turns, and a
    rank does nothing else meanwhile. carrying: pairs, by bytes of a message from another machine: how many
    seconds it and one that is sent in return take a rank's processor, which works on them while the rank
    waits; what lies between two sizes is between their seconds, and more bytes take more in proportion.
    looking: the same by seconds of a wait: what looking for messages takes the processor of a rank that waits
    for so long, beyond what carrying takes it. processors: of each rank, the processor that it computes on,
    of which ranks have equal shares; None: each has its own. late: by what share of its wait a rank notices a
    message late.
    """

    of: Sequence[int]
    nic: float = math.inf
    latency: float = 0.0
    memory: float = math.inf
    handling: float = math.inf
    burst: float = 0.0
    carrying: Sequence[tuple[float, float]] = ()
    looking: Sequence[tuple[float, float]] = ()
    processors: Sequence[int] | None = None
    late: float = 0.0

    def carries(self, size: float) -> float:
        """Seconds of a processor, by `carrying`."""
        return _read_off(self.carrying, size)

    def looks(self, seconds: float) -> float:
        """Seconds of a processor, by `looking`."""
        return _read_off(self.looking, seconds)


def _read_off(table: Sequence[tuple[float, float]], at: float) -> float:
    if not table:
        return 0.0
    known, seconds = zip(*table, strict=True)
    return float(np.interp(at, known, seconds)) * max(1.0, at / known[-1])


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


Program = Callable[[float], Act | None]
"""What a rank does next, from the time; None: it is through."""


@dataclass
class _Rank:
    number: int
    program: Program
    spent: Spent = field(default_factory=Spent)


class _Interface:
    """One direction of a machine's interface: a leaky bucket of `burst` bytes, in the form of a virtual clock
    (GCRA): `_due` is when all that was let through would be, at the rate."""

    def __init__(self, rate: float, burst: float):
        self._rate, self._ahead, self._due = rate, burst / rate, 0.0

    def take(self, now: float, size: float) -> tuple[float, float]:
        """A message that is here -> when its first byte goes through, and when its last one has."""
        begins = max(now, self._due - self._ahead)
        self._due = max(now, self._due) + size / self._rate
        return begins, max(now, self._due - self._ahead)


def _nothing(time: float) -> None:
    """Follows what nobody waits for."""


class _Processor:
    """Work of several ranks, each of which has an equal share as long as it has any."""

    def __init__(self) -> None:
        self._left: dict[int, tuple[float, Callable[[float], None]]] = {}
        self._looked = 0.0
        self.changes = 0  # an event that was planned before the last change is not to be

    def add(self, now: float, rank: int, seconds: float, then: Callable[[float], None]) -> float:
        """rank: has no other work here. -> when the next work is done, if nothing is added before."""
        self._pass(now)
        self._left[rank] = seconds, then
        return self._next()

    def spend(self, now: float, rank: int, seconds: float) -> float:
        """As `add`, beside whatever else the rank has here, and nothing follows."""
        self._pass(now)
        left = self._left.get(~rank, (0.0, _nothing))[0]
        self._left[~rank] = left + seconds, _nothing
        return self._next()

    def done(self, now: float) -> tuple[list[Callable[[float], None]], float | None]:
        """What follows the work that is done now, and when the next is done; None: there is none left."""
        self._pass(now)
        least = min(left for left, _ in self._left.values())
        through = [rank for rank, (left, _) in self._left.items() if left == least]
        follow = [self._left.pop(rank)[1] for rank in through]
        return follow, self._next() if self._left else None

    def _pass(self, now: float) -> None:
        each = (now - self._looked) / max(1, len(self._left))
        self._left = {rank: (max(0.0, left - each), then) for rank, (left, then) in self._left.items()}
        self._looked = now
        self.changes += 1

    def _next(self) -> float:
        return self._looked + min(left for left, _ in self._left.values()) * len(self._left)


def play(acts: Sequence[Sequence[Act]], machines: Machines) -> list[Spent]:
    """What each rank spends its time with. acts: by rank, in order; what is sent is also received.

    Raises AmphwError where a rank waits for a message that nobody sends.
    """

    def listed(each: Iterator[Act]) -> Program:
        return lambda now: next(each, None)

    return Play([listed(iter(each)) for each in acts], machines).run()


class Play:
    """Ranks at work, one act at a time of whichever is the first to have one.

    Events are (time, order, what is done then), which is called with the time. spent: of each rank so far.
    """

    def __init__(self, programs: Sequence[Program], machines: Machines):
        self._machines = machines
        self._ranks = [_Rank(number, each) for number, each in enumerate(programs)]
        self._out, self._in = (
            {each: _Interface(machines.nic, machines.burst) for each in machines.of} for _ in range(2)
        )
        self._hands = dict.fromkeys(machines.of, 0.0)
        self._processors = {each: _Processor() for each in machines.processors or ()}
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = 0
        self._arrived: dict[tuple[int, int], deque[Message]] = {}
        self._waiting: dict[tuple[int, int], Callable[[Message, float], None]] = {}
        self._napping: dict[int, float] = {}  # since when

    @property
    def spent(self) -> list[Spent]:
        return [rank.spent for rank in self._ranks]

    def run(self) -> list[Spent]:
        for rank in self._ranks:
            self._at(0.0, partial(self._go_on, rank))
        while self._events:
            now, _, what = heapq.heappop(self._events)
            what(now)
        for source, stuck in sorted(self._waiting):
            raise AmphwError(f"rank {stuck} waits for a message of rank {source}, which sends none")
        for stuck in sorted(self._napping):
            raise AmphwError(f"rank {stuck} waits for others, of which none sends anything")
        return self.spent

    def _at(self, time: float, what: Callable[[float], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (time, self._order, what))

    def _go_on(self, rank: _Rank, now: float) -> None:
        """One act: others may have something to do before the next."""
        act = rank.program(now)
        if isinstance(act, Receive):
            self._receive(rank, act, now)
        elif isinstance(act, Send):
            self._send(rank, act, now)
        elif isinstance(act, Post):
            self._post(rank, act, now)
        elif isinstance(act, Take):
            self._take(rank, act, now)
        elif isinstance(act, Nap):
            self._napping[rank.number] = now
        elif act is not None:
            self._work(rank, act, now)

    # --- processors -------------------------------------------------------------------------------

    def _work(self, rank: _Rank, act: Compute | Software, now: float) -> None:
        def done(time: float) -> None:
            if isinstance(act, Compute):
                rank.spent.compute += time - now
            else:
                rank.spent.transfer += time - now
            self._go_on(rank, time)

        self._load(rank, act.seconds, now, done)

    def _load(self, rank: _Rank, seconds: float, now: float, then: Callable[[float], None]) -> None:
        """A rank's processor works for it for so long, or longer, where others want it as well."""
        if self._machines.processors is None or not seconds:
            self._at(now + seconds, then)
            return
        processor = self._processors[self._machines.processors[rank.number]]
        self._plan(processor, processor.add(now, rank.number, seconds, then))

    def _look(self, rank: _Rank, waited: float, now: float) -> None:
        """What looking for a message has taken a processor holds up the others that want it."""
        if self._machines.processors is None or waited <= 0.0:
            return
        processor = self._processors[self._machines.processors[rank.number]]
        self._plan(processor, processor.spend(now, rank.number, self._machines.looks(waited)))

    def _plan(self, processor: _Processor, time: float) -> None:
        planned = processor.changes

        def due(now: float) -> None:
            if processor.changes != planned:
                return
            follow, after = processor.done(now)
            if after is not None:
                self._plan(processor, after)
            for each in follow:
                each(now)

        self._at(time, due)

    def _handled(self, rank: _Rank, act: Send, now: float) -> float:
        """-> when the machine's hands have packed or unpacked this."""
        if act.kind not in ("rows", "served"):
            return now
        return self._handle(rank, act.bytes if act.handled is None else act.handled, now)

    def _handle(self, rank: _Rank, size: float, now: float) -> float:
        here = self._machines.of[rank.number]
        self._hands[here] = done = max(now, self._hands[here]) + size / self._machines.handling
        rank.spent.transfer += done - now
        return done

    # --- messages ---------------------------------------------------------------------------------

    def _send(self, rank: _Rank, act: Send, now: float) -> None:
        m = self._machines
        if m.of[rank.number] == m.of[act.to]:
            self._at(now + act.bytes / m.memory, partial(self._deliver, Message(rank.number, act, False)))
            self._at(now, partial(self._go_on, rank))
            return

        def leave(time: float) -> None:
            self._cross(rank, act, time, partial(self._deliver, Message(rank.number, act, True)))
            self._go_on(rank, time)

        self._at(self._handled(rank, act, now), leave)

    def _cross(self, rank: _Rank, act: Send | Post, now: float, then: Callable[[float], None]) -> None:
        """From one machine to another."""
        m = self._machines
        begins, through = self._out[m.of[rank.number]].take(now, act.bytes)
        last = through + m.latency

        def reach(time: float) -> None:
            """The first byte is here; the receiver's interface may have others to take in before."""
            self._at(max(last, self._in[m.of[act.to]].take(time, act.bytes)[1]), then)

        self._at(begins + m.latency, reach)

    def _post(self, rank: _Rank, act: Post, now: float) -> None:
        m = self._machines

        def arrived(time: float) -> None:
            act.arrives()
            for number in (rank.number, act.to):
                if number in self._napping:
                    self._ranks[number].spent.wait += time - self._napping.pop(number)
                    self._go_on(self._ranks[number], time)

        def leave(time: float) -> None:
            self._cross(rank, act, time, arrived)
            self._go_on(rank, time)

        if m.of[rank.number] == m.of[act.to]:
            self._at(now + act.bytes / m.memory, arrived)
            self._at(now, partial(self._go_on, rank))
        else:
            self._at(self._handle(rank, act.bytes, now), leave)

    def _take(self, rank: _Rank, act: Take, now: float) -> None:
        """Unpacked, and carried by the rank's processor, which has not waited for it."""
        m = self._machines
        if m.of[act.source] == m.of[rank.number]:
            self._at(now, partial(self._go_on, rank))
            return
        done = self._handle(rank, act.bytes, now)
        self._at(done, lambda time: self._work(rank, Software(m.carries(act.bytes)), time))

    def _deliver(self, message: Message, now: float) -> None:
        pair = (message.source, message.send.to)
        if pair in self._waiting:
            self._waiting.pop(pair)(message, now)
        else:
            self._arrived.setdefault(pair, deque()).append(message)

    def _receive(self, rank: _Rank, act: Receive, now: float) -> None:
        """Goes on when the message is here and the processor is through with what carrying takes it."""
        m, pair = self._machines, (act.source, rank.number)
        far = m.of[act.source] != m.of[rank.number]
        carries = m.carries(act.bytes) if far else 0.0
        here: list[Message] = []
        carried: list[float] = []

        def came(message: Message, time: float) -> None:
            self._look(rank, time - now - carries, time)

            def noticed(later: float) -> None:
                here.append(message)
                both(later)

            self._at(time + (time - now) * m.late, noticed)

        def worked(time: float) -> None:
            carried.append(time)
            both(time)

        def both(time: float) -> None:
            if here and carried:
                self._received(rank, here[0], now, time)

        if found := self._arrived.get(pair):
            came(found.popleft(), now)
        else:
            self._waiting[pair] = came
        self._load(rank, carries, now, worked)

    def _received(self, rank: _Rank, message: Message, began: float, now: float) -> None:
        if message.send.kind == "agreement":
            rank.spent.wait += now - began
        else:
            rank.spent.transfer += now - began
        done = self._handled(rank, message.send, now) if message.far else now
        self._at(done, partial(self._go_on, rank))
