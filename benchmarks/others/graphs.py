"""Graph networks of the package `torch_geometric`, whole and with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch_geometric.nn as pyg

from amphw import frontend as fe
from benchmarks.others.whole import Case, Data, Pieces, counted

INPUTS, WIDTH, CLASSES, LAYERS, HEADS, MOST = 5, 8, 3, 2, 2, 8

SPEC = fe.Record(
    g=fe.Graph({"x": fe.Floats(INPUTS)}, {}, {"label": fe.Int(CLASSES)}, most_nodes=MOST, most_edges=MOST**2)
)


def graphs(count: int, seed: int) -> Data:
    """Graphs in which every node has an edge to itself, labelled with what most of their edges begin at."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        nodes = int(rng.integers(2, MOST + 1))
        features = rng.normal(size=(nodes, INPUTS)).astype(np.float32)
        edges = [(a, b) for a in range(nodes) for b in range(nodes) if a == b or rng.random() < 2 / nodes]
        label = int(sum(features[a, :CLASSES] for a, _ in edges).argmax())
        made.append({"g": {"edges": edges, "x": features, "label": label}})
    return made


def ends(x: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The nodes' features, and the edges' ends [2, edges]."""
    return torch.tensor(x["g"]["x"]).double(), torch.tensor(x["g"]["edges"]).T


# --- Graph isomorphism network ----------------------------------------------------------------------


def gin() -> torch.nn.Module:
    return pyg.GIN(INPUTS, WIDTH, LAYERS, CLASSES, train_eps=True)


def gin_loss(m: Any, x: dict[str, Any]) -> torch.Tensor:
    return counted(m(*ends(x)).sum(0), x["g"]["label"])


def gin_ours(of: Pieces) -> Callable[[Any], None]:
    """`GINConv` with what a node receives as an operand; its multilayer perceptron is theirs."""

    def own(conv: Any, h: Any, received: Any) -> Any:
        return conv.nn(received + (1 + conv.eps) * h)

    convs, act = [of(f"convs.{k}", own) for k in range(LAYERS)], of("act")

    def model(x: Any) -> None:
        h = x.g.x
        for k, conv in enumerate(convs):
            h = conv(h, fe.receive(fe.send(h, x.g), x.g))
            h = act(h) if k < LAYERS - 1 else h
        fe.classify(fe.reduce(h, "sum", over=x.g.nodes), x.g.label)

    return model


# --- Graph attention network ------------------------------------------------------------------------


def gat() -> torch.nn.Module:
    return pyg.GAT(INPUTS, WIDTH, LAYERS, CLASSES, v2=True, heads=HEADS, act="elu", act_first=False)


def gat_ours(of: Pieces) -> Callable[[Any], None]:
    def scores(conv: Any, there: Any, here: Any) -> Any:
        """What `edge_update` has before its softmax, one column for each head."""
        z = torch.nn.functional.leaky_relu(there + here, conv.negative_slope) * conv.att.view(-1)
        heads = z.chunk(HEADS, -1)
        return torch.cat([heads[k].sum(-1, keepdim=True) for k in range(HEADS)], -1)

    layers = []
    for k in range(LAYERS):
        at = f"convs.{k}"
        ends = of(f"{at}.lin_l"), of(f"{at}.lin_r")
        layers.append((*ends, of(at, scores, "scores"), of(at, lambda conv, x: x + conv.bias, "bias")))
    act = of("act")

    def model(x: Any) -> None:
        h, g = x.g.x, x.g
        for k, (source, target, score, shifted) in enumerate(layers):
            sent, here = fe.send(h, g, source), fe.ungroup(fe.take(target(h), g.target))
            weights = fe.softmax(score(sent, here), over=g)
            heads = [part * weights[head : head + 1] for head, part in enumerate(fe.split(sent, HEADS))]
            if k < LAYERS - 1:
                h = act(shifted(fe.receive(fe.concat(*heads), g)))
            else:
                h = shifted(fe.receive(sum(heads[1:], heads[0]) / HEADS, g))
        fe.classify(fe.reduce(h, "sum", over=g.nodes), g.label)

    return model


# --- Gated graph network, with the gated sum over nodes that it was published with -------------------


def gated() -> torch.nn.Module:
    gate = pyg.MLP([WIDTH, WIDTH, 1], act="tanh", norm=None)
    values = pyg.MLP([WIDTH, CLASSES], norm=None)
    return torch.nn.ModuleDict(
        {
            "conv": pyg.GatedGraphConv(WIDTH, num_layers=3),
            "readout": pyg.AttentionalAggregation(gate, values),
        }
    )


def gated_loss(m: Any, x: dict[str, Any]) -> torch.Tensor:
    return counted(m["readout"](m["conv"](*ends(x))), x["g"]["label"])


def gated_ours(of: Pieces) -> Callable[[Any], None]:
    def message(k: int) -> Callable[[Any, Any], Any]:
        return lambda conv, h: h @ conv.weight[k]

    messages = [of("conv", message(k), f"message{k}", part=k) for k in range(3)]
    cell = of("conv.rnn")
    gate, value = of("readout.gate_mlp"), of("readout.mlp")

    def model(x: Any) -> None:
        g = x.g
        h = fe.concat(g.x, g.x[: WIDTH - INPUTS] * 0.0)
        for sent in messages:
            h = cell(fe.receive(fe.send(h, g, sent), g), h)
        weights = fe.softmax(gate(h), over=g.nodes)
        fe.classify(fe.reduce(weights * value(h), "sum", over=g.nodes), g.label)

    return model


CASES = {
    "gin": Case("torch_geometric.nn.GIN", gin, gin_loss, gin_ours, SPEC, graphs),
    "gat": Case("torch_geometric.nn.GAT (GATv2Conv)", gat, gin_loss, gat_ours, SPEC, graphs),
    "gated": Case(
        "torch_geometric.nn: GatedGraphConv, AttentionalAggregation",
        *(gated, gated_loss, gated_ours, SPEC, graphs),
    ),
}
