"""What nodes have accumulated, out of a device and into it again, before they update."""

from __future__ import annotations

from collections.abc import Mapping

from amphw.ir.device import Device, Exchanges
from amphw.ir.update import NodeGradient, give_gradients, gradients_of


def accumulated(device: Device) -> dict[str, NodeGradient]:
    """What every node with parameters has summed up, as copies; the device has nothing in flight."""
    if isinstance(device, Exchanges):
        return device.gradients()
    device.drain()
    return gradients_of(device.parameters())


def give(device: Device, gradients: Mapping[str, NodeGradient]) -> None:
    """In place of what the nodes have accumulated; their next update applies it."""
    if isinstance(device, Exchanges):
        device.give(gradients)
    else:
        give_gradients(device.parameters(), gradients)
