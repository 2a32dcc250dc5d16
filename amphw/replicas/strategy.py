"""Strategies: how the gradients of one step become the same on all ranks, or their parameters do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from amphw.ir.update import NodeGradient
from amphw.replicas.transport import Transport


class Strategy(Protocol):
    """name: as in `replicas.strategy`."""

    name: str

    def exchange(self, gradients: Mapping[str, NodeGradient], transport: Transport) -> None:
        """In place: what all ranks have accumulated together."""
        ...
