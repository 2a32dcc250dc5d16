"""The schedule of the CPU device simulated: who computes what when, without computing it.

The rules are those of `engine/native/engine.cpp`, and the queues and plans are the device's own; times
come from `Costs`. Workers and the host are generators that yield how long they are busy. What is not
simulated: that workers slow each other down in the caches, at locks and at the interpreter's lock, and that a
sleeper takes time to wake.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from amphw.bench.errors import BenchError
from amphw.engine.numpy_plane.gradients import WORTH_REDUCING
from amphw.engine.policy import BACKWARD, FORWARD, KINDS, PolicyTable, Queue, choose, report_batch
from amphw.estimate.shape import Shape

HOST = -1
Busy = Generator[float | None, None, None]
"""Yields microseconds that its owner is busy, or None to sleep until it is woken."""


@dataclass(frozen=True)
class Line:
    """Microseconds: fixed + per_row * rows."""

    fixed: float
    per_row: float

    def of(self, rows: float) -> float:
        return self.fixed + self.per_row * rows


@dataclass(frozen=True)
class Costs:
    """What things take, in microseconds.

    frame, delivery: of a frame by (unit, kind); delivery is all between a frame's arithmetic and the next
    frame's. reduce: a gradient row, update: an update, by unit. host: submitting and polling an instance.
    """

    frame: Mapping[tuple[int, int], Line]
    delivery: Mapping[tuple[int, int], Line]
    reduce: Mapping[int, float]
    update: Mapping[int, float]
    host: float


@dataclass(frozen=True)
class Rules:
    """What decides the order. depth: by unit. intervals: gradient rows between updates, by owning unit."""

    table: PolicyTable
    depth: Sequence[int]
    intervals: Mapping[int, int]
    frame_cap: int = 64
    frame_rows: int = 512
    by_age: bool = True


@dataclass
class Chunk:
    """Logged gradient rows that are reduced together. waiting: retire only after the update."""

    rows: int = 0
    writers: int = 0
    due: bool = False
    waiting: list[_Instance] = field(default_factory=list)


class Log:
    """A node's gradient log, as `Parameters` of the engine has it, but for the chunks' capacity.

    The engine also seals a chunk that has no room for the rows of a space other than the first; what such
    reductions take counts as delivery.
    """

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.open, self.sealed = Chunk(), deque[Chunk]()
        self.reducing = False
        self._since = 0  # rows since the last update was due

    def reserve(self, rows: int) -> Chunk:
        chunk = self.open
        chunk.rows += rows
        chunk.writers += 1
        self._since += rows
        chunk.due = self._since >= self.interval
        if chunk.due or chunk.rows >= WORTH_REDUCING:
            self.sealed.append(chunk)
            self.open = Chunk()
        if chunk.due:
            self._since = 0
        return chunk

    def claim(self) -> Chunk | None:
        """The next chunk to reduce; None if there is none, or somebody is at it or still writes it."""
        if self.reducing or not self.sealed or self.sealed[0].writers:
            return None
        self.reducing = True
        return self.sealed.popleft()


class _Instance:
    __slots__ = ("age", "left", "missing", "outstanding", "shape")

    def __init__(self, shape: Shape, age: int) -> None:
        self.shape, self.age = shape, age
        self.left = list(shape.need)
        self.missing = [0] * len(shape.need)
        self.outstanding = 1  # so that it cannot retire before it is pumped


Firing = tuple[_Instance, int]


@dataclass
class Tally:
    """What has happened up to a time (microseconds). stolen: from workers, by a host without a processor of
    its own. serial: reducing and updating, by unit."""

    us: float = 0.0
    retired: int = 0
    counted: int = 0
    frames: int = 0
    rows: int = 0
    computing: float = 0.0
    delivering: float = 0.0
    host: float = 0.0
    stolen: float = 0.0
    serial: dict[int, float] = field(default_factory=dict)

    @property
    def work(self) -> float:
        """What workers were busy with."""
        return self.computing + self.delivering + sum(self.serial.values())

    def since(self, before: Tally) -> Tally:
        numbers = {
            name: value - getattr(before, name) for name, value in vars(self).items() if name != "serial"
        }
        serial = {u: spent - before.serial.get(u, 0.0) for u, spent in self.serial.items()}
        return Tally(**numbers, serial=serial)


class Simulation:
    """`workers` share all queues of `keys` instances that are refilled without end.

    shape(n): of the n-th instance that is pumped. processors: with no more of them than workers, the host
    takes its time from a worker.
    """

    def __init__(
        self,
        shape: Callable[[int], Shape],
        costs: Costs,
        rules: Rules,
        workers: int,
        keys: int,
        processors: int | None = None,
    ) -> None:
        self.shape, self.costs, self.rules = shape, costs, rules
        self.workers, self.keys = workers, keys
        self.processors = processors if processors is not None else workers + 1
        self.tally = Tally()
        self._queues = [
            Queue(u, k, d, rules.by_age) for u, d in enumerate(rules.depth) for k in range(len(KINDS))
        ]
        self._filled: dict[int, Queue] = {}
        self._logs = {u: Log(interval) for u, interval in rules.intervals.items()}
        self._actors = {w: self._work() for w in range(workers)} | {HOST: self._pump()}
        self._asleep: set[int] = set()
        self._owed = dict.fromkeys(self._actors, 0.0)
        self._events: list[tuple[float, int, int]] = [
            (0.0, i, who) for i, who in enumerate((HOST, *range(workers)))
        ]
        self._order = workers + 1
        self._arrivals = 0
        self._done: list[_Instance] = []
        self._batch = report_batch(keys)
        self._victim = 0

    def run(self, retired: int) -> Tally:
        """Go on until so many instances have retired in all -> the tally of everything so far."""
        while self.tally.retired < retired:
            if not self._events:
                raise BenchError("the simulated schedule is stuck: no worker has anything to do")
            time, _, who = heapq.heappop(self._events)
            if self._owed[who]:
                self._at(time + self._owed[who], who)
                self._owed[who] = 0.0
                continue
            self.tally.us = time
            spent = next(self._actors[who])
            if spent is None:
                self._asleep.add(who)
            else:
                self._at(time + spent, who)
        return Tally(**{**vars(self.tally), "serial": dict(self.tally.serial)})

    def _at(self, time: float, who: int) -> None:
        self._order += 1
        heapq.heappush(self._events, (time, self._order, who))

    def _wake(self, who: int) -> None:
        if who in self._asleep:
            self._asleep.remove(who)
            self._at(self.tally.us, who)

    # --- the host -------------------------------------------------------------------------------------

    def _pump(self) -> Busy:
        free, pumped = self.keys, 0
        while True:
            while free:
                free -= 1
                self._steal(self.costs.host)
                self.tally.host += self.costs.host
                yield self.costs.host
                instance = _Instance(self.shape(pumped), pumped)
                pumped += 1
                instance.outstanding += len(instance.shape.first)
                ready: list[Firing] = []
                self._deliver(instance, instance.shape.first, ready)
                self._push(ready, FORWARD)
                self._settle(instance, 1)
            if not self._done:
                yield None
            free += len(self._done)
            self._done.clear()

    def _steal(self, spent: float) -> None:
        """The operating system runs the host where a worker would have run."""
        running = [w for w in range(self.workers) if w not in self._asleep]
        if len(running) < self.processors:
            return
        self._victim += 1
        self._owed[running[self._victim % len(running)]] += spent
        self.tally.stolen += spent

    # --- workers --------------------------------------------------------------------------------------

    def _work(self) -> Busy:
        rules = self.rules
        while True:
            if self._filled:
                queue = choose(rules.table, [self._filled[q] for q in sorted(self._filled)])
                tasks = queue.pop(rules.frame_cap, rules.frame_rows)
                if not queue.heap:
                    del self._filled[queue.unit * len(KINDS) + queue.kind]
                yield from self._serve(queue.unit, queue.kind, tasks)
            else:
                if self._done:
                    self._wake(HOST)
                yield None

    def _serve(self, unit: int, kind: int, tasks: list[Firing]) -> Busy:
        rows = sum(instance.shape.rows[at] for instance, at in tasks)
        log = self._logs.get(unit) if kind == BACKWARD else None
        chunk = log.reserve(rows) if log is not None else None
        if chunk is not None and chunk.due:
            for instance, _ in tasks:
                instance.outstanding += 1
                chunk.waiting.append(instance)
        computing = self.costs.frame[unit, kind].of(rows)
        delivering = self.costs.delivery[unit, kind].of(rows)
        tally = self.tally
        tally.frames += 1
        tally.rows += rows
        tally.computing += computing
        tally.delivering += delivering
        yield computing + delivering
        again = self._commit(kind, tasks)
        if log is not None and chunk is not None:
            chunk.writers -= 1
            yield from self._reduce(unit, log)
        if again:
            yield from self._serve(unit, BACKWARD, again)

    def _reduce(self, unit: int, log: Log) -> Busy:
        while (chunk := log.claim()) is not None:
            spent = chunk.rows * self.costs.reduce[unit] + (self.costs.update[unit] if chunk.due else 0.0)
            self.tally.serial[unit] = self.tally.serial.get(unit, 0.0) + spent
            yield spent
            log.reducing = False
            for instance in chunk.waiting:
                self._settle(instance, 1)

    # --- messages -------------------------------------------------------------------------------------

    def _commit(self, kind: int, tasks: list[Firing]) -> list[Firing]:
        """Send what a frame has made -> the firings that go backward at once."""
        ready: list[Firing] = []
        again: list[Firing] = []
        if kind == BACKWARD:
            for instance, at in tasks:
                for origin in instance.shape.origins[at]:
                    instance.missing[origin] -= 1
                    if instance.missing[origin] == 0:
                        ready.append((instance, origin))
            self._push(ready, BACKWARD)
            for instance, at in tasks:
                self._settle(instance, instance.shape.returned[at])
            return again
        for instance, at in tasks:
            targets = instance.shape.targets[at]
            instance.missing[at] = len(targets)
            instance.outstanding += len(targets)
            self._deliver(instance, targets, ready)
            if not targets:
                again.append((instance, at))
        self._push(ready, FORWARD)
        return again

    def _deliver(self, instance: _Instance, targets: Sequence[int], ready: list[Firing]) -> None:
        for at in targets:
            instance.left[at] -= 1
            if instance.left[at] == 0:
                ready.append((instance, at))

    def _push(self, ready: list[Firing], kind: int) -> None:
        for instance, at in ready:
            self._arrivals += 1
            number = instance.shape.unit[at] * len(KINDS) + kind
            queue = self._filled[number] = self._queues[number]
            queue.push(instance.age, self._arrivals, (instance, at), instance.shape.rows[at])
        if ready:
            for worker in sorted(self._asleep - {HOST}):
                self._wake(worker)

    def _settle(self, instance: _Instance, messages: int) -> None:
        instance.outstanding -= messages
        if instance.outstanding:
            return
        self.tally.retired += 1
        self.tally.counted += instance.shape.size
        self._done.append(instance)
        if len(self._done) >= self._batch:
            self._wake(HOST)
