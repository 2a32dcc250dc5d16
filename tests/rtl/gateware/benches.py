"""What tests of streams in Amaranth's simulator share."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from amaranth.hdl import Module, Signal, Value
from amaranth.sim import Simulator

Chance = Callable[[], bool]


def always() -> bool:
    return True


def sometimes(probability: float, seed: int) -> Chance:
    generator = random.Random(seed)
    return lambda: generator.random() < probability


async def send(ctx: Any, stream: Any, payloads: Sequence[Any], willing: Chance = always) -> None:
    """Offer the payloads one after another, each until it is taken."""
    for payload in payloads:
        while not willing():
            await ctx.tick()
        ctx.set(stream.payload, payload)
        ctx.set(stream.valid, 1)
        await ctx.tick().until(stream.ready)
        ctx.set(stream.valid, 0)


async def receive(ctx: Any, stream: Any, count: int, into: list[Any], willing: Chance = always) -> None:
    """Take `count` payloads, as integers."""
    while len(into) < count:
        ready = willing()
        ctx.set(stream.ready, ready)
        _, _, valid, payload = await ctx.tick().sample(stream.valid, Value.cast(stream.payload))
        if ready and valid:
            into.append(int(payload))
    ctx.set(stream.ready, 0)


def simulate(component: Any, *benches: Any, limit: int = 20_000) -> int:
    """Run the benches, functions of the simulator's context, to their ends; return the cycles that passed."""
    top = Module()
    top.submodules += component
    top.d.sync += Signal().eq(1)  # a clock, for components that have none
    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    passed = ended = 0
    left = len(benches)

    async def clock(ctx: Any) -> None:
        nonlocal passed
        while left:
            await ctx.tick()
            passed += 1
            if passed > limit:
                raise AssertionError(f"{left} of {len(benches)} benches still run after {limit} cycles")

    def started(bench: Any) -> Any:
        async def run(ctx: Any) -> None:
            nonlocal left, ended
            await bench(ctx)
            left -= 1
            ended = passed

        return run

    simulator.add_testbench(clock)
    for bench in benches:
        simulator.add_testbench(started(bench))
    simulator.run()
    return ended
