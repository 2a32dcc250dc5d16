"""Records gradients by PyTorch's autograd, for `test_gradients.py`, which needs neither PyTorch nor data.

    python -m tests.gradients.record                 # all entries
    python -m tests.gradients.record ggnn mnist      # some

Needs amphw with its extra `torch`, and the real data sets (`AMPHW_DATA`, or a network to fetch them from).
Run it when a model's graph, its parameters or the tables of its instances have changed. The models in PyTorch
are those of `models.py`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import numpy as np
import torch

from amphw.ir.graph import Graph
from amphw.models import get_model
from tests.gradients.models import ENTRIES, Parameters, TooNear
from tests.gradients.recorded import Arrays, Recorded, save

COUNT, SEED = 50, 1


def drawn(graph: Graph, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Parameters at which no gradient vanishes: biases are not 0, and products as large as what comes in."""
    rng = np.random.default_rng(seed)
    for node in graph.parameterised:
        program = getattr(graph.nodes[node], "program")  # noqa: B009  # of a family that has one
        tables = {i.attr()["param"] for i in program.instrs if i.op == "take"}
        for spec in graph.nodes[node].params:
            fan_in = 4 if spec.name in tables or len(spec.shape) == 1 else spec.shape[0]
            yield f"{node}.{spec.name}", rng.normal(0, fan_in**-0.5, spec.shape).astype(np.float32)


def differentiated(r: Recorded) -> tuple[float, Arrays]:
    """The sum of losses of these instances at these parameters, and its gradients.

    Raises TooNear where float32 might not agree with them.
    """
    cfg, p, total = r.definition.config(**r.config), Parameters(r.parameters), 0.0
    for instance in r.instances:
        loss = ENTRIES[r.name].loss(p, instance, cfg)
        loss.backward()
        total += loss.item()
    gradients = {}
    for key, value in p.all.items():
        if value.grad is None:
            raise SystemExit(f"{r.name}: no instance reads the parameter {key}")
        gradients[key] = value.grad.numpy()
    return total, gradients


def record(name: str) -> Recorded:
    entry = ENTRIES[name]
    model = get_model(entry.model)
    cfg = model.config(**entry.config)
    model.prepare(cfg, SEED)
    instances = model.training(cfg, SEED, 1)[:COUNT]
    r = Recorded(name, entry.model, entry.config, {}, instances, 0.0, {}, f"torch {torch.__version__}")
    for seed in itertools.count(SEED):
        r.parameters = dict(drawn(model.graph(cfg), seed))
        try:
            r.loss, r.gradients = differentiated(r)
        except TooNear:
            print(f"{name}: drawn again")
        else:
            break
    return r


if __name__ == "__main__":
    for wanted in sys.argv[1:] or ENTRIES:
        made = record(wanted)
        path = save(made)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB, loss {made.loss:.4f}")
