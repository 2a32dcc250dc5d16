"""What a rank's nodes have been given to update with in a round of its own, as one vector."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from amphw.ir.exchange import NodeGradient
from amphw.ir.update import Applied, UpdateRule
from amphw.replicas.ako.flat import Flat


class RoundGradient:
    """values: of all parameters (`Flat`), summed over rows and clipped by the rules. counts: int64
    [nodes, 2], of every node the rows and the updates that they are over. `clear` begins anew."""

    def __init__(self, flat: Flat, rules: Mapping[str, UpdateRule]):
        self._flat, self._rules = flat, rules
        self.values = np.zeros(flat.size, flat.kind)
        self.counts = np.zeros((len(flat.nodes), 2), np.int64)

    def note(self, gradients: Mapping[str, NodeGradient]) -> None:
        """What a window has accumulated, one update of each node that has rows."""
        for node, given in gradients.items():
            if given.rows:
                clipped = self._rules[node].clipped(given.arrays, given.rows)
                self.add(node, Applied(given.rows, 1, clipped))

    def add(self, node: str, applied: Applied) -> None:
        number = self._flat.nodes.index(node)
        for piece in self._flat.pieces:
            if piece.node == number:
                self.values[piece.at] += applied.arrays[piece.name].reshape(-1)
        self.counts[number] += applied.rows, applied.updates

    def clear(self) -> None:
        self.values[:] = 0
        self.counts[:] = 0
