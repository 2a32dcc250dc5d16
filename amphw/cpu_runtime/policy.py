"""Which queue a worker serves next: small objects that choose among the non-empty queues.

Scheduling is first-order for throughput: serving the largest queue first starves frames. The default waits for
`min_rows`, takes backward and downstream work first (it frees keys), and only then what is fullest.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from amphw.cpu_runtime.lower import Lowered
from amphw.ir.errors import AmphwError

BACKWARD, FORWARD, INFER = 0, 1, 2
KINDS = ("backward", "forward", "infer")


@dataclass
class Queue:
    """Firings of one unit and direction that are ready, oldest first; `rows` is their payload rows in all."""

    unit: int
    kind: int
    depth: int
    tasks: deque[Any] = field(default_factory=deque)
    rows: int = 0
    oldest: int = 0


def default(queues: Sequence[Queue], min_rows: int) -> Queue:
    full = [q for q in queues if q.rows >= min_rows]
    if full:
        return min(full, key=lambda q: (q.kind, -q.depth))
    return max(queues, key=lambda q: q.rows)


def fifo(queues: Sequence[Queue], min_rows: int) -> Queue:
    return min(queues, key=lambda q: q.oldest)


def backward_first(queues: Sequence[Queue], min_rows: int) -> Queue:
    return min(queues, key=lambda q: (q.kind, q.oldest))


def largest_queue(queues: Sequence[Queue], min_rows: int) -> Queue:
    return max(queues, key=lambda q: q.rows)


POLICIES = {
    "default": default,
    "fifo": fifo,
    "backward-first": backward_first,
    "largest-queue": largest_queue,
}


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
