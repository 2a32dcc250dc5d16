# amaranth: UnusedElaboratable=no
"""Packets of words: nothing is lost or changed, a packet ends where no word follows, and none is too long."""

from __future__ import annotations

import random
from typing import Any

import pytest

from amphw.rtl.gateware.link.axi_stream import Packets
from tests.rtl.gateware.benches import simulate

QUIET, LONGEST = 5, 8


@pytest.mark.parametrize("seed", range(6))
def test_packets(seed: int) -> None:
    """At any pace of both sides. An offer stays as it is until it is taken."""
    rng = random.Random(seed)
    unit = Packets(QUIET, LONGEST)
    gaps = [rng.choice((0, 0, 0, 1, 3, QUIET - 1, QUIET + 8)) for _ in range(120)]
    took: list[tuple[int, int]] = []
    ready = (1.0, 0.5, 0.2, 0.02)[seed % 4]  # the last stalls for longer than a packet waits

    async def feed(ctx: Any) -> None:
        for number, gap in enumerate(gaps):
            for _ in range(gap):
                await ctx.tick()
            ctx.set(unit.i.payload, number)
            ctx.set(unit.i.valid, 1)
            while True:
                _, _, taken = await ctx.tick().sample(unit.i.ready)
                if taken:
                    break
            ctx.set(unit.i.valid, 0)

    async def drain(ctx: Any) -> None:
        offered: tuple[int, int] | None = None
        while len(took) < len(gaps):
            take = rng.random() < ready
            ctx.set(unit.o.ready, take)
            _, _, valid, payload, last = await ctx.tick().sample(unit.o.valid, unit.o.payload, unit.last)
            now = (int(payload), int(last)) if valid else None
            assert offered is None or now == offered
            offered = None if take else now
            if take and now is not None:
                took.append(now)

    simulate(unit, feed, drain)
    assert [word for word, _ in took] == list(range(len(gaps)))
    length = 0
    for number, (_, last) in enumerate(took):
        length += 1
        assert length <= LONGEST
        if length == LONGEST or number == len(gaps) - 1:
            assert last
        elif gaps[number + 1] > QUIET + 2 and ready == 1.0:
            assert last, f"word {number} waits for the next packet's"
        elif gaps[number + 1] == 0:
            assert not last, f"a packet ends with word {number}, and the next follows at once"
        length = 0 if last else length
