"""The page of an estimate: what limits first, then what it is made of, then how far to trust it."""

from __future__ import annotations

from collections.abc import Iterator

from amphw.estimate.outcome import Outcome
from amphw.estimate.page import sections, svg
from amphw.estimate.page.gantt import ROWS, gantt, shown
from amphw.estimate.page.map import left_out, network_map
from amphw.estimate.page.roofline import link_rates, roofline
from amphw.estimate.sentences import (
    accuracy_line,
    idle_links,
    idle_nodes,
    what_it_costs,
    what_limits,
    what_to_change,
    what_would_buy_more,
)
from amphw.ir.errors import AmphwError
from amphw.page.html import document, note, text, tiles
from amphw.page.numbers import bits, number, percent, seconds, size

STYLE = (
    sections.STYLE
    + """\
h3 { font-size: 1rem; margin: 24px 0 8px; }
.lead { max-width: 75ch; font-size: 1.08rem; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 8px 0; font-size: .9rem; }
.key { display: inline-block; width: 12px; height: 12px; margin-right: 6px; background: var(--c); }
.roof { stroke: var(--ink); stroke-width: 2; }
.leader { stroke: var(--soft); }
.row { fill: var(--panel); }
.box { fill: var(--panel); stroke: var(--wire); }
.box.hot { stroke: var(--hot); stroke-width: 2; }
.trough { fill: var(--line); }
.filled { fill: var(--c0); }
.wire { fill: none; stroke: var(--wire); }
.wire.hot { stroke: var(--hot); }
.wire.head { fill: var(--wire); stroke: none; }
.wire.hot.head { fill: var(--hot); }
.wide, .narrow { padding: 4px 0; }
"""
)


def estimate_page(of: Outcome) -> str:
    """The whole page. Raises AmphwError for an estimate that was not played through with a timeline."""
    if of.played is None or of.played.timeline is None:
        raise AmphwError("a report needs an estimate that was played through, with a timeline (--html)")
    title = f"Estimate: {of.model} on {len(of.devices)} device{'s' * (len(of.devices) > 1)}"
    return document(title, [f"<h1>{text(title)}</h1>", *_body(of)], svg.style(len(of.per_node)) + STYLE)


def _body(of: Outcome) -> Iterator[str]:
    yield from _beginning(of)
    yield "<h2>Network</h2>"
    yield from _network(of)
    yield "<h2>Roofline</h2>"
    yield from _roofline(of)
    yield "<h2>What devices do when</h2>"
    yield from _timeline(of)
    yield "<h2>Calculated and played through</h2>"
    yield note(
        "Calculated is what the busiest device or link allows, with the time of an instance that follows for "
        "so many in flight. Played through, messages queue and devices wait for one another. Updates behind: "
        "those between a firing and its gradient, on average."
    )
    yield sections.rates(of)
    yield svg.legend([("busy, calculated", svg.colour(0)), ("busy, played", svg.colour(1))])
    yield sections.devices(of)
    yield sections.nodes(of)
    yield "<h2>Memory of each device</h2>"
    yield sections.memory(of)
    if of.sensitivity:
        yield "<h2>What doubling one thing buys</h2>"
        yield note(
            "Instances a second. “Then limits” is the largest load of the changed network. Replicas have "
            "equal shares of the instances where it is calculated, and take the next when they are ready "
            "where it is played through."
        )
        yield sections.sensitivity(of)
    if of.placements:
        yield "<h2>Other placements</h2>"
        yield note(
            "Instances a second. The local search moves single nodes, and exchanges two, as long as "
            "throughput rises, or as much passes with fewer bytes that cross. A device for each node: for "
            "each replica of one with parameters."
        )
        yield sections.placements(of)
    yield "<h2>How right such estimates have been</h2>"
    if accuracy_line(of):
        yield note(accuracy_line(of))
    yield sections.accuracy(of)
    yield "<h2>What is assumed</h2>"
    yield sections.origins(of)
    for each in of.notes:
        yield note(each)


