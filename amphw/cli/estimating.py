"""Estimates that `amphw estimate` prints: from a model and its settings to an outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amphw.estimate.count.traffic import Traffic
    from amphw.estimate.network.network import Network
    from amphw.estimate.outcome import Origin, Outcome
    from amphw.estimate.search.budget import Budget
    from amphw.host.config import RunConfig
    from amphw.ir.update import UpdateRule

SAMPLE = 1000
"""Generated molecules whose atoms and bonds are counted where there is no data."""


def on_network(
    found: Any,
    cfg: RunConfig[Any],
    network: Network,
    keys: int | None,
    replicas: int,
    instances: int,
    said: Mapping[str, str],
    events: bool = False,
    watch: bool = False,
    compare: bool = False,
) -> Outcome:
    """The model `found` on a network of devices. keys: None: as many as in training. said: option by the name
    of what it states. events: play it through in time, too; watch: with a timeline. compare: with what
    doubling buys, and with other placements. Raises AmphwError, also for a device that is too small."""
    from amphw.estimate.search.compare import compared

    counted, keys = _Counted.on(found, cfg, instances), keys or cfg.train.max_active_keys
    outcome = counted.estimate(network, keys, replicas, events, watch)
    if compare:
        outcome = compared(outcome, counted.traffic, counted.rules, network, keys, replicas)
    return counted.told(outcome, network, said)


@dataclass(frozen=True)
class _Counted:
    """A model, and what was counted on its instances. size: what the model counts, of an instance."""

    found: Any
    cfg: RunConfig[Any]
    traffic: Traffic
    rules: Mapping[str, UpdateRule]
    size: float

    @classmethod
    def on(cls, found: Any, cfg: RunConfig[Any], instances: int) -> _Counted:
        from amphw.estimate.count.traffic import count
        from amphw.estimate.network.assemble import apart, placeable
        from amphw.host.run_model import chosen_instances
        from amphw.host.session import graph_of, update_rules

        graph = graph_of(found, cfg)
        rules = update_rules(cfg, graph)
        found.prepare(cfg.model, cfg.train.seed)
        sample = chosen_instances(found, cfg, instances)
        traffic = count(apart(graph, placeable(graph)), sample)
        return cls(found, cfg, traffic, rules, sum(found.size(i) for i in sample) / len(sample))

    def estimate(
        self, network: Network, keys: int, replicas: int, events: bool, watch: bool = False
    ) -> Outcome:
        from amphw.estimate.network.network import estimate

        name, rules = self.found.name, self.rules
        return estimate(name, self.traffic, rules, network, keys, replicas, events, watch=watch)

    def told(self, outcome: Outcome, network: Network, said: Mapping[str, str]) -> Outcome:
        """With what the estimate itself does not know."""
        from amphw.estimate.accuracy import known

        return replace(
            outcome,
            counted=self.found.counted,
            counted_per_instance=self.size,
            origin=_origins(self.cfg, network, self.traffic.origin, outcome, said),
            accuracy=known(),
        )


def proposed(
    found: Any,
    cfg: RunConfig[Any],
    network: Network,
    budget: Budget,
    target: float | None,
    keys: int | None,
    replicas: int | None,
    instances: int,
    said: Mapping[str, str],
) -> Outcome:
    """The network that it would take, and its estimate; see `amphw.estimate.search.whatif.propose`."""
    from amphw.estimate.outcome import Origin
    from amphw.estimate.search.whatif import propose

    counted = _Counted.on(found, cfg, instances)
    outcome = propose(counted.estimate, network, budget, target, replicas, keys)
    told = counted.told(outcome, network, said)
    searched = {name for name in ("devices", "replicas", "keys") if name not in said}
    fast = "lanes" if network.circuit is not None else "flops" if network.flops is not None else "times"
    searched |= {fast} | ({"link"} if budget.link is not None else set())
    how = {name: Origin("assumed", "proposed by the search") for name in searched}
    if budget.memory is not None:
        how["memory"] = Origin("stated", f"--budget memory={budget.said['memory']}")
    return replace(told, origin={**told.origin, **how})


def growing(
    found: Any,
    cfg: RunConfig[Any],
    network: Network,
    keys: int | None,
    replicas: int | None,
    instances: int,
    said: Mapping[str, str],
) -> Outcome:
    """The estimate of one pipeline, a device for each node with parameters; with how throughput grows."""
    from amphw.estimate.search.growth import grow

    counted = _Counted.on(found, cfg, instances)
    keys = keys or cfg.train.max_active_keys
    growth = grow(counted.estimate, network, keys, replicas)
    outcome = counted.estimate(network, keys, 1, False)
    return replace(counted.told(outcome, network, said), growth=growth)


def _origins(
    cfg: RunConfig[Any], network: Network, counting: str, of: Outcome, said: Mapping[str, str]
) -> dict[str, Origin]:
    from amphw.cli.estimate_network import circuit_origins
    from amphw.estimate.outcome import Origin

    unsaid = {
        "link": "no limit: what crosses is told",
        "latency": "none",
        "keys": f"the model's max_active_keys, {of.keys}",
        "replicas": "one of each node",
        "credits": "any number of messages under way",
    }
    if network.parts:
        unsaid |= {"network": ""}
        said = {**said, "network": said["listed"]}
    else:
        one_each = f"one for each replica of a node with parameters: {len(of.devices)}"
        unsaid |= {"devices": one_each, "memory": "no limit: what is needed is told"}
    if network.flops is not None:
        share = f"{network.use:.0%} of a device's rate"
        unsaid |= {"flops": "the rate of the paper's devices", "utilisation": share}
    if network.wires is not None:
        said = {**said, "link": said["listed"], "latency": said["listed"]}
    found = {
        name: Origin("stated", said[name]) if name in said else Origin("assumed", how)
        for name, how in unsaid.items()
    }
    if network.another is not None:
        how = "frames of each node with parameters, on this machine; others are taken to need no time"
        found["times"] = Origin("measured", f"{said['like']}: {how}")
    if any(device.resources for device in of.devices):
        found |= circuit_origins(said)
    generated = getattr(cfg.model, "sample", False)
    data = ("synthesised", "generated") if generated else ("counted", "the first training")
    return found | {
        "instances": Origin(data[0], f"{data[1]} instances, {of.instances} of them"),  # type: ignore[arg-type]
        "policy": Origin("stated", f"device.policy={cfg.device.policy}, where it is played through"),
        "messages": Origin("counted", counting),
        "operations": Origin("counted", "all primitives of the nodes' programs, for the instances' rows"),
        "parameters": Origin("counted", "shapes of the parameters; arrays of the nodes' optimisers"),
    }


def paper_case(
    found: Any,
    cfg: RunConfig[Any],
    network: Network,
    keys: int | None,
    replicas: int,
    instances: int,
    said: Mapping[str, str],
) -> Outcome:
    """The paper's calculation for GGNN; beside it the same with what the data say, and `on_network`'s."""
    from amphw.data.qm9 import BOND_TYPES, load_qm9, sample_qm9
    from amphw.estimate.outcome import Origin
    from amphw.estimate.papers import GatedGraph, gated_graph

    generated = cfg.model.sample
    molecules = sample_qm9(SAMPLE, cfg.train.seed) if generated else load_qm9("train")
    atoms = sum(len(m.kinds) for m in molecules) / len(molecules)
    edges = 2 * sum(len(m.bonds) for m in molecules) / len(molecules)
    flops = network.device(0).peak
    real = GatedGraph(cfg.model.hidden, atoms, edges, len(BOND_TYPES), cfg.model.steps)
    of_data = gated_graph(found.name, real, flops)
    how = f"N = {atoms:.4g}, E = {edges:.4g} directed: means of {len(molecules):,} molecules"
    counted = Origin("synthesised" if generated else "counted", how)
    rate = Origin("stated", said["flops"]) if "flops" in said else Origin("assumed", "the paper's rate")
    of_data = replace(of_data, origin={**of_data.origin, "graphs": counted, "flops": rate})
    general = on_network(found, cfg, network, keys, replicas, instances, said)
    paper = gated_graph(found.name, GatedGraph(), flops, printed=True)
    notes = [
        "The paper's bandwidth is that of one of the four steps; with all of them it is "
        f"{GatedGraph().steps} times as much.",
        "In the model here the update is one node with all its layers, and the paper counts 2 + 1 devices.",
    ]
    graphs = Origin("assumed", "H = 200, N = E = 30, C = 4, as the appendix has them")
    return replace(
        paper,
        origin={**paper.origin, "graphs": graphs, "flops": rate},
        notes=notes,
        beside={"formula on the data": of_data, "model on instances": general},
    )


def by_sleeping(
    found: Any,
    cfg: RunConfig[Any],
    network: Network,
    instances: int,
    seconds: float,
    epochs: int | None,
    said: Mapping[str, str],
) -> Outcome:
    """A run whose layers wait as long as the network's devices would take; with the estimate for these."""
    from amphw.estimate.outcome import Origin
    from amphw.estimate.play.sleeping import measure

    outcome = on_network(found, cfg, network, None, 1, instances, said)
    heavy = {node.name: node.devices[0] for node in outcome.per_node if node.memory.value}
    measured = measure(found, cfg, heavy, network.device(0).roof, instances, seconds, epochs or 1)
    how = f"{seconds:g} s of each, on this machine, with all control and layers that wait"
    target = Origin("stated", f"--epochs {epochs}") if epochs else Origin("assumed", "one epoch")
    more = {
        "train_per_s": Origin("measured", how),
        "valid_per_s": Origin("measured", how),
        "epochs": target,
        "train_size": Origin("counted", "the model's training and validation instances"),
        "reference": Origin(
            "stated", "AMPNet, ICLR 2018 submission HJnQJXbC-, table 3: on 16 cores, at 1 TFLOPS"
        ),
    }
    return replace(outcome, measured=measured, origin={**outcome.origin, **more})
