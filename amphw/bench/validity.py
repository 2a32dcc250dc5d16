"""What speaks against relying on figures, in words; a record is valid if nothing does."""

from __future__ import annotations

from amphw.bench.load import Usage

MAX_FOREIGN = 0.05
"""Share of the processors that others may use before figures no longer count."""

MIN_ROUNDS = 3


def load_reasons(usage: Usage) -> list[str]:
    """Of the load by other processes while anything was measured."""
    if usage.foreign is None:
        return ["the load by other processes cannot be told on this system"]
    if usage.foreign > MAX_FOREIGN:
        return [f"other processes used {usage.foreign:.0%} of the processors, allowed are {MAX_FOREIGN:.0%}"]
    return []


def round_reasons(rounds: int) -> list[str]:
    """Of the number of measurements that a median is taken of."""
    if rounds < MIN_ROUNDS:
        return [f"there were {rounds} rounds, at least {MIN_ROUNDS} make a median"]
    return []
