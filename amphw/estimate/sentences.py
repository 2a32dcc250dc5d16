"""What an estimate says, in sentences."""

from __future__ import annotations

from collections.abc import Mapping

from amphw.estimate.accuracy import summary
from amphw.estimate.network.busy import Load, in_words
from amphw.estimate.outcome import NodeOutcome, Outcome
from amphw.estimate.play.events import Played
from amphw.page.numbers import number, percent

NOTABLE = 0.02
"""More throughput, as a share, that is worth naming."""


def what_limits(of: Outcome) -> str:
    """The bottleneck and how long it is busy."""
    load = of.bottleneck
    return in_words(load, of.keys, _named(of, load) if load.of == "device" else "")


def what_to_change(of: Outcome) -> str:
    """What the bottleneck itself suggests, where nothing was compared."""
    return TO_CHANGE[of.bottleneck.of] + "; --compare says what each of several changes gives."


TO_CHANGE = {
    "device": "Faster devices, more of them where nodes share one (--devices), or replicas (--replicas)",
    "controller": "A faster clock (--clock), or more devices or replicas, which have their own controllers",
    "link": "Links of more bandwidth (--link), or fewer devices (--devices), between which less crosses",
    "keys": "More instances in flight (--keys), which fill the waits of this one, or a smaller --latency",
}
"""By what a load is of."""


def idle_nodes(of: Outcome) -> str:
    """Those with parameters that nothing reached; empty where there are none."""
    names = [node.name for node in of.per_node if node.memory.value and not node.fires]
    if not names:
        return ""
    return f"Never fired on the {of.instances} instances that are counted: {', '.join(names)}."


def idle_links(of: Outcome) -> str:
    """How many are left out where links are shown; empty where none is."""
    count = len(of.links) - len(of.crossed)
    if not count:
        return ""
    return (
        f"Left out: {count} link{'s' * (count > 1)} that nothing crosses on the instances that are counted."
    )


def lateness(played: Played, node: NodeOutcome) -> str:
    """Updates between a firing and its gradient, on average, or why there are none."""
    if node.name in played.staleness:
        return number(played.staleness[node.name])
    if not node.memory.value:
        return "no parameters"
    return "no gradient" if node.fires else "never fired"


def how_late(staleness: Mapping[str, float]) -> str:
    """staleness: by node; see `Played`."""
    late = ", ".join(f"{node} {number(value)}" for node, value in staleness.items())
    return f"Updates between a firing and its gradient, on average: {late or 'none'}."


def what_it_costs(of: Outcome) -> str:
    """What the bottleneck allows, what the next would, and how idle the devices are."""
    next_one = next((x for x in of.loads if x.of != of.bottleneck.of or x.share < 1 - NOTABLE), None)
    said = f"No more than {number(of.throughput)} instances a second pass."
    if next_one is not None and next_one.seconds > 0:
        said += (
            f" Without it there would be {number(1 / next_one.seconds)}, {factor(1 / next_one.share)} as "
            f"many: then {_named(of, next_one)} would limit."
        )
    working = sum(device.share for device in of.devices) / len(of.devices)
    return f"{said} Devices compute for {percent(working)} of the time, on average."


def what_would_buy_more(of: Outcome) -> list[str]:
    """The compared changes and placements that give more when they are played through, the best first."""
    if not of.sensitivity:
        return []
    base = of.sensitivity[0].played or of.throughput
    gains = [(each.played, each.what) for each in of.sensitivity if each.played]
    gains += [(each.played, f"placement: {each.name}") for each in of.placements if each.played]
    return [
        f"{name}: {factor(rate / base)} the throughput, {number(rate)}/s"
        for rate, name in sorted(gains, reverse=True)
        if rate > base * (1 + NOTABLE)
    ]


def factor(times: float) -> str:
    """1.0625 -> `1.06 times`."""
    return f"{times:.3g} times"


def _named(of: Outcome, load: Load) -> str:
    if load.of == "device":
        nodes = next(d.nodes for d in of.devices if load.name == f"device {d.number}")
        return f"{load.name} ({', '.join(nodes)})"
    if load.of == "controller":
        return f"the {load.name}"
    return f"the link {load.name}" if load.of == "link" else f"the number of {load.name}"


def accuracy_line(of: Outcome) -> str:
    """How right such estimates have been; empty where nothing was measured."""
    found = summary(of.accuracy, of.model)
    return f"Errors so far: {found}." if found else ""
