"""Records gradients by PyTorch's autograd, for `test_gradients.py`, which needs neither PyTorch nor data.

    python -m tests.gradients.record                 # all models
    python -m tests.gradients.record ggnn mnist      # some

Needs amphw with its extra `torch`, and the real data sets (`AMPHW_DATA`, or a network to fetch them from).
Run it when a model's graph, its parameters or the tables of its instances have changed.

The models are written down here once more as their papers do: loops and recursion over one instance, in
float64, sharing nothing with amphw but the tables and the parameters' names and layout. To add one: a
function of the parameters, an instance and the configuration to the sum of its losses, and a line in MODELS.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.models import get_model
from tests.gradients.recorded import Recorded, save

COUNT, SEED = 50, 1


class Parameters:
    """`p.node.name` is a parameter. Each has a gradient of its own, in float64."""

    def __init__(self, values: dict[str, np.ndarray]) -> None:
        self.all = {n: torch.tensor(v, dtype=torch.float64, requires_grad=True) for n, v in values.items()}

    def __getattr__(self, node: str) -> _Node:
        return _Node(self.all, node)

    def __getitem__(self, node: str) -> _Node:
        return _Node(self.all, node)


@dataclass
class _Node:
    parameters: dict[str, Tensor]
    node: str

    def __getattr__(self, name: str) -> Tensor:
        return self.parameters[f"{self.node}.{name}"]

    def __call__(self, x: Tensor) -> Tensor:
        """x W + b."""
        return x @ self.W + self.b


def table(instance: Instance, name: str) -> Tensor:
    return torch.tensor(np.asarray(instance.tables[name], np.int64))


def classified(logits: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(logits, labels, reduction="sum")


# --- the models -----------------------------------------------------------------------------------------


def list_reduction(p: Parameters, instance: Instance, cfg: Any) -> Tensor:
    h = torch.zeros(instance.attrs["batch"], cfg.hidden, dtype=torch.float64)
    for tokens in table(instance, "tokens"):
        h = torch.relu(p.cell(torch.cat([p.cell.E[tokens], h], 1)))
    return classified(p.head(h), table(instance, "label"))


def mnist(p: Parameters, instance: Instance, cfg: Any) -> Tensor:
    x = torch.tensor(instance.data["image"], dtype=torch.float64)
    for node in ("linear1", "linear2", "linear3"):
        x = torch.relu(p[node](x))
    return classified(p.linear4(x), table(instance, "label"))


def tree_lstm(p: Parameters, instance: Instance, cfg: Any) -> Tensor:
    """Tai et al. (ACL 2015), 3.2, with two children; every node is classified."""
    words, children = table(instance, "word"), table(instance, "child")
    hidden: dict[int, Tensor] = {}

    def visit(node: int) -> tuple[Tensor, Tensor]:
        """h and c of a node. The words come first, then the nodes above them."""
        if node < len(words):
            i, o, u = p.leaf(p.embed.E[words[node]]).chunk(3)
            kept: Any = 0.0
        else:
            (left, c_left), (right, c_right) = map(visit, children[node - len(words)].tolist())
            i, o, f_left, f_right, u = p.branch(torch.cat([left, right])).chunk(5)
            kept = f_left.sigmoid() * c_left + f_right.sigmoid() * c_right
        c = i.sigmoid() * u.tanh() + kept
        h = o.sigmoid() * c.tanh()
        hidden[node] = h
        return h, c

    visit(len(words) + len(children) - 1)
    states = torch.stack([hidden[node] for node in sorted(hidden)])
    return classified(p.head(states), table(instance, "label"))


def ggnn(p: Parameters, instance: Instance, cfg: Any) -> Tensor:
    """Li et al. (ICLR 2016), with the readout of Gilmer et al. (ICML 2017), one bond after the other."""
    kind, source, target = (table(instance, name) for name in ("kind", "source", "target"))
    types = np.repeat(("single", "double", "triple", "aromatic"), instance.tables["of_type"])
    h = list(p.embed.E[kind])
    for _ in range(cfg.steps):
        arrived = [torch.zeros(cfg.hidden, dtype=torch.float64) for _ in h]
        for a, b, name in zip(source.tolist(), target.tolist(), types, strict=True):
            arrived[b] = arrived[b] + p[f"edge_{name}"](h[a])
        h = [gru(p.update, m, each) for m, each in zip(arrived, h, strict=True)]
    y = torch.zeros(cfg.hidden, dtype=torch.float64)
    for k, each in zip(kind, h, strict=True):
        gate, value = p.readout(each).chunk(2)
        y = y + (gate + p.readout.T[k]).sigmoid() * value.tanh()
    dipole = float(instance.tables["mu"][0]) * 1e-4
    return (p.output(y) - (dipole - 2.668) / 1.477).square().sum()


def gru(node: _Node, x: Tensor, h: Tensor) -> Tensor:
    """Cho et al. (2014), with the reset gate behind the product."""
    r_x, z_x, n_x = (x @ node.Wi + node.bi).chunk(3)
    r_h, z_h, n_h = (h @ node.Wh + node.bh).chunk(3)
    z = (z_x + z_h).sigmoid()
    return (1 - z) * (n_x + (r_x + r_h).sigmoid() * n_h).tanh() + z * h


Loss = Callable[[Parameters, Instance, Any], Tensor]

MODELS: dict[str, tuple[Loss, dict[str, Any]]] = {
    "list-reduction": (list_reduction, {"hidden": 12, "embedding": 6, "batch": 3}),
    "mnist": (mnist, {"width": 10, "batch": 2}),
    "tree-lstm": (tree_lstm, {"hidden": 8, "embedding": 10, "vocabulary": 400}),
    "ggnn": (ggnn, {"hidden": 10, "steps": 3}),
}
"""By name: the sum of an instance's losses, and a small configuration."""


