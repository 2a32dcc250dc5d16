"""Calculations as papers make them, with their own simplifications: not our model of a network of devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from amphw.engine.parts.costs import FLOAT_BYTES
from amphw.estimate.count.traffic import Spread
from amphw.estimate.network.busy import Load, ranked
from amphw.estimate.outcome import Case, DeviceOutcome, EdgeOutcome, NodeMemory, NodeOutcome, Origin, Outcome
from amphw.ir.errors import AmphwError

GGNN_SOURCE = "AMPNet, arXiv 1705.09786, appendix C"
GGNN_PRINTED = {"samples_per_s": 6.5e3, "bits_per_s": 1.2e9, "memory_bytes": 1.2e6}

BACKWARD = 3
"""Operations backward for one forward, as the appendix counts them."""

UPDATE_LAYERS = 3
"""Devices beside those of the types of edges: 2 + 1 in the appendix."""


@dataclass(frozen=True)
class GatedGraph:
    """hidden: width of a node's state (H). nodes, edges: of an instance (N, E). types: of edges (C). steps:
    rounds of messages. use: share of a device's operations that is put to use. slots: arrays of the size of
    the weights: themselves, their gradient and two of the optimiser."""

    hidden: int = 200
    nodes: float = 30.0
    edges: float = 30.0
    types: int = 4
    steps: int = 4
    use: float = 0.5
    slots: int = 4

    @property
    def edge_operations(self) -> float:
        """Forward, in a step, of the layer of one type of edge."""
        return 2 * self.edges * self.hidden**2 / self.types

    @property
    def update_operations(self) -> float:
        """Forward, in a step, of a layer of 2H x H of the update."""
        return 2 * 2 * self.nodes * self.hidden**2

    @property
    def layer_bytes(self) -> float:
        """Of the weights of such a layer."""
        return FLOAT_BYTES * 2 * self.hidden**2

    def figures(self, flops: float) -> dict[str, float]:
        """flops: operations a second of a device."""
        forward = max(self.update_operations, self.edge_operations)
        backward = BACKWARD * forward
        samples = self.use * flops / ((forward + backward) * self.steps)
        bits = 8 * FLOAT_BYTES * samples * max(self.nodes, self.edges) * self.hidden
        return {
            "forward_operations": forward,
            "backward_operations": backward,
            "samples_per_s": samples,
            "bits_per_s": bits,
            "bits_per_s_of_all_steps": bits * self.steps,
            "memory_bytes": self.slots * self.layer_bytes,
            "devices": self.types + UPDATE_LAYERS,
        }


@dataclass(frozen=True)
class Assumed:
    """What a case assumes where nobody says otherwise. flops: operations a second. use: share of them that is
    put to use. settings: of the model."""

    flops: float
    use: float
    settings: Sequence[str]


CASES = {"ggnn": {"paper": Assumed(1e12, GatedGraph.use, [f"hidden={GatedGraph.hidden}"])}}
"""By model and name."""


def case_of(model: str, name: str) -> Assumed:
    """Raises AmphwError unless there is such a case of the model."""
    if name not in CASES.get(model, {}):
        known = "; ".join(f"{m}: {', '.join(names)}" for m, names in CASES.items())
        raise AmphwError(f"there is no case '{name}' of the model {model}; there are: {known}")
    return CASES[model][name]


def gated_graph(model: str, of: GatedGraph, flops: float, printed: bool = False) -> Outcome:
    """The appendix's calculation for such graphs. printed: whether these are the paper's own numbers."""
    found = of.figures(flops)
    layers = [(f"edge_{k}", of.edge_operations, of.layer_bytes / 2) for k in range(of.types)]
    layers += [(f"update_{k}", of.update_operations, of.layer_bytes) for k in range(UPDATE_LAYERS)]
    nodes = []
    for device, (name, operations, size) in enumerate(layers):
        ahead = operations * of.steps
        nodes.append(
            NodeOutcome(
                name=name,
                devices=[device],
                forward=Spread.of([ahead]),
                backward=Spread.of([BACKWARD * ahead]),
                update=0.0,
                memory=NodeMemory(size, size, (of.slots - 2) * size),
                busy=(1 + BACKWARD) * ahead / (of.use * flops),
            )
        )
    loads, throughput = ranked([Load(f"device {n.devices[0]}", "device", n.busy) for n in nodes])
    devices = [
        DeviceOutcome(k, flops, [n.name], n.busy, n.busy * throughput, n.memory.parameters)
        for k, n in enumerate(nodes)
    ]
    edge = EdgeOutcome(
        source="edges",
        target="update",
        port="",
        output=0,
        activation_bytes=Spread.of([FLOAT_BYTES * max(of.nodes, of.edges) * of.hidden]),
        weight_bytes=of.layer_bytes,
        bits_per_s=found["bits_per_s"],
        gradient_bits_per_s=None,
    )
    inputs = {**asdict(of), "flops": flops}
    return Outcome(
        model=model,
        devices=devices,
        throughput=throughput,
        loads=loads,
        per_node=nodes,
        per_edge=[edge],
        origin={
            "operations": Origin(
                "assumed", f"2 max(2 N H^2, E H^2 / C) forward, {BACKWARD} times that backward"
            ),
            "utilisation": Origin("assumed", f"{of.use:.0%} of a device's rate, as the appendix has it"),
            "devices": Origin(
                "assumed",
                f"one for each of {of.types} types of edges, and 2 + 1 with a layer of 2H x H of the update",
            ),
            "memory": Origin("assumed", "weights, gradient and two arrays of the optimiser, in float32"),
            "per_edge": Origin("assumed", "32 max(N, E) H bits a sample, those of one step of four"),
        },
        counted="samples",
        case=Case("paper", GGNN_SOURCE, inputs, found, GGNN_PRINTED if printed else {}),
    )
