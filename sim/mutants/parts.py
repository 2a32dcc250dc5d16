"""Parts of a device and links, whose benches' runs are replayed."""

from __future__ import annotations

from typing import Any

from amphw.rtl.mutation.replay import Recorded
from sim.setups import Setup, activity, ethernet, keeper, link, memory, sequencer, uart


def replayed(setup: Setup, share: int, seed: int = 1, **other: Any) -> Recorded:
    return Recorded(setup.name, setup.make, lambda: setup.record(seed), share=share, **other)


def parts() -> list[Recorded]:
    return [
        replayed(
            keeper(True, True, runs=1000, resets=60),
            70,
            guards={"unit": "top.updated", "counter": "top.answer_valid"},
        ),
        replayed(
            sequencer(firings=700, resets=100), 60, guards={"current": "top.finished", "rows": "top.finished"}
        ),
        replayed(link(messages=2500, cuts=30, payload=1 << 15), 130),
        replayed(memory(cycles=15_000), 20),
        replayed(activity(bits=9, rounds=400, cycles=40), 30),
        replayed(uart(spoilt=60), 60),
        replayed(ethernet(), 160, clocks=("clk", "rx_clk", "tx_clk")),
    ]
