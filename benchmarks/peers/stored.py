"""Instances and parameters as they come from the other side: plain arrays in an `.npz` file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

Arrays = dict[str, np.ndarray]


class StoredInstances:
    """Instances read back from what `amphw.bench.export` wrote.

    Of a table or data array `x` the file has all values in a row (`x`) and each instance's shape (`x:shape`);
    `size` counts what throughput counts.
    """

    def __init__(self, path: str | Path) -> None:
        with np.load(path) as file:
            self._arrays: Arrays = {name: file[name] for name in file.files}
        self.size: np.ndarray = self._arrays["size"]

    def __len__(self) -> int:
        return len(self.size)

    def table(self, name: str) -> list[np.ndarray]:
        """The table of every instance, as int64."""
        return [each.astype(np.int64) for each in self._split(f"table/{name}")]

    def data(self, name: str) -> list[np.ndarray]:
        """The data array of every instance, float32 [rows, width]."""
        return self._split(f"data/{name}")

    def _split(self, key: str) -> list[np.ndarray]:
        shapes = self._arrays[f"{key}:shape"]
        ends = np.cumsum(shapes.prod(axis=1))[:-1]
        pieces = np.split(self._arrays[key], ends)
        return [piece.reshape(shape) for piece, shape in zip(pieces, shapes.tolist(), strict=True)]


def stored_parameters(path: str | Path) -> dict[str, Arrays]:
    """{node: {parameter: array}}; a matrix is [inputs, outputs]."""
    out: dict[str, Arrays] = {}
    with np.load(path) as file:
        for key in file.files:
            node, name = key.split("/")
            out.setdefault(node, {})[name] = file[key]
    return out
