"""AllReduce: each rank has all parameters, and adds up the gradients of all ranks (Parallax, section 2.2)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from amphw.host.gradients import Clipping, accumulated, give
from amphw.ir.clipping import scale
from amphw.ir.device import Device
from amphw.ir.update import NodeGradient
from amphw.replicas.collectives import all_reduce
from amphw.replicas.packed import Traffic, all_reduce_packed
from amphw.replicas.transport import Transport


class AllReduce:
    """See `Strategy`. Gradients and the rows that they are over are added up: shares may be of different
    sizes. clip_norm: `train.clip_norm`, for what all ranks have accumulated together."""

    name, in_step = "allreduce", True

    def __init__(self, clip_norm: float = 0.0) -> None:
        self._clip_norm = clip_norm

    def begin(self, device: Device) -> None:
        self._clipping = Clipping.on(device, self._clip_norm)

    def exchange(self, device: Device, transport: Transport, traffic: Traffic) -> None:
        gradients = accumulated(device)
        reduce(gradients, transport, traffic)
        scale(gradients, self._clipping.factor(gradients))  # the same bits on all ranks
        give(device, gradients)
        device.update()


def reduce(gradients: Mapping[str, NodeGradient], transport: Transport, traffic: Traffic) -> None:
    """In place: what all ranks have accumulated together."""
    nodes = sorted(gradients)
    rows = np.array([gradients[node].rows for node in nodes], np.int64)
    all_reduce(transport, rows)
    for node, count in zip(nodes, rows.tolist(), strict=True):
        gradients[node].rows = count
    arrays = {f"{node}.{name}": a for node in nodes for name, a in gradients[node].arrays.items()}
    all_reduce_packed(transport, arrays, traffic)
