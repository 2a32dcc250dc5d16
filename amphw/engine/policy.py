"""Which queue a worker serves next: small objects that fill in a table, which the data planes read.

Scheduling is first-order, for throughput (serving the largest queue first starves frames) and for learning
(a firing served early waits long for its gradient, and goes stale). The default waits for `min_rows`, takes
backward work first (it frees keys), then the oldest instance's (it finishes soonest), then what is furthest
downstream; and what is fullest where nothing has `min_rows`. Inference is served by age like forward work.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from amphw.engine.lowering.lower import Lowered
from amphw.engine.numbering import FrameKind, Order
from amphw.ir.errors import AmphwError

BACKWARD, FORWARD, INFER = map(int, FrameKind)
KINDS = tuple(kind.name.lower() for kind in FrameKind)
ORDERS = tuple(order.name.lower() for order in Order)


def report_batch(keys: int) -> int:
    """Instances that retire before the host is woken, unless the workers run dry.

    A third of the keys, so that two thirds are in flight while it submits, and at most 32, by when waking
    costs next to nothing.
    """
    return max(1, min(keys // 3, 32))


@dataclass
class PolicyTable:
    """What workers go by; it may be edited while they run.

    priority[unit][kind]: lower comes first. min_rows[unit][kind]: with fewer rows a queue waits until no
    other has its own. order: what decides among equal priorities: the "age" of the oldest instance in the
    queue, the "arrival" of its next firing, or the most "rows"; then what is further downstream.
    """

    priority: list[list[int]]
    min_rows: list[list[int]]
    order: str = "age"


class Policy(Protocol):
    @property
    def by_age(self) -> bool:
        """Whether the oldest instance's firings come first within a queue; else those that arrived first."""
        ...

    def table(self, lowered: Lowered, min_rows: int) -> PolicyTable: ...


@dataclass(frozen=True)
class Ranked:
    """Priorities by direction (backward, forward, infer), and an order among equals."""

    kinds: tuple[int, int, int]
    order: str
    by_age: bool = True
    waits: bool = False  # whether min_rows counts

    def table(self, lowered: Lowered, min_rows: int) -> PolicyTable:
        least = min_rows if self.waits else 1
        return PolicyTable(
            [list(self.kinds) for _ in lowered.units], [[least] * 3 for _ in lowered.units], self.order
        )


POLICIES: dict[str, Policy] = {
    "default": Ranked((0, 1, 1), "age", waits=True),
    "fifo": Ranked((0, 0, 0), "arrival", by_age=False),
    "backward-first": Ranked((0, 1, 2), "arrival"),
    "largest-queue": Ranked((0, 0, 0), "rows"),
}


def check_settings(settings: Mapping[str, Any], *counts: str) -> None:
    """Raise AmphwError for a policy that there is none of, and for one of these settings below 1."""
    for name in counts:
        if int(settings.get(name, 1)) < 1:
            raise AmphwError(f"device.{name} = {settings[name]}, allowed is 1 or more")
    policy = settings.get("policy", "default")
    if policy not in POLICIES:
        raise AmphwError(f"device.policy = '{policy}', allowed is {', '.join(POLICIES)}")


@dataclass
class Queue:
    """Firings of one unit and direction that are ready; `rows` is their payload rows in all.

    Firings of the instance that was pumped first come first, whatever the order in which they arrived:
    instances then finish one after another instead of all moving in step, so gradients are applied sooner
    after the forward pass that they belong to (less staleness for the same number of active keys).
    """

    unit: int
    kind: int
    depth: int
    by_age: bool = True
    heap: list[tuple[int, int, int, Any]] = field(default_factory=list)  # (age or 0, arrival, rows, task)
    rows: int = 0

    @property
    def oldest(self) -> int:
        """Arrival number of the firing that is next."""
        return self.heap[0][1]

    def push(self, age: int, arrival: int, task: Any, rows: int) -> None:
        heapq.heappush(self.heap, (age if self.by_age else 0, arrival, rows, task))
        self.rows += rows

    def pop(self, most: int, enough: int) -> list[Any]:
        """Up to `most` firings, and none after they have `enough` rows together."""
        tasks: list[Any] = []
        taken = 0
        while self.heap and len(tasks) < most and taken < enough:
            _, _, rows, task = heapq.heappop(self.heap)
            tasks.append(task)
            taken += rows
        self.rows -= taken
        return tasks


def choose(table: PolicyTable, queues: Sequence[Queue]) -> Queue:
    """The queue to serve, of those that are not empty."""
    full = [q for q in queues if q.rows >= table.min_rows[q.unit][q.kind]]
    if not full:
        return max(queues, key=lambda q: q.rows)

    def rank(q: Queue) -> tuple[int, int, int]:
        among = {"age": q.heap[0][0], "arrival": q.oldest, "rows": -q.rows}[table.order]
        return table.priority[q.unit][q.kind], among, -q.depth

    return min(full, key=rank)


def placement(lowered: Lowered, kind: str, workers: int, seed: int) -> list[set[int]] | None:
    """Units that each worker may serve; None where all share everything.

    "pinned" is the papers' mode: the h-th unit with parameters to worker h mod W, the others at random.
    """
    if kind == "shared":
        return None
    if kind != "pinned":
        raise AmphwError(f"device.placement = '{kind}', allowed is shared, pinned")
    rng = random.Random(seed)
    out: list[set[int]] = [set() for _ in range(workers)]
    heavy = [u.index for u in lowered.units if u.owns]
    for h, unit in enumerate(heavy):
        out[h % workers].add(unit)
    spare = list(range(min(len(heavy), workers), workers)) or list(range(workers))
    for u in lowered.units:
        if not u.owns:
            out[rng.choice(spare)].add(u.index)
    return out
