"""What becomes of a range of another member's gradients: an update of its own, or a part of the next one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from amphw.ir.errors import NonFiniteError
from amphw.ir.exchange import NodeGradient
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.replicas.ako.flat import Flat
from amphw.replicas.ako.message import Message


def apply_ranges(flat: Flat, parameters: Mapping[str, NodeParameters], messages: Iterable[Message]) -> None:
    """Every received range is an update of its own (Ako, algorithm 1, line 13), also where the node has no
    rows of its own.

    A sum over n updates counts as n times its mean. The optimiser's arrays move on in the range alone, with
    the rate and the scalars of the node's last own update, whose number stays. Clipping was done before sums
    were taken, and decay is each rank's own. Raises NonFiniteError.
    """
    fresh: dict[tuple[str, str], np.ndarray] = {}
    scalars = {node: p.rule.scalars(max(0, p.version - 1), dict(p.state)) for node, p in parameters.items()}
    for message in messages:
        if message.values is None:
            continue
        for piece in flat.inside(message.layout.part(message.partition)):
            node = flat.nodes[piece.node]
            p, (rows, updates) = parameters[node], message.counts[piece.node].tolist()
            if not rows:
                continue
            gradient = message.values[piece.at]
            if not np.isfinite(gradient).all():
                raise NonFiniteError(node, "backward", f"the gradient of '{piece.name}'")
            if p.rule.reduce == "mean":
                gradient = gradient * gradient.dtype.type(updates / rows)
            key = node, piece.name
            if key not in fresh:
                fresh[key] = p.values[piece.name].copy()
            flattened = fresh[key].reshape(-1)
            slots = [slot.reshape(-1)[piece.inside] for slot in p.slots[piece.name]]
            rule = replace(p.rule, reduce="sum", clip=0.0, weight_decay=0.0)
            flattened[piece.inside] = rule.step(flattened[piece.inside], gradient, slots, 1, scalars[node])
    for (node, name), value in fresh.items():
        parameters[node].values = {**parameters[node].values, name: value}


class Joined:
    """Ranges that join the next update: its gradient is then the mean over all rows, its own and received,
    of which each number has as many as came for it."""

    def __init__(self, flat: Flat, rules: Mapping[str, UpdateRule]):
        self._flat, self._rules = flat, rules
        self._sums = np.zeros(flat.size, flat.kind)
        self._rows = np.zeros(flat.size, np.int64)

    def add(self, message: Message) -> None:
        if message.values is None:
            return
        part = message.layout.part(message.partition)
        self._sums[part] += message.values
        for piece in self._flat.inside(part):
            self._rows[part][piece.at] += message.counts[piece.node, 0]

    def into(self, gradients: Mapping[str, NodeGradient]) -> bool:
        """In place: what nodes apply next -> whether anything had been received.

        Whatever a node divides by, the result is the mean over the rows of each number, or the sum where its
        rule takes sums.
        """
        joined = False
        for number, node in enumerate(self._flat.nodes):
            pieces = [piece for piece in self._flat.pieces if piece.node == number]
            most = max((int(self._rows[piece.at].max(initial=0)) for piece in pieces), default=0)
            if not most:
                continue
            given, mean = gradients[node], self._rules[node].reduce == "mean"
            rows = given.rows or most
            for piece in pieces:
                gradient = given.arrays[piece.name]
                received, counts = (a[piece.at].reshape(gradient.shape) for a in (self._sums, self._rows))
                gradient += received
                if mean:
                    gradient *= (rows / np.maximum(given.rows + counts, 1)).astype(gradient.dtype)
            given.rows, joined = rows, True
        self._sums[:] = 0
        self._rows[:] = 0
        return joined
