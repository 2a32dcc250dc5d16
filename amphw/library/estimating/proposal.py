"""A proposal for where a model's nodes go, made before a run: what `place` prints and `train` follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from amphw.library.running import opened

if TYPE_CHECKING:
    from amphw.engine.parts.part import Part
    from amphw.estimate.count.refused import Tiling
    from amphw.estimate.network.cost_model import CostModel, DeviceFacts, Estimate
    from amphw.host.config import RunConfig
    from amphw.ir.graph import Graph
    from amphw.ir.instance import Instance

INSTANCES = 32
"""That messages are counted on."""


@dataclass(frozen=True)
class Proposal:
    """search: None where none was wanted. host: all nodes on the CPU. fixed: nodes that `device.place` names.
    size: what throughput counts, in an instance on average."""

    graph: Graph
    devices: Any
    model: CostModel
    heuristic: Estimate
    search: Estimate | None
    host: Estimate
    fixed: Mapping[str, str]
    tiles: list[Tiling]
    instances: int
    size: float
    counted: str
    tile: str

    @property
    def chosen(self) -> Estimate:
        return self.search or self.heuristic

    @property
    def setting(self) -> str:
        """What reproduces the chosen placement."""
        return ",".join(f"{node}={label}" for node, label in self.chosen.placement.items())


def timed(
    found: Any,
    cfg: RunConfig[Any],
    graph: Graph,
    parts: Mapping[str, Part],
    devices: Mapping[str, DeviceFacts],
    nodes: Sequence[str],
    instances: int,
    workers: int,
    begins: Callable[[str], None],
) -> tuple[CostModel, list[Instance]]:
    """What the nodes of the model `found` take on the host and on other devices, measured, and the training
    instances that were counted and run. parts, devices: those others, by label. workers: of the host.
    begins: is told of what takes long, before."""
    import os

    from amphw.estimate.count.traffic import count
    from amphw.estimate.network.assemble import apart, cost_model
    from amphw.estimate.network.host_costs import host_costs
    from amphw.host.run_model import chosen_instances
    from amphw.host.session import update_rules
    from amphw.ir.device import DeviceOptions

    rules, train = update_rules(cfg, graph), cfg.train
    found.prepare(cfg.model, train.seed)
    sample = chosen_instances(found, cfg, instances)
    traffic = count(apart(graph, nodes), sample)
    settings = asdict(cfg.device) | {"place": ""}
    options = DeviceOptions(train.max_active_keys, 1, "self", train.seed, settings=settings)
    begins("measuring what the nodes take here; this takes some seconds")
    firings = {n: traffic.nodes[n].firings.mean for n in nodes}
    costs = host_costs(graph, rules, options, sample, nodes, firings)
    model = cost_model(
        *(graph, rules, parts, devices, nodes, traffic, sample, costs, options),
        *(workers, os.cpu_count() or 1),
    )
    return model, sample


def propose(
    found: Any,
    cfg: RunConfig[Any],
    device: str,
    instances: int = INSTANCES,
    searching: bool = True,
    limits: Mapping[str, int] | None = None,
    *,
    tell: Callable[[str], None],
    begins: Callable[[str], None],
) -> Proposal:
    """Estimate where the nodes of the model `found` go on a list of devices.

    limits: most nodes, by label. tell: takes a sentence that its user should know; begins: what takes long,
    before. Raises AmphwError for devices, names and settings that there are none of, and without instances.
    """
    from amphw.engine.lowering.lower import lower
    from amphw.engine.lowering.placing import HOST, asked_for, links_asked_for, place
    from amphw.estimate.count.refused import tilings
    from amphw.estimate.network.assemble import facts, placeable
    from amphw.estimate.search.placements import search
    from amphw.host.devices import DeviceError
    from amphw.host.session import graph_of, update_rules

    made: Any = opened(device, tell)
    if not hasattr(made, "parts"):
        beside = "" if device == "cpu" else f", as in --device cpu,{device}"
        raise DeviceError(
            f"a placement is about devices beside the cpu, and {device} alone is none: name several"
            f"{beside or ', as in --device cpu,fixed:q4.12'}"
        )
    graph = graph_of(found, cfg)
    rules = update_rules(cfg, graph)
    wanted = dict(asked_for(cfg.device.place))
    devices = facts(made.parts, links_asked_for(cfg.device.links), limits or {}, made.absent)
    placing = place(graph, lower(graph), made.parts, rules, wanted, made.host_takes_turns, made.absent)
    nodes = placeable(graph, wanted)
    model, sample = timed(
        found, cfg, graph, made.parts, devices, nodes, instances, cfg.device.workers, begins
    )
    heuristic = model.estimate({n: placing.of[n] for n in nodes})
    fixed = {n: HOST if label in made.absent else label for n, label in wanted.items()}
    better = search(model, heuristic.placement, fixed, cfg.train.seed) if searching else None
    tiles = tilings(graph, rules, made.parts, model.refused, nodes)
    size = sum(found.size(i) for i in sample) / len(sample)
    return Proposal(
        graph, made, model, heuristic, better, model.on_host(), fixed, tiles, len(sample), size,
        found.counted, cfg.device.tile,
    )  # fmt: skip


def searched(found: Any, cfg: RunConfig[Any], device: str, tell: Callable[[str], None]) -> RunConfig[Any]:
    """The configuration with its nodes where a search puts them, if it asks for that."""
    from amphw.engine.lowering.placing import asked_for
    from amphw.host.devices import make_device
    from amphw.host.session import graph_of
    from amphw.page.numbers import number

    if cfg.device.placing != "search" or not hasattr(make_device(device), "parts"):
        return cfg
    if set(graph_of(found, cfg).parameterised) <= set(asked_for(cfg.device.place)):
        return cfg  # as in a run that goes on
    proposal = propose(found, cfg, device, tell=tell, begins=tell)
    tell(
        f"device.place={proposal.setting}, estimated at {number(proposal.chosen.throughput)} "
        f"instances/s (device.placing=search)"
    )
    return replace(cfg, device=replace(cfg.device, place=proposal.setting))
