"""What nodes have accumulated, out of a device and into it again, before they update; and values that others
have updated."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from amphw.ir.device import Device, Exchanges
from amphw.ir.exchange import (
    Names,
    NodeGradient,
    Rows,
    give_gradients,
    gradients_of,
    keep_values,
    put_values,
)


def accumulated(device: Device, by_rows: Names) -> dict[str, NodeGradient]:
    """What every node with parameters has summed up, as copies; the device has nothing in flight."""
    if isinstance(device, Exchanges):
        return device.gradients(by_rows)
    device.drain()
    return gradients_of(device.parameters(), by_rows)


def give(device: Device, gradients: Mapping[str, NodeGradient]) -> None:
    """In place of what the nodes have accumulated; their next update applies it."""
    if isinstance(device, Exchanges):
        device.give(gradients)
    else:
        give_gradients(device.parameters(), gradients)


def keep(device: Device, names: Names) -> None:
    """Somebody else updates these."""
    if isinstance(device, Exchanges):
        device.keep(names)
    else:
        keep_values(device.parameters(), names)


def put(device: Device, values: Mapping[str, Mapping[str, np.ndarray | Rows]]) -> None:
    """What has become of parameters that are kept."""
    if isinstance(device, Exchanges):
        device.put(values)
    else:
        device.drain()
        put_values(device.parameters(), values)
