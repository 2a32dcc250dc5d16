"""The perceptron on images (workload mlp), and the recurrent network on list reduction, in JAX."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .jax_task import JaxTask, Parameters, classified
from .stored import StoredInstances
from .task import of_one_length


class Perceptron(JaxTask):
    """Linear layers with rectifiers between them; our nodes are linear1, linear2, .."""

    def load(self, stored: StoredInstances) -> None:
        self._images = np.concatenate(stored.data("image"))
        self._labels = np.concatenate(stored.table("label")).astype(np.int32)

    @property
    def units(self) -> int:
        return len(self._labels)

    def collate(self, chosen: Sequence[int]) -> dict[str, Any]:
        return {"x": self._images[chosen], "label": self._labels[chosen]}

    def rows(self, batch: Mapping[str, Any]) -> int:
        return len(batch["label"])

    def loss(self, p: Parameters, batch: Mapping[str, Array]) -> tuple[Array, Array]:
        x, names = batch["x"], sorted(p)
        for name in names[:-1]:
            x = jax.nn.relu(x @ p[name]["W"] + p[name]["b"])
        return classified(x @ p[names[-1]]["W"] + p[names[-1]]["b"], batch["label"])


class Recurrent(JaxTask):
    """h' = relu([e, h] W + b) from zero over the tokens; batches are of one length."""

    def load(self, stored: StoredInstances) -> None:
        self._tokens = [column.astype(np.int32) for table in stored.table("tokens") for column in table.T]
        self._lengths = np.array([len(each) for each in self._tokens])
        self._labels = np.concatenate(stored.table("label")).astype(np.int32)

    @property
    def units(self) -> int:
        return len(self._labels)

    def groups(self, order: np.ndarray, size: int) -> Iterator[np.ndarray]:
        """See `of_one_length`."""
        return of_one_length(self._lengths, order, size)

    def collate(self, chosen: Sequence[int]) -> dict[str, Any]:
        return {"tokens": np.stack([self._tokens[i] for i in chosen], 1), "label": self._labels[chosen]}

    def rows(self, batch: Mapping[str, Any]) -> int:
        return len(batch["label"])

    def loss(self, p: Parameters, batch: Mapping[str, Array]) -> tuple[Array, Array]:
        cell, width = p["cell"], p["cell"]["E"].shape[1]
        # What a token adds to the state depends on the token alone: a table of few rows.
        added = (cell["E"] @ cell["W"][:width] + cell["b"])[batch["tokens"]]
        recurrent = cell["W"][width:]
        h = jax.nn.relu(added[0])
        if self.form.name == "scan":
            h, _ = jax.lax.scan(lambda h, x: (jax.nn.relu(x + h @ recurrent), None), h, added[1:])
        else:
            for x in added[1:]:
                h = jax.nn.relu(x + h @ recurrent)
        return classified(h @ p["head"]["W"] + p["head"]["b"], batch["label"])


def lstm(w: Array, b: Array, x: Array, valid: Array, backwards: bool = False) -> tuple[Array, Array]:
    """h behind every item of padded sequences x [longest, sequences, width], and behind the last one of each.

    Our gates are i, f, o and the candidate. Where there is no item the state stays as it is.
    """
    hidden = w.shape[1] // 4
    wide = x.shape[2]
    inputs = x @ w[:wide] + b
    start = jnp.zeros((x.shape[1], hidden))

    def step(state: tuple[Array, Array], item: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        (h, c), (added, there) = state, item
        gates = added + h @ w[wide:]
        i, f, o = jnp.split(jax.nn.sigmoid(gates[:, : 3 * hidden]), 3, 1)
        c_new = f * c + i * jnp.tanh(gates[:, 3 * hidden :])
        h_new = o * jnp.tanh(c_new)
        keep = there[:, None]
        return (jnp.where(keep, h_new, h), jnp.where(keep, c_new, c)), h_new

    (last, _), states = jax.lax.scan(step, (start, start), (inputs, valid), reverse=backwards)
    return states, last
