"""The tables of `amphw estimate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amphw.cli.output import NOISE, results, table
from amphw.page.numbers import bits, number, percent, seconds, size

if TYPE_CHECKING:
    from amphw.estimate.count.traffic import Spread
    from amphw.estimate.outcome import Outcome, Slept


SHOWN = 16
"""Devices, and links, that are shown without --full: the busiest."""


def show(of: Outcome, full: bool) -> None:
    """What was asked for: the answer, then what it is made of. full: with the long tables, too."""
    from amphw.cli.estimate.growth import show_growth
    from amphw.cli.estimate.proposal import show_proposal

    if of.proposal is not None:
        show_proposal(of, of.proposal)
    elif of.growth is not None:
        show_growth(of, of.growth)
    elif of.case is not None:
        _show_case(of)
    elif of.measured is not None:
        _show_measured(of, of.measured)
    else:
        _show_network(of, full)


def _show_network(of: Outcome, full: bool) -> None:
    from amphw.estimate.sentences import how_late

    say = results()
    heavy = sum(node.memory.value > 0 for node in of.per_node)
    kinds, many = {device.what for device in of.devices}, "s" * (len(of.devices) > 1)
    alike = f" ({kinds.pop()})" if len(kinds) == 1 else ""
    say.print(
        f"{of.model}: {heavy} nodes with parameters on {len(of.devices)} device{many}{alike}, "
        f"{of.keys} instances in flight"
    )
    _answer(say, of)
    if of.sensitivity:
        say.print("\nWhat doubling buys, instances/s:")
        say.print(_sensitivity(of))
        say.print("\nPlacements:")
        say.print(_placements(of))
    if of.played is not None:
        say.print(
            f"\nPlayed through in time, {number(of.played.instances)} instances and "
            f"{number(of.played.messages)} messages in {seconds(of.played.seconds)}: an instance takes "
            f"{seconds(of.played.latency)}.",
            soft_wrap=False,
        )
        say.print(how_late(of.played.staleness), soft_wrap=False)
    say.print("\nDevices:")
    _devices(say, of, full)
    if of.links:
        say.print("\nLinks that are used:")
        _links(say, of, full)
    if full:
        say.print("\nOf an instance, by node (Mflop: on average):")
        say.print(_nodes(of))
        say.print("\nMemory of a node (of each replica), and messages that it takes:")
        say.print(_memory(of))
        say.print("\nOf an instance, by edge (bytes: of activations; weights: of the node that it leads to):")
        say.print(_edges(of))
    say.print("\nHow numbers are known:")
    _origins(say, of)
    if not full:
        say.print(
            "\nTables of nodes, memory and edges: --full. Everything: --json, or --html FILE as a page."
        )


def _answer(say: Any, of: Outcome) -> None:
    """Throughput, what limits, and what to change; sentences are wrapped in a file, too."""
    from amphw.estimate import sentences

    _end(say, of)
    say.print(sentences.what_it_costs(of), soft_wrap=False)
    more = sentences.what_would_buy_more(of)
    if more:
        say.print("What would give more, when it is played through:")
        for each in more:
            say.print(f"- {each}")
    elif of.sensitivity:
        say.print("Nothing that is compared gives notably more throughput.")
    else:
        say.print(f"What to change: {sentences.what_to_change(of)}", soft_wrap=False)
    for line in (sentences.idle_nodes(of), sentences.accuracy_line(of)):
        if line:
            say.print(line, soft_wrap=False)


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
    from amphw.estimate.sentences import what_limits

    say.print(f"\nThroughput: {_rate(of)}")
    if of.played is not None:
        part = percent(of.played.throughput / of.throughput)
        say.print(f"Played through: {number(of.played.throughput)} instances/s, {part} of that.")
    say.print(f"Bottleneck: {what_limits(of)}.")


def _origins(say: Any, of: Outcome) -> None:
    for name, each in of.origin.items():
        say.print(f"{name}: {each.origin}: {each.how}")
    for note in of.notes:
        say.print(note)


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


def _devices(say: Any, of: Outcome, full: bool) -> None:
    """The busiest, by their numbers."""
    played = of.played
    numbers = ("an instance", "busy", *(PLAYED_DEVICES if played else ()), "memory", "of")
    rows = table("device", "what", "nodes", *numbers, right=numbers)
    busiest = sorted(of.devices, key=lambda device: -device.busy)[: None if full else SHOWN]
    for each in sorted(busiest, key=lambda device: device.number):
        d = each.number
        rows.add_row(
            str(d),
            each.what + (f", {each.resources['dsps']} DSPs" if each.resources else ""),
            ", ".join(each.nodes),
            seconds(each.busy),
            percent(each.share),
            *(
                [percent(played.device_busy[d]), number(played.queued[d]), size(played.held[d])]
                if played
                else []
            ),
            size(each.memory),
            "" if each.room is None else size(each.room),
        )
    say.print(rows)
    if len(busiest) < len(of.devices):
        say.print(f"and {len(of.devices) - len(busiest)} devices that are less busy")


PLAYED_DEVICES = ("played", "queued, most", "held, most")
PLAYED_LINKS = ("played", "a message waits")


def _links(say: Any, of: Outcome, full: bool) -> None:
    """Those that carry most first."""
    from amphw.estimate.sentences import idle_links

    played = of.played
    numbers = ("bytes an instance", "b/s", "busy", *(PLAYED_LINKS if played else ()))
    rows = table("link", *numbers, right=numbers)
    largest = sorted(of.crossed, key=lambda link: -link.bytes)[: None if full else SHOWN]
    for each in largest:
        share = "" if each.share is None else percent(each.share)
        waits = (
            [percent(played.link_busy[each.name]), seconds(played.link_waited[each.name])] if played else []
        )
        rows.add_row(each.name, size(each.bytes), bits(each.bits_per_s), share, *waits)
    say.print(rows)
    if len(largest) < len(of.crossed):
        say.print(f"and {len(of.crossed) - len(largest)} links that carry less")
    if idle_links(of):
        say.print(idle_links(of))


def _show_case(of: Outcome) -> None:
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
    _end(say, of)
    _origins(say, of)
    for name, other in of.beside.items():
        say.print(f"\nBeside it, {name}:")
        if other.case is None:
            _devices(say, other, False)
        _end(say, other)
        _origins(say, other)


def _show_measured(of: Outcome, found: Slept) -> None:
    say = results()
    say.print(f"{of.model}, measured, {NOISE}:")
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
    say.print("\nThe estimate beside it:")
    _devices(say, of, False)
    _end(say, of)
    _origins(say, of)


def _as_figures(of: Outcome) -> dict[str, float]:
    """What can be compared with a case's figures. Bits: of the edge that carries most."""
    return {
        "samples_per_s": of.throughput,
        "bits_per_s_of_all_steps": max(edge.bits_per_s for edge in of.per_edge),
        "memory_bytes": max(node.memory.parameters for node in of.per_node),
        "devices": len(of.devices),
    }
