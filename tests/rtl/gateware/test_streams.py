# amaranth: UnusedElaboratable=no
"""Streams keep their payloads and their order; latency, throughput and capacity are what is promised."""

from __future__ import annotations

from typing import Any

import pytest

from amphw.rtl.gateware.streams import GatewareError, Queue, SkidBuffer
from tests.rtl.gateware.benches import receive, send, simulate, sometimes


def through(component: Any, count: int, sender: float = 1, receiver: float = 1) -> tuple[list[int], int]:
    """What comes out for the payloads 0, 1, ..., and after how many cycles."""
    received: list[int] = []

    async def feed(ctx: Any) -> None:
        await send(ctx, component.i, range(count), sometimes(sender, seed=1))

    async def drain(ctx: Any) -> None:
        await receive(ctx, component.o, count, received, sometimes(receiver, seed=2))

    return received, simulate(component, feed, drain)


DELAYS = [
    (lambda: SkidBuffer(8), 1),
    (lambda: Queue(8, 4, "lut"), 1),
    (lambda: Queue(8, 4, "block"), 2),
    (lambda: Queue(8, 3, "block"), 2),
]


@pytest.mark.parametrize(("make", "delay"), DELAYS)
def test_full_throughput_after_the_delay(make: Any, delay: int) -> None:
    received, cycles = through(make(), 100)
    assert received == list(range(100))
    assert cycles == 100 + delay


@pytest.mark.parametrize(
    ("make", "delay"), [*DELAYS, (lambda: Queue(8, 1, "lut"), 0), (lambda: Queue(8, 1), 0)]
)
@pytest.mark.parametrize(("sender", "receiver"), [(0.5, 0.5), (0.9, 0.2), (0.2, 0.9)])
def test_order_under_back_pressure(make: Any, delay: int, sender: float, receiver: float) -> None:
    received, _ = through(make(), 200, sender, receiver)
    assert received == list(range(200))


@pytest.mark.parametrize("storage", ["lut", "block"])
@pytest.mark.parametrize("depth", [1, 3, 4])
def test_a_queue_holds_its_depth(storage: Any, depth: int) -> None:
    queue = Queue(8, depth, storage)
    levels = []

    async def fill(ctx: Any) -> None:
        ctx.set(queue.i.valid, 1)
        for _ in range(depth + 3):
            levels.append((ctx.get(queue.level), ctx.get(queue.i.ready)))
            await ctx.tick()

    simulate(queue, fill)
    assert levels == [(min(k, depth), k < depth) for k in range(depth + 3)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Queue(8, 0), "at least one payload, not 0"),
        (lambda: Queue(8, 2, "flash"), "'block' or 'lut', not 'flash'"),
    ],
)
def test_impossible_parameters_are_refused(make: Any, message: str) -> None:
    with pytest.raises(GatewareError, match=message):
        make()
