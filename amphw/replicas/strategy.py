"""Strategies: how ranks keep their parameters together. Each has a file of its own; none knows a carrier."""

from __future__ import annotations

from typing import Protocol

from amphw.ir.device import Device
from amphw.replicas.packed import Traffic
from amphw.replicas.transport import Transport


class Strategy(Protocol):
    """name: as in `replicas.strategy`.

    in_step: whether ranks exchange with every update of a mode in which the controller updates; the others
    exchange between rounds of instances, whatever the mode.
    """

    name: str
    in_step: bool

    def begin(self, device: Device) -> None:
        """Training goes on from what the device holds, which is the same on all ranks."""
        ...

    def exchange(self, device: Device, transport: Transport, traffic: Traffic) -> None:
        """Make this rank's device and the others' agree; all ranks call it, also one whose nodes have
        accumulated nothing. Nothing is in flight."""
        ...
