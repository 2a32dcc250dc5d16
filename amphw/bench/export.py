"""Instances and initial parameters as plain arrays, which peers read (`stored.py` there)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule, initial_parameters


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
