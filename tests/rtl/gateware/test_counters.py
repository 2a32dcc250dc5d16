"""Each cycle of an edge is counted as what it was."""

from __future__ import annotations

import random
from typing import Any

from amphw.rtl.gateware.counters import Counters
from tests.rtl.gateware.benches import simulate


def test_every_cycle_is_counted_once() -> None:
    counters = Counters(capacity=9)
    generator = random.Random(0)
    cycles = [
        (generator.random() < 0.6, generator.random() < 0.5, generator.randrange(8)) for _ in range(300)
    ]

    async def bench(ctx: Any) -> None:
        for valid, ready, occupancy in cycles:
            ctx.set(counters.valid, valid)
            ctx.set(counters.ready, ready)
            ctx.set(counters.occupancy, occupancy)
            await ctx.tick()
        seen = ctx.get(counters.counts)
        assert seen.transfers == sum(valid and ready for valid, ready, _ in cycles)
        assert seen.starved == sum(ready and not valid for valid, ready, _ in cycles)
        assert seen.blocked == sum(valid and not ready for valid, ready, _ in cycles)
        assert seen.most == max(occupancy for _, _, occupancy in cycles)
        ctx.set(counters.clear, 1)
        await ctx.tick()
        seen = ctx.get(counters.counts)
        assert (seen.transfers, seen.starved, seen.blocked, seen.most) == (0, 0, 0, 0)

    simulate(counters, bench)


def test_a_full_counter_stays_full() -> None:
    counters = Counters(width=3)

    async def bench(ctx: Any) -> None:
        ctx.set(counters.ready, 1)
        for _ in range(20):
            await ctx.tick()
        assert ctx.get(counters.counts.starved) == 7

    simulate(counters, bench)
