"""What the workloads share in JAX: parameters as trees of arrays, and one compiled step for each shape.

Batches are padded to few shapes, since XLA compiles every shape anew; whatever is padded counts nowhere.
Tables that batches read by rows are updated by rows: a batch brings the rows that it reads, each once, and
the loss is a function of these rows in the table's place.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .rules import Rule, rate
from .stored import Arrays
from .task import Rules, Scores, Task

Parameters = dict[str, dict[str, Array]]
"""By node and name, with our layout: a product is x @ W."""

SLOTS = {"sgd": 0, "momentum": 1, "adagrad": 1, "adam": 2}


class JaxTask(Task):
    """A batch is a dict of arrays, and `count`, where there is one, a number."""

    sparse: Mapping[tuple[str, str], str] = {}
    """By node and name of a table that is read by rows: the name of an array [n] of a batch, with the rows
    that it reads, each once; those that pad it lie beyond the table."""

    def build(self, parameters: Mapping[str, Arrays]) -> None:
        own = {node: dict(values) for node, values in parameters.items()}
        self._values: Parameters = jax.tree.map(jnp.array, own)
        self._scores = jax.jit(self._looked_up)
        self._slopes = jax.jit(jax.grad(lambda p, batch: self._looked_up(p, batch)[0]))

    @abstractmethod
    def loss(self, p: Parameters, batch: Mapping[str, Array]) -> tuple[Array, Array]:
        """Sums of the loss and of the metric over a batch's rows; compiled, and differentiated."""

    @abstractmethod
    def rows(self, batch: Any) -> int:
        """Rows that the loss of a batch is a sum over."""

    def shape(self, batch: Any) -> Any:
        return tuple((name, np.shape(x)) for name, x in sorted(batch.items()))

    def placed(self, batch: Any) -> Any:
        # How many rows there are is a number of Python, as it is asked for without waiting.
        return {name: x if name == "count" else jax.device_put(x) for name, x in batch.items()}

    def finish(self) -> None:
        jax.block_until_ready(self._values)

    def trainer(self, rules: Rules) -> Callable[[Any], None]:
        own = {node: rules[node] for node in self._values}
        for node, rule in own.items():
            if rule["optimizer"] not in SLOTS or rule["clip"] or rule["reduce"] != "mean":
                raise ValueError(f"{node}: this peer knows the rules {', '.join(SLOTS)} alone, without clip")
        slots = jax.tree.map(lambda w: [jnp.zeros_like(w)] * 2, self._values)
        slots = {
            n: {k: pair[: SLOTS[own[n]["optimizer"]]] for k, pair in each.items()}
            for n, each in slots.items()
        }
        slots = jax.tree.map(jnp.copy, slots)  # each a buffer of its own, as they are given away
        compute = jax.jit(partial(self._stepped, own), donate_argnums=(0, 1))
        updates = 0

        def step(batch: Any) -> None:
            nonlocal slots, updates
            rates = {node: np.float32(rate(rule, updates)) for node, rule in own.items()}
            updates += 1
            arrays = {name: x for name, x in batch.items() if name != "count"}
            share = np.float32(1.0 / self.rows(batch))
            self._values, slots = compute(self._values, slots, arrays, share, rates, np.float32(updates))

        return step

    def evaluate(self, batch: Any) -> Scores:
        loss, metric = self._scores(self._values, {n: x for n, x in batch.items() if n != "count"})
        return Scores(float(loss), float(metric), self.rows(batch))

    def gradients(self, batch: Any) -> Arrays:
        found = self._slopes(self._values, {n: x for n, x in batch.items() if n != "count"})
        share = 1.0 / self.rows(batch)
        return {f"{node}/{k}": np.asarray(g) * share for node, each in found.items() for k, g in each.items()}

    def state(self) -> Any:
        return jax.tree.map(np.array, self._values)  # copies: a step gives its buffers away

    def restore(self, state: Any) -> None:
        self._values = jax.tree.map(jnp.array, state)

    def _looked_up(self, p: Parameters, batch: Mapping[str, Array]) -> tuple[Array, Array]:
        return self.loss(self._with_rows(p, batch), batch)

    def _with_rows(self, p: Parameters, batch: Mapping[str, Array]) -> Parameters:
        out = {node: dict(each) for node, each in p.items()}
        for (node, name), rows in self.sparse.items():
            out[node][name] = out[node][name].at[batch[rows]].get(mode="fill", fill_value=0.0)
        return out

    def _stepped(
        self, rules: Rules, p: Parameters, slots: Any, batch: Any, share: Any, rates: Any, count: Any
    ) -> tuple[Parameters, Any]:
        gradients = jax.grad(lambda q: self.loss(q, batch)[0] * share)(self._with_rows(p, batch))
        new: Parameters = {}
        kept: dict[str, dict[str, list[Array]]] = {}
        for node, each in p.items():
            new[node], kept[node] = {}, {}
            for name, w in each.items():
                g, own = gradients[node][name], slots[node][name]
                if (node, name) not in self.sparse:
                    w, own = updated(rules[node], w, g, own, rates[node], count)
                else:
                    rows = batch[self.sparse[node, name]]
                    read = [x.at[rows].get(mode="fill", fill_value=0.0) for x in (w, *own)]
                    made = updated(rules[node], read[0], g, read[1:], rates[node], count)
                    w = w.at[rows].set(made[0], mode="drop", unique_indices=True)
                    own = [
                        x.at[rows].set(y, mode="drop", unique_indices=True)
                        for x, y in zip(own, made[1], strict=True)
                    ]
                new[node][name], kept[node][name] = w, own
        return new, kept