def _beginning(of: Outcome) -> Iterator[str]:
    played = of.played
    assert played is not None
    limits = text(what_limits(of))
    yield f'<p class="lead"><strong>What limits: {limits}.</strong> {text(what_it_costs(of))}</p>'
    more = what_would_buy_more(of)
    if more:
        items = "".join(f"<li>{text(each)}</li>" for each in more)
        yield f'<p class="lead">What would give more, when it is played through:</p><ul>{items}</ul>'
    elif of.sensitivity:
        yield note("Nothing that is compared below gives notably more throughput.")
    else:
        yield note(what_to_change(of))
    if idle_nodes(of):
        yield note(idle_nodes(of))
    part = played.throughput / of.throughput
    each = of.counted_per_instance
    unit = f"instances; {number(of.throughput * each)} {of.counted}/s" if each != 1 else of.counted
    largest = max(of.crossed, key=lambda link: link.bytes, default=None)
    busiest = max(of.devices, key=lambda device: device.memory)
    yield tiles(
        [
            ("throughput, calculated", f"{number(of.throughput)}/s", unit),
            (
                "played through",
                f"{number(played.throughput)}/s",
                f"{percent(part)} of that",
            ),
            ("an instance takes", seconds(played.latency), f"{of.keys} in flight"),
            (
                "largest link",
                bits(largest.bits_per_s) if largest else "none",
                largest.name if largest else "nothing crosses",
            ),
            ("largest memory", size(busiest.memory), f"device {busiest.number}"),
        ]
    )


def _network(of: Outcome) -> Iterator[str]:
    shares = any(link.share is not None for link in of.crossed)
    yield note(
        "Devices with their nodes and the share of the time that they compute; links with what crosses them "
        "at the calculated throughput"
        + (", and its share of their bandwidth" if shares else " (their bandwidth has no limit)")
        + ". Where one figure stands, both directions carry as much. What limits is marked."
    )
    yield svg.for_both(lambda width: network_map(of, width))
    devices, wires = left_out(of)
    if devices or wires:
        yield note(
            f"Left out: {devices} devices and {wires} pairs of devices that exchange less; the table has all."
        )
    if of.crossed:
        yield sections.links(of)
    if idle_links(of):
        yield note(idle_links(of))
    yield "<h3>Edges of the model</h3>"
    yield note(
        "Of an instance: messages and bytes of activations; weights are those of the node that an edge leads "
        "to. An edge that stays is within one device, or comes from a source, whose data are there."
    )
    yield sections.edges(of)


def _roofline(of: Outcome) -> Iterator[str]:
    yield note(
        "Each point is a node (one replica): the operations that it does a second at the calculated "
        "throughput, over its operations for each byte that crosses a link. Its bytes are those of its "
        "messages, activations and gradients, on the link that carries most of them; parameters do not move. "
        "The level line is what a device does, the slope what a link carries: no point can lie above."
        + ("" if link_rates(of) else " Links have no limit here, so there is no slope.")
    )
    yield svg.for_both(lambda width: roofline(of, width))
    yield sections.intensities(of)


def _timeline(of: Outcome) -> Iterator[str]:
    assert of.played is not None and of.played.timeline is not None
    timeline = of.played.timeline
    numbers = {node.name: k for k, node in enumerate(of.per_node)}
    when = (
        f"from {seconds(timeline.begin)} on, in the steady state" if timeline.steady else "from the beginning"
    )
    yield note(
        f"{seconds(timeline.seconds)} of simulated time, {when}. Forward passes are in the upper half of a "
        "row, backward passes in the lower; gaps are waits, and updates of parameters. Short "
        "firings are drawn wider than they last."
    )
    busy = {each.node for each in timeline.slices}
    yield svg.legend([(name, svg.colour(k)) for name, k in numbers.items() if name in busy])
    yield svg.for_both(lambda width: gantt(timeline, of.devices, numbers, width))
    if len(shown(of.devices)) < len(of.devices):
        yield note(f"The {ROWS} busiest of {len(of.devices)} devices.")
