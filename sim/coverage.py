"""Which states of a component's state machines the benches have met: reported, and held to be all of them."""

from __future__ import annotations

from collections.abc import Mapping

from sim.runner import BenchResult

REPORTED: list[str] = []
"""A line for each component; pytest prints them when it ends."""


def assert_covered(
    component: str, *results: BenchResult, without: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Over all runs of a component's benches, every state must have been met -> what was tried, added up.

    without: states that cannot be met there, as `path: STATE`, and why. AssertionError for a state that was
    not met and is not listed, and for one that is listed but was met.
    """
    without = without or {}
    machines = results[0].seen.keys()
    states = {f"{m}: {s}" for m in machines for s in results[0].seen[m] | results[0].unseen[m]}
    met = {f"{m}: {s}" for r in results for m in machines for s in r.seen[m]}
    counts: dict[str, int] = {}
    for r in results:
        for what, number in r.counts.items():
            counts[what] = counts.get(what, 0) + number
    tried = ", ".join(f"{number:,} {what}" for what, number in counts.items())
    line = f"{component}: {sum(r.tests for r in results)} tests, {tried}"
    if machines:
        line += f"; {len(met)} of {len(states)} states of {', '.join(machines)}"
    REPORTED.append(line)
    REPORTED.extend(f"    not met, {state}: {why}" for state, why in without.items())
    missing, excused = states - met - without.keys(), met & without.keys()
    assert not missing, f"{component}: never met: {', '.join(sorted(missing))}"
    assert not excused, f"{component}: met, though listed as out of reach: {', '.join(sorted(excused))}"
    unknown = without.keys() - states
    assert not unknown, f"{component} has no states {', '.join(sorted(unknown))}"
    return counts
