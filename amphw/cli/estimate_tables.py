"""The tables of `amphw estimate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amphw.cli.output import NOISE, results, table
from amphw.page.numbers import bits, number, percent, seconds, size

if TYPE_CHECKING:
    from amphw.estimate.events import Played
    from amphw.estimate.outcome import Measured, Outcome
    from amphw.estimate.traffic import Spread


def show(of: Outcome) -> None:
    from amphw.estimate.words import accuracy_line

    say = results()
    heavy = sum(node.memory.value > 0 for node in of.per_node)
    say.print(
        f"{of.model}: {heavy} nodes with parameters on {len(of.devices)} devices, {of.keys} instances in "
        f"flight\n\nOf an instance, by node (Mflop: on average):"
    )
    say.print(_nodes(of))
    say.print("\nMemory of a node (of each replica), and messages that it takes:")
    say.print(_memory(of))
    say.print("\nOf an instance, by edge (bytes: of activations; weights: of the node that it leads to):")
    say.print(_edges(of))
    say.print("\nDevices:")
    say.print(_devices(of))
    if of.links:
        say.print("\nLinks that are used:")
        say.print(_links(of))
    if of.played is not None:
        _played(say, of, of.played)
    say.print("")
    _end(say, of)
    if of.played is not None:
        say.print(
            f"Played through: {number(of.played.throughput)} instances/s, "
            f"{percent(of.played.throughput / of.throughput)} of that."
        )
    if of.sensitivity:
        say.print("\nWhat doubling buys, instances/s:")
        say.print(_sensitivity(of))
        say.print("\nPlacements:")
        say.print(_placements(of))
    accuracy = accuracy_line(of)
    if accuracy:
        say.print(accuracy)


SHOWN = 16
"""Links, of those that are busiest when the network is played through."""


def _played(say: Any, of: Outcome, found: Played) -> None:
    say.print(
        f"\nPlayed through in time, {number(found.instances)} instances and {number(found.messages)} "
        f"messages in {seconds(found.seconds)}:"
    )
    numbers = ("busy", "queued, most", "held, most")
    rows = table("device", "nodes", *numbers, right=numbers)
    for each, busy, queued, held in zip(of.devices, found.device_busy, found.queued, found.held, strict=True):
        rows.add_row(str(each.number), ", ".join(each.nodes), percent(busy), number(queued), size(held))
    say.print(rows)
    names = sorted(found.link_busy, key=lambda name: -found.link_busy[name])
    if names:
        waits = ("busy", "a message waits")
        rows = table("link", *waits, right=waits)
        for name in names[:SHOWN]:
            rows.add_row(name, percent(found.link_busy[name]), seconds(found.link_waited[name]))
        say.print(rows)
    if len(names) > SHOWN:
        say.print(f"and {len(names) - SHOWN} links that are less busy")
    late = ", ".join(f"{node} {number(value)}" for node, value in found.staleness.items())
    say.print(f"An instance takes {seconds(found.latency)}.")
    say.print(f"Updates between a firing and its gradient, on average: {late or 'none'}.")


def _sensitivity(of: Outcome) -> Any:
    numbers = ("calculated", "played")
    rows = table("", *numbers, "then limits", right=numbers)
    for each in of.sensitivity:
        rows.add_row(each.what, number(each.throughput), number(each.played), each.bottleneck or each.why)
    return rows


def _placements(of: Outcome) -> Any:
    numbers = ("devices", "calculated", "played", "busiest link")
    rows = table("", *numbers, "limit", right=numbers)
    for each in of.placements:
        rates = (number(each.throughput), number(each.played), bits(each.busiest_bits_per_s))
        rows.add_row(each.name, str(each.devices), *rates, each.bottleneck or each.why)
    return rows


def _end(say: Any, of: Outcome) -> None:
    from amphw.estimate.words import what_limits

    for name, each in of.origin.items():
        say.print(f"{name}: {each.origin}: {each.how}")
    for note in of.notes:
        say.print(note)
    say.print(f"\nThroughput: {_rate(of)}")
    say.print(f"Bottleneck: {what_limits(of)}.")


def _rate(of: Outcome) -> str:
    each = of.counted_per_instance
    more = f", {number(of.throughput * each)} {of.counted}/s" if each != 1 else f" ({of.counted})"
    return f"{number(of.throughput)} instances/s{more}"


SPREAD = ("mean", "least", "median", "p95", "most")


def _spread(of: Spread | None) -> list[str]:
    return [""] * len(SPREAD) if of is None else [number(getattr(of, name)) for name in SPREAD]


def _nodes(of: Outcome) -> Any:
    numbers = ("firings", *SPREAD[1:], "Mflop forward", "backward", "update")
    rows = table("node", "device", *numbers, right=numbers)
    for node in of.per_node:
        flops = (node.forward.mean, node.backward.mean, node.update)
        rows.add_row(
            node.name, _devices_of(node), *_spread(node.firings), *(number(each / 1e6) for each in flops)
        )
    return rows


def _devices_of(node: Any) -> str:
    return ", ".join(map(str, node.devices))


def _memory(of: Outcome) -> Any:
    numbers = ("value", "gradient", "optimiser", "in flight", "messages", *SPREAD[1:], "messages/s")
    rows = table("node", *numbers, right=numbers)
    for node in of.per_node:
        sizes = (
            node.memory.value,
            node.memory.gradient,
            node.memory.optimiser,
            node.memory.in_flight,
        )
        rows.add_row(node.name, *map(size, sizes), *_spread(node.messages), number(node.messages_per_s))
    return rows


def _edges(of: Outcome) -> Any:
    numbers = ("messages", "a second", "bytes", "most", "weights", "b/s", "b/s back")
    rows = table("edge", *numbers, "link", right=numbers)
    for edge in of.per_edge:
        rows.add_row(
            f"{edge.source} -> {edge.target}",
            number(edge.messages.mean if edge.messages else None),
            number(edge.messages_per_s),
            size(edge.activation_bytes.mean),
            size(edge.activation_bytes.most),
            size(edge.weight_bytes),
            bits(edge.bits_per_s),
            bits(edge.gradient_bits_per_s),
            ", ".join(edge.links),
        )
    return rows


def _devices(of: Outcome) -> Any:
    numbers = ("an instance", "busy", "memory", "of")
    rows = table("device", "what", "nodes", *numbers, right=numbers)
    for each in of.devices:
        rows.add_row(
            str(each.number),
            each.what + (f", {each.resources['dsps']} DSPs" if each.resources else ""),
            ", ".join(each.nodes),
            seconds(each.busy),
            percent(each.share),
            size(each.memory),
            "" if each.room is None else size(each.room),
        )
    return rows


def _links(of: Outcome) -> Any:
    numbers = ("bytes an instance", "b/s", "busy")
    rows = table("link", *numbers, right=numbers)
    for each in sorted(of.links, key=lambda link: -link.bytes):
        share = "" if each.share is None else percent(each.share)
        rows.add_row(each.name, size(each.bytes), bits(each.bits_per_s), share)
    return rows


def show_case(of: Outcome) -> None:
    """A paper's calculation: its figures, as it prints them, and beside others."""
    say = results()
    case = of.case
    assert case is not None
    inputs = ", ".join(f"{name} {number(value)}" for name, value in case.inputs.items())
    say.print(f"{of.model}, the calculation of {case.source}:\n{inputs}\n")
    columns = {"the paper prints": case.printed, "its formula": case.figures}
    for name, other in of.beside.items():
        columns[name] = other.case.figures if other.case else _as_figures(other)
    rows = table("", *columns, right=tuple(columns))
    for name in case.figures:
        rows.add_row(name, *(number(values.get(name)) for values in columns.values()))
    say.print(rows)
    say.print("")
    _end(say, of)
    for name, other in of.beside.items():
        say.print(f"\nBeside it, {name}:")
        if other.case is None:
            say.print(_devices(other))
        _end(say, other)


def show_measured(of: Outcome, found: Measured) -> None:
    say = results()
    say.print(_devices(of))
    say.print("")
    _end(say, of)
    say.print(f"\nMeasured, {NOISE}:")
    say.print(
        f"training {number(found.train_per_s)} {of.counted}/s, validation {number(found.valid_per_s)}/s"
    )
    if found.reference is not None:
        say.print(
            f"the paper: {number(found.reference)} instances/s in training, on 16 cores at 1 TFLOPS "
            "(Distribute and Collect not extrapolated)"
        )
    say.print(
        f"{found.epochs} epochs of {found.train_size:,} and {found.valid_size:,} {of.counted}: "
        f"{seconds(found.time_to_target)}"
    )


def _as_figures(of: Outcome) -> dict[str, float]:
    """What can be compared with a case's figures. Bits: of the edge that carries most."""
    return {
        "samples_per_s": of.throughput,
        "bits_per_s_of_all_steps": max(edge.bits_per_s for edge in of.per_edge),
        "memory_bytes": max(node.memory.parameters for node in of.per_node),
        "devices": len(of.devices),
    }
