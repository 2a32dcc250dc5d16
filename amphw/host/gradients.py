"""What nodes have accumulated, out of a device and into it again, before they update, and its clipping; and
values that others have updated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from amphw.ir import received
from amphw.ir.clipping import clip_factor, scale, squares
from amphw.ir.device import Device, Exchanges, Tells
from amphw.ir.errors import AmphwError
from amphw.ir.exchange import (
    Names,
    NodeGradient,
    Rows,
    give_gradients,
    gradients_of,
    keep_values,
    put_values,
)
from amphw.ir.received import Received, Receives
from amphw.ir.update import Applied, NodeParameters, UpdateRule


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


def keep(device: Device, names: Names, away: Names = MappingProxyType({})) -> None:
    """Somebody else updates these. away: tables of them that the device may let go of (`Exchanges.keep`)."""
    if isinstance(device, Exchanges):
        device.keep(names, away)
    else:
        keep_values(device.parameters(), names)


def put(device: Device, values: Mapping[str, Mapping[str, np.ndarray | Rows]]) -> None:
    """What has become of parameters that are kept."""
    if isinstance(device, Exchanges):
        device.put(values)
    else:
        device.drain()
        put_values(device.parameters(), values)


def tell(device: Device) -> None:
    """From now on the device remembers what nodes update with. Raises AmphwError where it cannot."""
    if not isinstance(device, Tells) or not device.tell():
        raise AmphwError(
            f"nodes of the device {device.capabilities().name!r} update by themselves, and it does not say "
            "with what; write --set train.mode=pipeline (or sync), or take --device cpu"
        )


def told(device: Device) -> dict[str, Applied]:
    """What nodes have updated with since the last call, those that have."""
    assert isinstance(device, Tells)
    return device.told()


def receive(device: Device, ranges: Sequence[Received]) -> None:
    """Apply what others have updated with (`amphw.ir.received`); nothing is in flight, unless the device
    `Receives`."""
    if isinstance(device, Receives):
        device.receive(ranges)
    else:
        received.receive(device.parameters(), ranges)


def readable(device: Device) -> dict[str, NodeParameters]:
    """What a drained device computes with: tables that it has let go of with the rows that it has, and zeros
    for others, which it would refuse to read."""
    found = dict(device.parameters())
    for node, tables in device.pulled().items() if isinstance(device, Exchanges) else ():
        shapes = {spec.name: spec.shape for spec in found[node].specs}
        whole = {name: np.empty(shapes[name], rows.values.dtype) for name, rows in tables.items()}
        for name, rows in tables.items():
            rows.into(whole[name])
        found[node] = replace(found[node], values={**found[node].values, **whole})
    return found


@dataclass(frozen=True)
class Clipping:
    """The bound of `train.clip_norm` on the global norm, 0: there is none; rules: those of all nodes."""

    norm: float = 0.0
    rules: Mapping[str, UpdateRule] = field(default_factory=dict)

    @classmethod
    def on(cls, device: Device, norm: float) -> Clipping:
        """For a device that has a graph loaded."""
        return cls(norm, {node: p.rule for node, p in device.parameters().items()} if norm else {})

    def factor(self, gradients: Mapping[str, NodeGradient]) -> float:
        """Of these gradients, which are all that an update applies."""
        return clip_factor(squares(gradients, self.rules), self.norm) if self.norm else 1.0

    def clip(self, gradients: Mapping[str, NodeGradient]) -> bool:
        """In place -> whether it changes them."""
        factor = self.factor(gradients)
        scale(gradients, factor)
        return factor != 1.0

    def update(self, device: Device) -> None:
        """All nodes apply what they have accumulated, clipped."""
        if self.norm:
            gradients = accumulated(device, {})
            if self.clip(gradients):
                give(device, gradients)
        device.update()
