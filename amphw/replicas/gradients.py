"""What nodes have accumulated, out of a device and into it again, before they update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from amphw.ir.device import Device


@dataclass
class NodeGradient:
    """Of one node, by parameter the summed gradient, and the gradient rows that it is over.

    Sums and rows are exchanged both, so that shares may be of different sizes.
    """

    rows: int
    arrays: dict[str, np.ndarray]


def accumulated(device: Device) -> dict[str, NodeGradient]:
    """Of every node with parameters; the device has nothing in flight, and is drained."""
    device.drain()
    return {
        node: NodeGradient(p.rows, {name: g.copy() for name, g in p.gradients.items()})
        for node, p in device.parameters().items()
    }


def give(device: Device, gradients: Mapping[str, NodeGradient]) -> None:
    """In place of what the nodes have accumulated; their next update applies it."""
    for node, p in device.parameters().items():
        p.rows = gradients[node].rows
        for name, gradient in p.gradients.items():
            gradient[...] = gradients[node].arrays[name]
