"""Infrequent outer steps, as DiLoCo takes them (Douillard et al., arXiv 2311.08105, algorithm 1).

Between two exchanges each rank trains on its own from the same parameters. What all have moved them by, on
average, then counts as the gradient of an outer optimiser, SGD with Nesterov's momentum, from whose step all
go on. The state of a rank's own optimiser stays its own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from amphw.ir.device import Device
from amphw.ir.graph import Graph
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.replicas.packed import Traffic, all_reduce_packed
from amphw.replicas.strategy import Strategy
from amphw.replicas.table3 import reduced
from amphw.replicas.transport import Transport


class Outer(Strategy):
    """See `Strategy`. rate, momentum: of the outer step.

    The outer momentum is kept by the ranks of one run, and begins at zero in a run that goes on.
    """

    name, in_step = "outer", False

    def __init__(self, rate: float, momentum: float):
        self._rate, self._momentum = rate, momentum
        self._from: dict[str, np.ndarray] = {}
        self._velocity: dict[str, np.ndarray] = {}

    def begin(
        self, device: Device, transport: Transport, graph: Graph, rules: Mapping[str, UpdateRule]
    ) -> None:
        self.moved(device)

    def moved(self, device: Device) -> None:
        self._from = _values(device.parameters())

    def moves(self, ranks: int, size: float, alpha: float | None) -> float:
        return reduced(size, ranks)

    def exchange(self, device: Device, transport: Transport, traffic: Traffic, planned: np.ndarray) -> None:
        device.update()  # what is accumulated belongs to this rank's parameters
        device.drain()
        found = device.parameters()
        moved = {name: self._from[name] - value for name, value in _values(found).items()}
        all_reduce_packed(transport, moved, traffic)
        for name, total in moved.items():
            gradient = total / total.dtype.type(transport.ranks)
            velocity = self._momentum * self._velocity.get(name, np.zeros_like(gradient)) + gradient
            self._velocity[name] = velocity.astype(gradient.dtype)
            step = self._rate * (gradient + self._momentum * velocity)
            self._from[name] = (self._from[name] - step).astype(gradient.dtype)
        for node, p in found.items():
            p.values = {name: self._from[f"{node}.{name}"].copy() for name in p.values}


def _values(found: dict[str, NodeParameters]) -> dict[str, np.ndarray]:
    return {f"{node}.{name}": v.copy() for node, p in found.items() for name, v in p.values.items()}
