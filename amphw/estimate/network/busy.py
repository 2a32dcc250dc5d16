"""What is busy with an instance, for how long, and the throughput that follows.

Asynchronous training keeps everything at work at once, so the busiest limits: throughput is at most
1 / (the largest of the loads), where a load is in seconds an instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from amphw.page.numbers import seconds as shown

LEAST = 1e-12
"""Seconds an instance below which no load is told from nothing."""


@dataclass(frozen=True)
class Load:
    """seconds: an instance keeps it busy. of: "device", "controller", "link", "handing" or "keys". share: of
    the time that it is busy at the estimated throughput, 0 to 1."""

    name: str
    of: str
    seconds: float
    share: float = 0.0


def ranked(loads: Sequence[Load]) -> tuple[list[Load], float]:
    """The loads with their shares, the busiest first; and the throughput, in instances a second."""
    slowest = max(max(load.seconds for load in loads), LEAST)
    found = [replace(load, share=load.seconds / slowest) for load in loads]
    return sorted(found, key=lambda load: -load.seconds), 1 / slowest


def in_words(load: Load, keys: int | None, name: str = "") -> str:
    """What limits, if it is this load. keys: instances in flight. name: instead of the load's."""
    who, spent = name or load.name, shown(load.seconds)
    return {
        "device": f"{who} computes for {spent} an instance",
        "controller": f"the {who} fetches and delivers for {spent} an instance",
        "link": f"the link {who} is busy for {spent} an instance",
        "handing": f"the host takes {spent} to pump an instance and to hand frames over",
        "keys": f"an instance's longest chain of messages, over {keys} instances in flight",
    }[load.of]
