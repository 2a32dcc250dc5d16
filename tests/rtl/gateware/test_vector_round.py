"""Rounding by a shift that is known late, against the model's."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.sim import Simulator

from amphw.rtl.gateware.vector.round import LATENCY, Narrow
from amphw.rtl.numbers.arithmetic import narrow


@pytest.mark.parametrize("bits", [34, 40])
def test_as_the_model(bits: int) -> None:
    """Every shift, on ties and their neighbours, about the ends of 16 and of all bits, and on anything."""
    rng = np.random.default_rng(bits)
    high = (1 << (bits - 1)) - 1
    inputs = []
    for shift in range(32):
        for _ in range(12):
            tie = (int(rng.integers(-40000, 40000)) << shift) + (1 << shift >> 1)
            inputs += [(x, shift) for x in (tie - 1, tie, tie + 1)]
        for end in (32767 << shift, -32768 << shift, high, -high - 1, 0):
            inputs += [
                (end + off * (1 << shift >> 1) + more, shift) for off in (-1, 0, 1) for more in (-1, 0, 1)
            ]
        inputs += [(int(x) >> int(rng.integers(bits)), shift) for x in rng.integers(-high - 1, high + 1, 20)]
    inputs = [(x, shift) for x, shift in inputs if -high - 1 <= x <= high]

    unit = Narrow(bits)
    outputs = []

    async def bench(ctx) -> None:  # type: ignore[no-untyped-def]
        for x, shift in inputs + [(0, 0)] * LATENCY:
            ctx.set(unit.x, x)
            ctx.set(unit.shift, shift)
            await ctx.tick()
            outputs.append(ctx.get(unit.y))

    simulator = Simulator(unit)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    wanted = [int(narrow(np.int64(x), shift, 16, np.where)) for x, shift in inputs]
    assert outputs[LATENCY - 1 : -1] == wanted
