"""Averaging: each rank updates on its own, and from time to time all take the mean of their parameters.

As AMPNet does with the replicas of a node after each epoch (Gaunt et al., arXiv 1705.09786, section 5). Nodes
never wait for another rank in between, so this works in every mode.
"""

from __future__ import annotations

import numpy as np

from amphw.ir.device import Device
from amphw.replicas.collectives import all_reduce
from amphw.replicas.packed import Traffic, all_reduce_packed
from amphw.replicas.strategy import Strategy
from amphw.replicas.table3 import reduced
from amphw.replicas.transport import Transport


class Average(Strategy):
    """See `Strategy`. The state of the optimiser is averaged as well, and so are the nodes' versions."""

    name, in_step = "average", False

    def moves(self, ranks: int, size: float, alpha: float | None) -> float | None:
        return reduced(size, ranks)

    def exchange(self, device: Device, transport: Transport, traffic: Traffic, planned: np.ndarray) -> None:
        device.update()  # what is accumulated belongs to this rank's parameters
        device.drain()
        found = device.parameters()
        arrays = {f"{node}.{name}": a.copy() for node, p in found.items() for name, a in p.tensors().items()}
        all_reduce_packed(transport, arrays, traffic)
        for name, total in arrays.items():
            arrays[name] = (total / transport.ranks).astype(total.dtype)
        nodes = sorted(found)
        counts = [x for node in nodes for x in (found[node].version, *found[node].state.values())]
        counted = np.array(counts, np.float64)
        all_reduce(transport, counted)
        means = iter((counted / transport.ranks).tolist())
        for node in nodes:
            p = found[node]
            version = round(next(means))
            p.restore({name: arrays[f"{node}.{name}"] for name in p.tensors()}, version)
            p.state = {name: next(means) for name in p.state}
