"""What `amphw estimate --grow` says: throughput by the number of devices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from amphw.cli.output import results, table
from amphw.page.numbers import number, per_second, percent, size

if TYPE_CHECKING:
    from amphw.estimate.outcome import Growth, Limit, Outcome

DOUBLING = 2
"""Characters of a bar that twice the throughput is longer by."""


def show_growth(of: Outcome, found: Growth) -> None:
    say = results()
    say.print(f"{of.model}: {found.keys} instances in flight in each pipeline\n")
    _answer(say, found)
    say.print("")
    numbers = ("devices", "pipelines", "calculated", "played", "a device")
    rows = table(*numbers, "doublings", "what limits", right=numbers)
    first = next(step for step in found.steps if step.throughput)
    least = min(step.throughput for step in found.steps if step.throughput)
    for step in found.steps:
        rows.add_row(
            str(step.devices),
            str(step.replicas),
            per_second(step.calculated),
            per_second(step.played),
            percent(step.throughput / step.devices * first.devices / first.throughput),
            _bar(step.throughput, least),
            _limit(step.limit),
        )
    say.print(rows)
    say.print("")
    for name, each in of.origin.items():
        if name not in ("devices", "replicas", "keys"):
            say.print(f"{name}: {each.origin}: {each.how}")
    if found.source_bytes:
        say.print(f"One host sends all data: {size(found.source_bytes)} an instance.")
    say.print("Averaging replicas is not counted.")


def _answer(say: Any, found: Growth) -> None:
    """Where it stops, and what no number of devices exceeds."""
    if found.stops is None:
        say.print(f"It does not stop up to {found.steps[-1].devices:,} devices.")
    else:
        assert found.why is not None
        devices = "1 device" if found.stops == 1 else f"{found.stops:,} devices"
        gain = percent(found.gain)
        say.print(
            f"It stops at {devices}, beyond which a doubling gains less than {gain}: {found.why.words}."
        )
    if found.ceiling is not None and found.ceiling_limit is not None:
        say.print(f"No number of devices exceeds {number(found.ceiling)}/s: {found.ceiling_limit.words}.")


def _limit(of: Limit) -> str:
    if of.of == "link":
        return f"{of.name}: {' -> '.join(of.nodes)}"
    return ": ".join((of.name or "no room", *of.nodes[:1]))


def _bar(value: float, least: float) -> str:
    """One character at the least throughput."""
    return "█" * (1 + round(DOUBLING * math.log2(value / least))) if value else ""
