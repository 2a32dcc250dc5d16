"""A model's cost model on given devices: what is refused, what each node takes where, and why it is known."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache

from amphw.engine.lowering.lower import Lowered, Unit, lower
from amphw.engine.lowering.placing import HOST, refusal, too_much
from amphw.engine.parts.costs import NodeTime, TellsTime
from amphw.engine.parts.executor import RegionPart
from amphw.engine.parts.part import AnyPart, keeps
from amphw.engine.parts.sleeper import Sleeper
from amphw.estimate.count.traffic import Traffic
from amphw.estimate.count.work import NodeWork, work_of
from amphw.estimate.network.cost_model import CostModel, DeviceFacts, HostCosts, NodeSeconds
from amphw.estimate.network.host_costs import region_time
from amphw.estimate.network.probe import probe
from amphw.ir.device import DeviceOptions, LinkRate
from amphw.ir.errors import AmphwError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.passes import fuse
from amphw.ir.update import UpdateRule, rule_of


def facts(
    parts: Mapping[str, AnyPart],
    links: Mapping[str, LinkRate],
    most_nodes: Mapping[str, int],
    absent: Collection[str] = (),
) -> dict[str, DeviceFacts]:
    """Of the devices beside the host. links, most_nodes: by label, what was said of them. absent: labels of
    devices that are not there. Raises AmphwError for a label that there is none of."""
    for what, given in (("device.links", links), ("the limit of nodes", most_nodes)):
        for label in given:
            if label not in parts and label not in absent:
                raise AmphwError(
                    f"{what}: there is no device '{label}' beside the {HOST} in this run; there are "
                    f"{', '.join(parts) or 'none'}"
                )
    out = {}
    for label, part in parts.items():
        about = part.capabilities()
        link = links.get(label, about.link)
        out[label] = DeviceFacts(label, about.name, about.memory, most_nodes.get(label), link, keeps(part))
    return out


def placeable(graph: Graph, wanted: Collection[str] = ()) -> list[str]:
    """Nodes that a placement is about: those with parameters, and those that are asked for."""
    return [n for n in graph.nodes if graph.nodes[n].params or n in wanted]


def apart(graph: Graph, nodes: Collection[str]) -> Lowered:
    """The graph as the host runs it where these nodes are elsewhere."""
    return lower(fuse(graph, nodes))


def cost_model(
    graph: Graph,
    rules: Mapping[str, UpdateRule],
    parts: Mapping[str, AnyPart],
    devices: Mapping[str, DeviceFacts],
    nodes: Sequence[str],
    traffic: Traffic,
    instances: Sequence[Instance],
    host: HostCosts,
    options: DeviceOptions,
    workers: int,
    processors: int,
) -> CostModel:
    """nodes: `placeable` ones. traffic: of the graph where they are `apart`, on `instances`. workers,
    processors: of the host. Parts that do not tell what nodes take are loaded, and timed."""
    own = {u.name: u for u in lower(graph).units}
    work: dict[str, NodeWork] = {}
    seconds: dict[tuple[str, str], NodeSeconds] = {}
    refused: dict[tuple[str, str], str] = {}
    for name in nodes:
        unit = traffic.lowered.units[traffic.lowered.by_name[name]]
        work[name] = work_of(graph, unit, traffic.nodes[name], rule_of(rules, name))
        rate = traffic.nodes[name]
        seconds[name, HOST] = NodeSeconds(
            host.nodes.get(name, 0.0),
            host.nodes.get(name, 0.0) / max(rate.firings.mean, 1e-12),
            host.origin,
            host.how,
        )
        for label, part in parts.items():
            why = refusal(part, graph, own[name], rules) or too_much(part, graph, [own[name]], rules)
            if why:
                refused[name, label] = why
                continue
            firings = host.firings.get(name, 1.0)
            time = _time(part, graph, traffic, own[name], unit, rules, options, instances, firings)
            alone = time.forward + time.backward
            busy = rate.firings.mean * alone + work[name].updates * time.update
            seconds[name, label] = NodeSeconds(busy, alone, time.origin, time.how)

    @cache
    def together(label: str, names: tuple[str, ...]) -> str:
        return too_much(parts[label], graph, [own[name] for name in names], rules)

    keys = options.max_active_keys
    taken = frozenset(
        (name, label)
        for name, unit in own.items()
        if name in traffic.nodes and name not in nodes and not unit.behaviour.report
        for label, part in parts.items()
        if keeps(part) and not refusal(part, graph, unit, rules)
    )
    return CostModel(
        traffic, nodes, work, devices, seconds, refused, host, workers, processors, keys, together, taken
    )


def _time(
    part: AnyPart,
    graph: Graph,
    traffic: Traffic,
    own: Unit,
    unit: Unit,
    rules: Mapping[str, UpdateRule],
    options: DeviceOptions,
    instances: Sequence[Instance],
    firings: float,
) -> NodeTime:
    rate = traffic.nodes[unit.name]
    if rate.firings.mean == 0:
        return NodeTime(0.0, 0.0, 0.0, "assumed", f"it does not fire in the {len(instances)} instances")
    rows = rate.rows_of_a_firing()
    if isinstance(part, RegionPart):
        device = part.capabilities().name
        return region_time(device, graph, rules, options, instances, own.name, rate.firings.mean)
    if isinstance(part, Sleeper):
        return part.node_time(graph, own, rules, rows)
    told = part.node_time(graph, own, rules, rows) if isinstance(part, TellsTime) else None
    several = replace(options, max_active_keys=len(instances))
    return told or probe(part, graph, traffic, unit, rules, several, instances, firings)
