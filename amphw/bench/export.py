"""The instances of a benchmark; and they and the initial parameters as plain arrays, for `peers.stored`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from amphw.host.config import RunConfig
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule, initial_parameters


def chosen_instances(model: Any, cfg: RunConfig[Any], count: int) -> list[Instance]:
    """The first `count` training instances of the first epoch, numbered."""
    everything = model.training(cfg.model, cfg.train.seed, 1, cfg.train.train_instances)
    chosen = [everything[i] for i in range(min(count, len(everything)))]
    for number, instance in enumerate(chosen):
        instance.number = number
    return chosen


def export_instances(path: Path, instances: Sequence[Instance], size: Callable[[Instance], int]) -> None:
    """Write instances that have the same tables; `size` is the model's."""
    arrays: dict[str, np.ndarray] = {"size": np.array([size(i) for i in instances], np.int64)}
    first = instances[0]
    for name in first.tables:
        _put(arrays, f"table/{name}", [i.tables[name] for i in instances])
    for name in first.data:
        _put(arrays, f"data/{name}", [i.data[name] for i in instances])
    np.savez(path, **arrays)  # type: ignore[arg-type]  # the stubs take the first array for a flag


def export_parameters(path: Path, graph: Graph, seed: int) -> None:
    """Write the values that a device starts with under this seed, as `node/parameter`."""
    owners = {name: graph.nodes[name].params for name in graph.parameterised}
    started = initial_parameters(owners, {"*": UpdateRule()}, seed)
    arrays = {f"{node}/{name}": w for node, p in started.items() for name, w in p.values.items()}
    np.savez(path, **arrays)  # type: ignore[arg-type]


def _put(arrays: dict[str, np.ndarray], key: str, pieces: Iterable[np.ndarray]) -> None:
    pieces = list(pieces)
    arrays[key] = np.concatenate([piece.ravel() for piece in pieces])
    arrays[f"{key}:shape"] = np.array([piece.shape for piece in pieces], np.int64)
