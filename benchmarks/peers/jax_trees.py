"""The binary Tree-LSTM in JAX. A batch of trees is computed from the leaves upwards, a piece of a level at a
time (nodes of equal height), in one scan whose pieces are of one size: so few shapes are compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .jax_task import JaxTask, Parameters, classified, padded, unique_rows, upto
from .stored import StoredInstances
from .trees_shape import trees

PIECE = 64
"""Nodes of a piece of a level."""


class TreeLSTM(JaxTask):
    """Our nodes are embed, leaf, branch and head; gates lie as i, o, u and i, o, f_left, f_right, u."""

    sparse = {("embed", "E"): "rows"}

    def load(self, stored: StoredInstances) -> None:
        self._trees = trees(stored)

    @property
    def units(self) -> int:
        return len(self._trees)

    def rows(self, batch: Mapping[str, Any]) -> int:
        return int(batch["count"])

    def collate(self, chosen: Sequence[int]) -> dict[str, Any]:
        """Leaves, then pieces, both padded. What pads a piece has the first leaf for both its children."""
        kept = [self._trees[i] for i in chosen]
        words = np.concatenate([t.word for t in kept])
        leaves = upto(len(words), 256)
        height = [t.height[len(t.word) :] for t in kept]
        # For each inner node: where its children are, as (tree, node), its height and its label.
        place = [np.full(len(t.label), -1) for t in kept]
        at = 0
        for t, where in zip(kept, place, strict=True):
            where[: len(t.word)] = at + np.arange(len(t.word))
            at += len(t.word)
        label = np.full(leaves, -1)
        label[: len(words)] = np.concatenate([t.label[: len(t.word)] for t in kept])
        children, labels, top = [], [label], leaves
        for level in range(1, 1 + max(int(h.max(initial=0)) for h in height)):
            nodes = [
                (k, len(t.word) + i) for k, t in enumerate(kept) for i in np.flatnonzero(height[k] == level)
            ]
            count = upto(len(nodes), PIECE)
            child = [place[k][kept[k].child[n - len(kept[k].word)]] for k, n in nodes]
            children.append(padded(np.array(child), count))
            labels.append(padded(np.array([kept[k].label[n] for k, n in nodes]), count, -1))
            for offset, (k, n) in enumerate(nodes):
                place[k][n] = top + offset
            top += count
        # Pieces that nobody reads make the number of pieces one of few.
        more = upto(top - leaves, 8 * PIECE) - (top - leaves)
        read = padded(np.concatenate(children), upto(top - leaves, 8 * PIECE))
        whole = padded(np.concatenate(labels), top + more, -1)
        rows, word = unique_rows(words, 256, self.vocabulary)
        return {
            "rows": rows,
            "word": padded(word, leaves),
            "child": read.reshape(-1, PIECE, 2).astype(np.int32),
            "label": np.maximum(whole, 0).astype(np.int32),
            "valid": (whole >= 0).astype(np.float32),
            "count": int((whole >= 0).sum()),
        }

    @property
    def vocabulary(self) -> int:
        return int(self._values["embed"]["E"].shape[0])

    def loss(self, p: Parameters, batch: Mapping[str, Array]) -> tuple[Array, Array]:
        width = p["head"]["W"].shape[0]
        gates = p["embed"]["E"][batch["word"]] @ p["leaf"]["W"] + p["leaf"]["b"]
        i, o = jnp.split(jax.nn.sigmoid(gates[:, : 2 * width]), 2, 1)
        c = i * jnp.tanh(gates[:, 2 * width :])
        below = jnp.concatenate([o * jnp.tanh(c), c], 1)
        leaves, pieces = len(below), len(batch["child"])
        states = jnp.zeros((leaves + pieces * PIECE, 2 * width)).at[:leaves].set(below)

        def up(states: Array, piece: tuple[Array, Array]) -> tuple[Array, None]:
            child, at = piece
            both = states[child]  # [nodes, 2, h and c]
            h = both[:, :, :width].reshape(-1, 2 * width)
            gates = h @ p["branch"]["W"] + p["branch"]["b"]
            i, o, left, right = jnp.split(jax.nn.sigmoid(gates[:, : 4 * width]), 4, 1)
            c = i * jnp.tanh(gates[:, 4 * width :]) + left * both[:, 0, width:] + right * both[:, 1, width:]
            new = jnp.concatenate([o * jnp.tanh(c), c], 1)
            return jax.lax.dynamic_update_slice(states, new, (at, 0)), None

        where = leaves + PIECE * jnp.arange(pieces)
        states, _ = jax.lax.scan(up, states, (batch["child"], where))
        logits = states[:, :width] @ p["head"]["W"] + p["head"]["b"]
        return classified(logits, batch["label"], batch["valid"])
