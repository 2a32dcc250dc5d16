"""The Transformer encoder in JAX, over sequences that are padded to a few lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .jax_task import JaxTask, Parameters, classified, grid
from .stored import StoredInstances
from .task import of_nearly_one_length

EPSILON = 1e-5  # of a layer's normalisation
STEP = 4  # letters by which the lengths that are compiled differ


class Encoders(JaxTask):
    """Our nodes are embed, place and head, and those of layers: parts0, mix0, seen0, inner0, outer0,
    thought0, parts1, .."""

    def load(self, stored: StoredInstances) -> None:
        self._texts = list(zip(*map(stored.table, ("text_letter", "text_other")), strict=True))
        self._lengths = np.array([len(letters) for letters, _ in self._texts])

    @property
    def units(self) -> int:
        return len(self._texts)

    def groups(self, order: np.ndarray, size: int) -> Iterator[np.ndarray]:
        """Where the form says so, batches of nearly equal lengths."""
        if self.form.name == "bucketed-einsum":
            return of_nearly_one_length(self._lengths, order, size)
        return super().groups(order, size)

    def rows(self, batch: Mapping[str, Any]) -> int:
        return int(batch["count"])

    def collate(self, chosen: Sequence[int]) -> dict[str, Any]:
        """letter, other, inside: [sequences, longest]."""
        letters, others = zip(*(self._texts[i] for i in chosen), strict=True)
        (letter, inside), (other, _) = grid(letters, STEP), grid(others, STEP)
        return {"letter": letter.T, "other": other.T, "inside": inside.T, "count": int(inside.sum())}

    def loss(self, p: Parameters, batch: Mapping[str, Array]) -> tuple[Array, Array]:
        sequences, longest = batch["letter"].shape
        # A table of few rows is quicker multiplied than read: its gradient is a product too.
        letters = jax.nn.one_hot(batch["letter"], len(p["embed"]["E"]))
        places = jnp.pad(p["place"]["E"], ((0, STEP), (0, 0)))[:longest]
        h = (letters @ p["embed"]["E"] + places).reshape(sequences * longest, -1)
        there, heads = batch["inside"][:, None, None], self.settings["heads"]
        for number in range(sum(name.startswith("parts") for name in p)):
            parts = _affine(p, f"parts{number}", h).reshape(sequences, longest, 3, heads, -1)
            q, k, v = parts.transpose(2, 0, 3, 1, 4)  # each [sequences, heads, longest, columns]
            scores = q @ k.swapaxes(2, 3) * q.shape[3] ** -0.5
            looked = jax.nn.softmax(jnp.where(there, scores, -jnp.inf)) @ v
            looked = looked.transpose(0, 2, 1, 3).reshape(h.shape)
            h = _normalised(p, f"seen{number}", h + _affine(p, f"mix{number}", looked))
            inner = jax.nn.relu(_affine(p, f"inner{number}", h))
            h = _normalised(p, f"thought{number}", h + _affine(p, f"outer{number}", inner))
        return classified(_affine(p, "head", h), batch["other"].ravel(), batch["inside"].ravel())


def _affine(p: Parameters, node: str, x: Array) -> Array:
    return x @ p[node]["W"] + p[node]["b"]


def _normalised(p: Parameters, node: str, x: Array) -> Array:
    off = x - x.mean(1, keepdims=True)
    unit = off * jax.lax.rsqrt((off * off).mean(1, keepdims=True) + EPSILON)
    return unit * p[node]["scale"] + p[node]["shift"]