def updated(
    rule: Rule, w: Array, g: Array, slots: list[Array], lr: Any, count: Any
) -> tuple[Array, list[Array]]:
    """A parameter and its slots after update number `count` (from 1), as PyTorch's optimisers have it."""
    if rule["weight_decay"]:
        g = g + rule["weight_decay"] * w
    kind = rule["optimizer"]
    if kind == "momentum":
        slots = [rule["momentum"] * slots[0] + g]
        g = slots[0]
    elif kind == "adagrad":
        slots = [slots[0] + g * g]
        g = g / (jnp.sqrt(slots[0]) + rule["eps"])
    elif kind == "adam":
        b1, b2 = rule["beta1"], rule["beta2"]
        slots = [b1 * slots[0] + (1 - b1) * g, b2 * slots[1] + (1 - b2) * g * g]
        square = slots[1] / (1 - b2**count)
        g = slots[0] / (1 - b1**count) / (jnp.sqrt(square) + rule["eps"])
    return w - lr * g, slots


def classified(logits: Array, labels: Array, valid: Array | None = None) -> tuple[Array, Array]:
    """Sum of the cross-entropy, and number of rows that are right; of those that are valid."""
    scores = jax.nn.log_softmax(logits)
    loss = -jnp.take_along_axis(scores, labels[:, None], 1)[:, 0]
    right = logits.argmax(1) == labels
    if valid is not None:
        return (loss * valid).sum(), (right * valid).sum()
    return loss.sum(), right.sum()


def unique_rows(index: np.ndarray, step: int, beyond: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows that an index reads, each once, padded to a multiple of `step`; and the index among them."""
    rows, among = np.unique(index, return_inverse=True)
    more = upto(len(rows), step) - len(rows)
    return np.concatenate([rows, beyond + np.arange(more)]).astype(np.int32), among.astype(np.int32)


def upto(count: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-count // step) * step


def padded(x: np.ndarray, count: int, value: float = 0) -> np.ndarray:
    """The array with so many rows, of which the last are `value`; integers are of 32 bits."""
    x = x.astype(np.int32) if x.dtype.kind == "i" else x
    return np.concatenate([x, np.full((count - len(x), *x.shape[1:]), value, x.dtype)])


def grid(sequences: Sequence[np.ndarray], step: int) -> tuple[np.ndarray, np.ndarray]:
    """Sequences [longest, sequences], 0 where there is none, and where there is one; longest: a multiple."""
    lengths = np.array([len(each) for each in sequences])
    longest = upto(int(lengths.max()), step)
    inside = np.arange(longest)[:, None] < lengths
    items = np.zeros((longest, len(sequences)), np.int32)
    items.T[inside.T] = np.concatenate(sequences)
    return items, inside
