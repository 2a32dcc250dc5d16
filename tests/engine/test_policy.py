"""Queues and the policies that choose among them; placement."""

from __future__ import annotations

import pytest

from amphw.engine.lowering.lower import lower
from amphw.engine.policy import BACKWARD, FORWARD, POLICIES, Queue, choose, placement, report_batch
from amphw.ir.errors import AmphwError
from tests.cpu_runtime.graphs import mlp


def queue(unit: int, kind: int = FORWARD, *, depth: int = 0, rows: int = 1, arrival: int = 1) -> Queue:
    q = Queue(unit, kind, depth)
    q.push(0, arrival, unit, rows)
    return q


def chosen(policy: str, *queues: Queue, min_rows: int = 1) -> int:
    table = POLICIES[policy].table(lower(mlp(layers=3)), min_rows)
    return choose(table, queues).unit


def test_firings_come_oldest_instance_first() -> None:
    q = Queue(0, FORWARD, 0)
    for age, arrival, name in ((2, 1, "c"), (1, 5, "b"), (1, 3, "a")):
        q.push(age, arrival, name, 2)
    assert q.rows == 6 and q.oldest == 3
    assert q.pop(2, 100) == ["a", "b"] and q.rows == 2
    assert q.pop(2, 100) == ["c"] and q.rows == 0 and not q.heap


def test_without_ages_firings_come_in_the_order_of_arrival() -> None:
    q = Queue(0, FORWARD, 0, by_age=False)
    for age, arrival, name in ((2, 1, "a"), (1, 2, "b")):
        q.push(age, arrival, name, 1)
    assert q.pop(5, 100) == ["a", "b"]


def test_a_frame_ends_with_the_firing_that_fills_it() -> None:
    q = Queue(0, FORWARD, 0)
    for k in range(4):
        q.push(0, k, k, 3)
    assert q.pop(10, 5) == [0, 1] and q.rows == 6
    assert q.pop(10, 1) == [2]  # one firing at least, however many rows it has


def test_default_takes_backward_then_downstream_work() -> None:
    assert chosen("default", queue(0, depth=9), queue(1, BACKWARD)) == 1
    assert chosen("default", queue(0, depth=1), queue(1, depth=2, rows=1), queue(2, depth=0, rows=50)) == 1


def test_default_waits_for_min_rows_while_there_is_other_work() -> None:
    assert chosen("default", queue(0, BACKWARD, rows=3), queue(1, rows=8), min_rows=8) == 1
    assert chosen("default", queue(0, BACKWARD, rows=3), queue(1, rows=7), min_rows=8) == 1  # the fullest


def test_the_other_policies() -> None:
    queues = (
        queue(0, FORWARD, rows=2, arrival=3),
        queue(1, BACKWARD, rows=1, arrival=9),
        queue(2, FORWARD, rows=7, arrival=5),
        queue(3, BACKWARD, rows=1, arrival=8),
    )
    assert chosen("fifo", *queues) == 0
    assert chosen("backward-first", *queues) == 3
    assert chosen("largest-queue", *queues) == 2


def test_pinned_units_have_one_worker_each_and_heavy_ones_alternate() -> None:
    lowered = lower(mlp(layers=3))
    pinned = placement(lowered, "pinned", 2, seed=1)
    assert pinned is not None
    assert sorted(u for units in pinned for u in units) == [u.index for u in lowered.units]
    heavy = [u.index for u in lowered.units if u.owns]
    assert [next(w for w in (0, 1) if u in pinned[w]) for u in heavy] == [0, 1, 0, 1]
    assert placement(lowered, "pinned", 2, seed=1) == pinned


def test_light_units_go_to_workers_without_a_heavy_one() -> None:
    lowered = lower(mlp(layers=1))
    pinned = placement(lowered, "pinned", 4, seed=0)
    assert pinned is not None
    heavy = {u.index for u in lowered.units if u.owns}
    assert pinned[0] | pinned[1] == heavy and not (pinned[2] | pinned[3]) & heavy


def test_shared_is_no_placement_and_anything_else_is_refused() -> None:
    lowered = lower(mlp())
    assert placement(lowered, "shared", 2, 0) is None
    with pytest.raises(AmphwError) as caught:
        placement(lowered, "spread", 2, 0)
    assert str(caught.value) == "device.placement = 'spread', allowed is shared, pinned"


def test_the_host_is_woken_for_a_third_of_the_keys() -> None:
    assert [report_batch(keys) for keys in (1, 2, 3, 30, 96, 1000)] == [1, 1, 1, 10, 32, 32]
