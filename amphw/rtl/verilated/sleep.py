"""Parts of a simulated device that sleep: while nothing in them would change, their clocks stand still.

A part is given a clock domain of its own. Where what it sees from outside gives it nothing to do, it comes
to rest within a few cycles: its pipelines run empty, its state machine waits. From then on a tick changes
nothing that anybody looks at, so that it may be left out, and the simulation need not evaluate the part. In
the cycle in which it is told something it ticks again: what it does, and when, is the same as ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Module, Signal


def ticks(m: Module, quiet: Mapping[str, tuple[Any, int]]) -> dict[str, Signal]:
    """By domain, whether it ticks in a cycle.

    quiet: of each, that it has nothing to do and is told nothing; and for how many cycles that must have been
    so for its pipelines to have run empty, one or more.
    """
    found = {}
    for name, (condition, cycles) in quiet.items():
        rested, tick = Signal(range(cycles + 1), name=f"rested_{name}"), Signal(name=f"tick_{name}")
        m.d.comb += tick.eq(~condition | (rested != cycles))
        with m.If(~condition):
            m.d.sync += rested.eq(0)
        with m.Elif(rested != cycles):
            m.d.sync += rested.eq(rested + 1)
        found[name] = tick
    return found
