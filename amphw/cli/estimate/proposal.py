"""What `amphw estimate --target` and `--budget` say: the proposal, and what is cheaper and fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from amphw.cli.output import results, table
from amphw.page.numbers import bits, number, per_second, percent, size

if TYPE_CHECKING:
    from amphw.estimate.outcome import Configuration, Outcome, Proposal

LOOKED = 8
"""Configurations, of those that are fastest."""


def show_proposal(of: Outcome, found: Proposal) -> None:
    from amphw.estimate.sentences import how_late

    say = results()
    say.print(f"{of.model}: {_goal(found)}\n")
    _answer(say, of, found)
    say.print("")
    rows = {_name(found): found.configuration}
    rows |= {f"less {each.by}": each.configuration for each in found.cheaper}
    say.print(_configurations(rows))
    for each in found.cheaper:
        fails = each.configuration
        say.print(f"less {each.by} gives {number(fails.throughput)}/s: {fails.limit.words}")
    say.print("\nPlacement:")
    say.print(_placement(of))
    say.print(how_late(found.staleness))
    fastest = sorted(found.looked, key=lambda each: -each.throughput)
    say.print(f"\nThe fastest of {len(fastest)} played through, of {found.calculated} calculated:")
    say.print(_configurations({str(k + 1): each for k, each in enumerate(fastest[:LOOKED])}))


def _goal(found: Proposal) -> str:
    within = ", ".join(f"{key}={value}" for key, value in found.budget.items())
    within = f" within {within}" if within else ""
    if found.target is None:
        return f"the most{within}"
    return f"{number(found.target)} instances/s{within}"


def _name(found: Proposal) -> str:
    return "cheapest" if found.best is None else "near the most"


def _configurations(named: dict[str, Configuration]) -> Any:
    numbers = ("devices", "of", "replicas", "keys", "link", "links", "calculated", "played")
    rows = table("", *numbers, right=numbers)
    for name, each in named.items():
        rows.add_row(
            name,
            str(each.devices),
            each.device,
            str(each.replicas),
            str(each.keys),
            "no limit" if each.bandwidth is None else bits(each.bandwidth),
            str(each.links),
            per_second(each.calculated),
            per_second(each.played),
        )
    return rows


def _placement(of: Outcome) -> Any:
    """Devices with the same nodes in one row."""
    by_nodes: dict[tuple[str, ...], list[int]] = {}
    for device in of.devices:
        by_nodes.setdefault(tuple(device.nodes), []).append(device.number)
    rows = table("devices", "nodes", "busy, most", "memory, most", right=("busy, most", "memory, most"))
    busy = of.played.device_busy if of.played else [device.share for device in of.devices]
    for nodes, numbers in by_nodes.items():
        needed = max(of.devices[d].memory for d in numbers)
        share = percent(max(busy[d] for d in numbers))
        rows.add_row(_ranges(numbers), ", ".join(nodes) or "nothing", share, size(needed))
    return rows


def _ranges(numbers: Sequence[int]) -> str:
    """0, 1, 2, 5 -> `0-2, 5`."""
    found: list[list[int]] = []
    for n in numbers:
        if found and found[-1][1] == n - 1:
            found[-1][1] = n
        else:
            found.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def _answer(say: Any, of: Outcome, found: Proposal) -> None:
    chosen = found.configuration
    if not found.reached and found.best is not None:
        say.print(
            f"Not reached: the most is {number(found.best.throughput)} instances/s; {found.best.limit.words}."
        )
    elif found.best is not None:
        say.print(f"The most: {number(found.best.throughput)} instances/s; {found.best.limit.words}.")
    each = of.counted_per_instance
    more = f", {number(chosen.throughput * each)} {of.counted}/s" if each != 1 else f" ({of.counted})"
    what = "Proposed" if found.best is None else "Proposed, the cheapest within 1 % of it"
    say.print(
        f"{what}: devices: {chosen.devices} x {_each(chosen)}; "
        f"replicas: {chosen.replicas}; instances in flight: {chosen.keys}.\n"
        f"{number(chosen.throughput)} instances/s{more}; calculated {number(chosen.calculated)}, "
        f"played through {number(chosen.played)}."
    )
    say.print(
        "What costs: the rate of all devices, then the bandwidth of all links, then instances in flight."
    )
    if chosen.replicas > 1:
        say.print("Averaging replicas is not counted.")


def _each(of: Configuration) -> str:
    """A device; and all of them, or what it takes of a chip."""
    from amphw.ir.units import written

    if of.dsps is not None:
        return f"{of.device} ({of.dsps} DSPs each)"
    return f"{of.device} = {written(of.total_rate, 'FLOPS')}"
