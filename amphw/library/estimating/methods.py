"""Estimates: from a model, its settings and a network to an outcome."""

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

SECONDS = 2.0
"""Of each measurement, by sleeping."""


@dataclass(frozen=True)
class Asked:
    """What is estimated. found: the model. keys: None: as many as in training; replicas: None: as a search
    finds, or one. instances: to count on. said: option by the name of what it states."""

    found: Any
    cfg: RunConfig[Any]
    network: Network
    keys: int | None
    replicas: int | None
    instances: int
    said: Mapping[str, str]

    @property
    def flying(self) -> int:
        return self.keys or self.cfg.train.max_active_keys


def on_network(asked: Asked, events: bool = False, watch: bool = False, compare: bool = False) -> Outcome:
    """The model on a network of devices. events: play it through in time, too; watch: with a timeline.
    compare: with what doubling buys, and with other placements. Raises AmphwError, also for a device that is
    too small."""
    from amphw.estimate.search.compare import compared

    counted, network, replicas = _Counted.on(asked), asked.network, asked.replicas or 1
    outcome = counted.estimate(network, asked.flying, replicas, events, watch)
    if compare:
        outcome = compared(outcome, counted.traffic, counted.rules, network, asked.flying, replicas)
    return counted.told(outcome)


@dataclass(frozen=True)
class _Counted:
    """What was counted on the model's instances. size: what the model counts, of an instance."""

    asked: Asked
    traffic: Traffic
    rules: Mapping[str, UpdateRule]
    size: float

    @classmethod
    def on(cls, asked: Asked) -> _Counted:
        from amphw.engine.lowering.lower import lower
        from amphw.estimate.count.traffic import count
        from amphw.estimate.network.assemble import apart, placeable
        from amphw.host.run_model import chosen_instances
        from amphw.host.session import graph_of, update_rules

        found, cfg = asked.found, asked.cfg
        graph = graph_of(found, cfg)
        rules = update_rules(cfg, graph)
        found.prepare(cfg.model, cfg.train.seed)
        sample = chosen_instances(found, cfg, asked.instances)
        # Circuits run nodes as the graph has them, all others fuse those that a device may.
        lowered = lower(graph) if asked.network.circuits else apart(graph, placeable(graph))
        traffic = count(lowered, sample)
        return cls(asked, traffic, rules, sum(found.size(i) for i in sample) / len(sample))

    def estimate(
        self, network: Network, keys: int, replicas: int, events: bool, watch: bool = False
    ) -> Outcome:
        from amphw.estimate.network.network import estimate

        name, rules = self.asked.found.name, self.rules
        return estimate(name, self.traffic, rules, network, keys, replicas, events, watch=watch)

    def told(self, outcome: Outcome) -> Outcome:
        """With what the estimate itself does not know."""
        from amphw.estimate.accuracy import known

        return replace(
            outcome,
            counted=self.asked.found.counted,
            counted_per_instance=self.size,
            origin=_origins(self.asked, self.traffic.origin, outcome),
            accuracy=known(),
        )


def proposed(asked: Asked, budget: Budget, target: float | None) -> Outcome:
    """The network that it would take, and its estimate; see `amphw.estimate.search.whatif.propose`."""
    from amphw.estimate.outcome import Origin
    from amphw.estimate.search.whatif import propose

    counted, network = _Counted.on(asked), asked.network
    outcome = propose(counted.estimate, network, budget, target, asked.replicas, asked.keys)
    told = counted.told(outcome)
    searched = {name for name in ("devices", "replicas", "keys") if name not in asked.said}
    fast = "lanes" if network.circuit is not None else "flops" if network.flops is not None else "times"
    searched |= {fast} | ({"link"} if budget.link is not None else set())
    how = {name: Origin("assumed", "proposed by the search") for name in searched}
    if budget.memory is not None:
        how["memory"] = Origin("stated", f"--budget memory={budget.said['memory']}")
    return replace(told, origin={**told.origin, **how})


def growing(asked: Asked) -> Outcome:
    """The estimate of one pipeline, a device for each node with parameters; with how throughput grows."""
    from amphw.estimate.search.growth import grow

    counted, network = _Counted.on(asked), asked.network
    growth = grow(counted.estimate, network, asked.flying, asked.replicas)
    outcome = counted.estimate(network, asked.flying, 1, False)
    return replace(counted.told(outcome), growth=growth)


def _origins(asked: Asked, counting: str, of: Outcome) -> dict[str, Origin]:
    from amphw.estimate.outcome import Origin
    from amphw.library.estimating.network import circuit_origins

    cfg, network, said = asked.cfg, asked.network, asked.said
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


def paper_case(asked: Asked) -> Outcome:
    """The paper's calculation for GGNN; beside it the same with what the data say, and `on_network`'s."""
    from amphw.data.qm9 import BOND_TYPES, load_qm9, sample_qm9
    from amphw.estimate.outcome import Origin
    from amphw.estimate.papers import GatedGraph, gated_graph

    found, cfg, said = asked.found, asked.cfg, asked.said
    generated = cfg.model.sample
    molecules = sample_qm9(SAMPLE, cfg.train.seed) if generated else load_qm9("train")
    atoms = sum(len(m.kinds) for m in molecules) / len(molecules)
    edges = 2 * sum(len(m.bonds) for m in molecules) / len(molecules)
    flops = asked.network.device(0).peak
    real = GatedGraph(cfg.model.hidden, atoms, edges, len(BOND_TYPES), cfg.model.steps)
    of_data = gated_graph(found.name, real, flops)
    how = f"N = {atoms:.4g}, E = {edges:.4g} directed: means of {len(molecules):,} molecules"
    counted = Origin("synthesised" if generated else "counted", how)
    rate = Origin("stated", said["flops"]) if "flops" in said else Origin("assumed", "the paper's rate")
    of_data = replace(of_data, origin={**of_data.origin, "graphs": counted, "flops": rate})
    general = on_network(asked)
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


def by_sleeping(asked: Asked, seconds: float | None, epochs: int | None) -> Outcome:
    """A run whose layers wait as long as the network's devices would take; with the estimate for these."""
    from amphw.estimate.outcome import Origin
    from amphw.estimate.play.sleeping import measure

    seconds, roof = seconds or SECONDS, asked.network.device(0).roof
    outcome = on_network(asked)
    heavy = {node.name: node.devices[0] for node in outcome.per_node if node.memory.value}
    measured = measure(asked.found, asked.cfg, heavy, roof, asked.instances, seconds, epochs or 1)
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
