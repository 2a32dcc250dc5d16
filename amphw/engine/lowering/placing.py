"""Which part of a run computes which node."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from amphw.engine.lowering.lower import Lowered, Unit
from amphw.engine.parts.part import AnyPart, RefusesTogether, joins, keeps
from amphw.ir.device import LinkRate
from amphw.ir.errors import AmphwError
from amphw.ir.graph import Graph
from amphw.ir.units import written
from amphw.ir.update import UpdateRule, rule_of

Node = TypeVar("Node", bound=Hashable)
Place = TypeVar("Place")

HOST = "cpu"
"""The engine itself, with its workers. Sources and losses are always there."""


@dataclass
class Placing:
    """of: the part of each node that computes, by its label, or HOST. refused[node, label]: why not there."""

    of: dict[str, str] = field(default_factory=dict)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)

    def on(self, label: str) -> list[str]:
        return [node for node, at in self.of.items() if at == label]


def asked_for(text: str | Mapping[str, str]) -> Mapping[str, str]:
    """The label of each node in `cell=fpga,head=cpu`. Raises AmphwError where that is not its form."""
    return _pairs(text, "place", "NODE=DEVICE")


def links_asked_for(text: str | Mapping[str, str]) -> dict[str, LinkRate]:
    """The link of each device in `a=100Mb/s+20us,b=1Gb/s`. Raises AmphwError where that is not its form."""
    found = {}
    for label, rate in _pairs(text, "links", "DEVICE=RATE+LATENCY").items():
        try:
            found[label] = LinkRate.parse(rate)
        except AmphwError as error:
            raise AmphwError(
                f"device.links: {label}={rate}: {error}; a link is RATE+LATENCY, such as "
                f"{label}=100Mb/s+20us, or RATE alone"
            ) from error
    return found


def _pairs(text: str | Mapping[str, str], setting: str, form: str) -> Mapping[str, str]:
    if not isinstance(text, str):
        return text
    found: dict[str, str] = {}
    for piece in text.split(",") if text.strip() else ():
        key, equals, value = (part.strip() for part in piece.partition("="))
        if not (key and equals and value):
            raise AmphwError(f"device.{setting} = '{text}': '{piece}' is not of the form {form}")
        if found.setdefault(key, value) != value:
            raise AmphwError(f"device.{setting} says two things of '{key}': {found[key]} and {value}")
    return found


def place(
    graph: Graph,
    lowered: Lowered,
    parts: Mapping[str, AnyPart],
    rules: Mapping[str, UpdateRule],
    wanted: Mapping[str, str],
    host: bool = True,
    absent: Collection[str] = (),
) -> Placing:
    """Explicit places first; of the others the nodes with parameters take turns (`in_turns`), and all other
    nodes stay on the host.

    wanted: label by node. host: whether it takes its turn, too. absent: labels of devices that are not there,
    which the host replaces. Raises AmphwError for a name that there is none of, and for a node that is wanted
    where it is refused.
    """
    # Lowering adds nodes of its own, which go where they cost nothing.
    able = [
        u
        for u in lowered.units
        if u.name in graph.nodes and u.behaviour.program is not None and not u.behaviour.report
    ]
    out = Placing({u.name: HOST for u in able})
    wanted = {node: HOST if label in absent else label for node, label in wanted.items()}
    _check(graph, out, parts, wanted)

    def refuses(unit: Unit, label: str) -> str:
        if label == HOST:
            return ""
        part, there = parts[label], [*out.on(label), unit.name]
        if (unit.name, label) not in out.refused:
            out.refused[unit.name, label] = refusal(part, graph, unit, rules)
        units = [lowered.units[lowered.by_name[n]] for n in there]
        return out.refused[unit.name, label] or too_much(part, graph, units, rules)

    for unit in able:
        if unit.name not in wanted:
            continue
        if why := refuses(unit, wanted[unit.name]):
            raise AmphwError(f"node '{unit.name}' cannot be placed on {wanted[unit.name]}: {why}")
        out.of[unit.name] = wanted[unit.name]

    def passes(name: str, label: str) -> bool:
        if why := refuses(lowered.units[lowered.by_name[name]], label):
            out.refused[name, label] = why
        return bool(why)

    sizes = {u.name: parameter_count(graph, u.name) for u in able if u.owns}
    for name, label in in_turns(sizes, [*parts, HOST] if host else list(parts), wanted, passes):
        out.of[name] = label
    _follow(lowered, able, out, parts, wanted, refuses)
    out.refused = {key: why for key, why in out.refused.items() if why}
    return out


def _follow(
    lowered: Lowered,
    able: Sequence[Unit],
    out: Placing,
    parts: Mapping[str, Any],
    wanted: Mapping[str, str],
    refuses: Callable[[Unit, str], str],
) -> None:
    """Place the `followers`, where a device has not refused them."""
    by_name = {u.name: u for u in able}
    free = [u.name for u in able if not u.owns and u.name not in wanted]

    def takes(name: str, label: str) -> bool:
        return keeps(parts.get(label)) and not refuses(by_name[name], label)

    for name, label in followers(lowered, free, out.of, takes):
        out.of[name] = label


def followers(
    lowered: Lowered, nodes: Iterable[str], of: Mapping[str, str], takes: Callable[[str, str], bool]
) -> Iterator[tuple[str, str]]:
    """Nodes that go to the device that all they receive comes from, which then stays there.

    nodes: those without parameters that nobody has placed. of: label by node; not there: the host. takes:
    whether a device may have a node, and keeps what its own nodes send each other; elsewhere each message
    crosses over in any case, and a node would gain nothing. It is asked when all nodes that came before have
    been placed.
    """
    senders: dict[str, set[str]] = {name: set() for name in nodes}
    for path in lowered.paths:
        if path.target >= 0 and (target := lowered.units[path.target].name) in senders:
            senders[target].add(lowered.units[path.source].name)
    found: dict[str, str] = {}
    moved = True
    while moved:
        moved = False
        for name in [n for n in senders if n not in found]:
            labels = {found.get(s, of.get(s, HOST)) for s in senders[name]}
            label = labels.pop() if len(labels) == 1 else HOST
            if label != HOST and takes(name, label):
                found[name], moved = label, True
                yield name, label


def in_turns(
    sizes: Mapping[Node, int],
    places: Sequence[Place],
    placed: Collection[Node],
    passes: Callable[[Node, Place], bool],
) -> Iterator[tuple[Node, Place]]:
    """Nodes with parameters and their places, the largest node first, in turns.

    That is the papers' heuristic (AMPNet, arXiv 1705.09786: the h-th heavy node to worker h mod W).

    placed: nodes that have a place; their turn goes by, so that the others go where they would go without
    it. passes: whether a place is passed over, asked once all nodes before have theirs; a node that passes
    all of them is left out.
    """
    turn = 0
    for node in sorted(sizes, key=lambda n: -sizes[n]):
        if node in placed:
            turn += 1
            continue
        for k in range(len(places)):
            place = places[(turn + k) % len(places)]
            if not passes(node, place):
                yield node, place
                turn += k + 1
                break


def _check(graph: Graph, out: Placing, parts: Mapping[str, Any], wanted: Mapping[str, str]) -> None:
    for node, label in wanted.items():
        if node not in graph.nodes:
            raise AmphwError(
                f"device.place: there is no node '{node}'; those that compute: {', '.join(out.of)}"
            )
        if node not in out.of:
            raise AmphwError(
                f"device.place: node '{node}' has no place of its own: it sends, routes or is a loss, which "
                f"the host does. Nodes that compute: {', '.join(out.of)}"
            )
        if label != HOST and label not in parts:
            raise AmphwError(
                f"device.place: there is no device '{label}' in this run for node '{node}'; there are "
                f"{', '.join([HOST, *parts])}"
            )


def refusal(part: AnyPart, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule]) -> str:
    """Why a part cannot have this node, in words that do not name it again; empty: it can."""
    if joins(part) and unit.behaviour.decides:
        return "nodes that decide where a message goes stay with the engine"
    return part.refused(graph, unit, rules).removeprefix(f"node '{unit.name}': ")


def too_much(part: AnyPart, graph: Graph, units: Sequence[Unit], rules: Mapping[str, UpdateRule]) -> str:
    """Why a part cannot have all of these nodes, none of which it refuses alone; empty: it can."""
    memory = part.capabilities().memory
    wanted = sum(rule_of(rules, u.name).bytes(graph.nodes[u.name].params) for u in units)
    if memory is not None and wanted > memory:
        return (
            f"parameters, gradients and optimiser of {', '.join(u.name for u in units)} take "
            f"{written(wanted, 'B')} of its {written(memory, 'B')}"
        )
    if len(units) > 1 and isinstance(part, RefusesTogether):
        return part.refused_together(graph, units, rules)
    return ""


def parameter_count(graph: Graph, node: str) -> int:
    """Numbers in the node's parameters."""
    return sum(math.prod(spec.shape) for spec in graph.nodes[node].params)


def units_of(lowered: Lowered, placing: Placing, labels: Sequence[str]) -> list[list[Unit]]:
    """By label, the units of the lowered graph that run there."""
    by_name = lowered.by_name
    return [[lowered.units[by_name[n]] for n in placing.on(label) if n in by_name] for label in labels]
