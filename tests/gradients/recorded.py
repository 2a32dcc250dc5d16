"""Recorded gradients as files: everything that is needed to compute them again, and what they were.

One `.npz` a model, or a configuration of it, which needs no data set: a table or data array of all instances
is stored in a row, with its shape in each instance.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.start import starting_at
from amphw.models import MODELS, Model

FOLDER = Path(__file__).parent

Arrays = dict[str, np.ndarray]


@dataclass
class Recorded:
    """name: of the file. model: its name. config: of its configuration. parameters, gradients: by
    `node.parameter`.

    loss: the sum over all rows of all instances, as the gradients are of. by: what computed them.
    """

    name: str
    model: str
    config: dict[str, Any]
    parameters: Arrays
    instances: list[Instance]
    loss: float
    gradients: Arrays
    by: str

    @property
    def definition(self) -> Model[Any]:
        return MODELS[self.model]

    def graph(self) -> Graph:
        """The model's graph, starting at the recorded parameters."""
        values: dict[str, Arrays] = {}
        for name, array in self.parameters.items():
            node, _, parameter = name.rpartition(".")
            values.setdefault(node, {})[parameter] = array
        return starting_at(self.definition.graph(self.definition.config(**self.config)), values)


def names() -> list[str]:
    """What has recorded gradients: models, and configurations of them."""
    return sorted(path.stem for path in FOLDER.glob("*.npz"))


def save(r: Recorded, folder: Path = FOLDER) -> Path:
    about = json.dumps({"model": r.model, "config": r.config, "loss": r.loss, "by": r.by})
    arrays: dict[str, Any] = {"about": np.array(about)}
    arrays |= {f"parameter/{name}": a.astype(np.float32) for name, a in r.parameters.items()}
    arrays |= {f"gradient/{name}": a.astype(np.float32) for name, a in r.gradients.items()}
    for attr in r.instances[0].attrs:
        arrays[f"attr/{attr}"] = np.array([i.attrs[attr] for i in r.instances], np.int32)
    for kind, parts in (("table", [i.tables for i in r.instances]), ("data", [i.data for i in r.instances])):
        for name in parts[0]:
            arrays |= _packed(f"{kind}/{name}", [each[name] for each in parts])
    path = folder / f"{r.name}.npz"
    np.savez_compressed(path, **arrays)
    return path


def load(name: str, folder: Path = FOLDER) -> Recorded:
    with np.load(folder / f"{name}.npz") as file:
        arrays: Arrays = dict(file)
    attrs = _group(arrays, "attr")
    tables, data = (
        {n: _unpacked(a, arrays[f"shape/{kind}/{n}"]) for n, a in _group(arrays, kind).items()}
        for kind in ("table", "data")
    )
    instances = [
        Instance(
            {n: int(a[k]) for n, a in attrs.items()},
            {n: each[k] for n, each in tables.items()},
            {n: each[k] for n, each in data.items()},
            k,
        )
        for k in range(len(next(iter(attrs.values()))))
    ]
    return Recorded(
        name=name,
        parameters=_group(arrays, "parameter"),
        gradients=_group(arrays, "gradient"),
        instances=instances,
        **json.loads(str(arrays["about"])),
    )


def furthest(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> tuple[str, float]:
    """The parameter whose gradients differ most, and the norm of the difference by that of `expected`."""
    assert found.keys() == expected.keys()
    off = {
        name: float(np.linalg.norm(found[name].astype(np.float64) - g) / np.linalg.norm(g.astype(np.float64)))
        for name, g in expected.items()
    }
    worst = max(off, key=lambda name: off[name])
    return worst, off[worst]


def _group(arrays: Arrays, kind: str) -> Arrays:
    return {key.removeprefix(f"{kind}/"): a for key, a in arrays.items() if key.startswith(f"{kind}/")}


def _packed(key: str, pieces: Sequence[np.ndarray]) -> Arrays:
    shapes = np.array([piece.shape for piece in pieces], np.int32)
    return {key: np.concatenate([piece.ravel() for piece in pieces]), f"shape/{key}": shapes}


def _unpacked(flat: np.ndarray, shapes: np.ndarray) -> list[np.ndarray]:
    pieces = np.split(flat, np.cumsum(shapes.prod(axis=1))[:-1])
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes.tolist(), strict=True)]