# --- recording ------------------------------------------------------------------------------------------


def drawn(graph: Graph, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Parameters at which no gradient vanishes: biases are not 0, and products as large as what comes in."""
    rng = np.random.default_rng(seed)
    for node in graph.parameterised:
        program = getattr(graph.nodes[node], "program")  # noqa: B009  # of a family that has one
        tables = {i.attr()["param"] for i in program.instrs if i.op == "take"}
        for spec in graph.nodes[node].params:
            fan_in = 4 if spec.name in tables or len(spec.shape) == 1 else spec.shape[0]
            yield f"{node}.{spec.name}", rng.normal(0, fan_in**-0.5, spec.shape).astype(np.float32)


def differentiated(
    name: str, parameters: dict[str, np.ndarray], instances: list[Instance], config: dict[str, Any]
) -> tuple[float, dict[str, np.ndarray]]:
    """The sum of losses of these instances, and its gradients."""
    loss_of, _ = MODELS[name]
    cfg, p, total = get_model(name).config(**config), Parameters(parameters), 0.0
    for instance in instances:
        loss = loss_of(p, instance, cfg)
        loss.backward()
        total += loss.item()
    gradients = {}
    for key, value in p.all.items():
        if value.grad is None:
            raise SystemExit(f"{name}: no instance reads the parameter {key}")
        gradients[key] = value.grad.numpy()
    return total, gradients


def record(name: str) -> Recorded:
    model, config = get_model(name), MODELS[name][1]
    cfg = model.config(**config)
    model.prepare(cfg, SEED)
    instances = model.training(cfg, SEED, 1)[:COUNT]
    parameters = dict(drawn(model.graph(cfg), SEED))
    loss, gradients = differentiated(name, parameters, instances, config)
    return Recorded(name, config, parameters, instances, loss, gradients, f"torch {torch.__version__}")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or MODELS:
        made = record(wanted)
        path = save(made)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB, loss {made.loss:.4f}")
