"""Many arrays as few: what goes around the ring at once, and which part of it is whose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from amphw.replicas.collectives import all_reduce, ring_traffic
from amphw.replicas.transport import Transport
from amphw.replicas.wire import coded_kind


@dataclass
class Traffic:
    """Bytes that one rank has sent and received so far, by parameter (NODE.NAME), and in how many steps.

    touched: of tables that are exchanged by rows, the share of rows that had a gradient, added up over steps.
    wire: how gradients and moves go over the wire (`replicas.wire`). waited: seconds within exchanges in
    which this rank waited for messages of others.
    """

    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    touched: dict[str, float] = field(default_factory=dict)
    waited: float = 0.0
    wire: str = "full"

    def count(self, name: str, sent: int, received: int) -> None:
        self.sent[name] = self.sent.get(name, 0) + sent
        self.received[name] = self.received.get(name, 0) + received


def all_reduce_packed(
    transport: Transport, arrays: Mapping[str, np.ndarray], traffic: Traffic, wire: str = "full"
) -> None:
    """In place, the sums of all ranks' arrays, which have the same names and shapes.

    There is one ring for each type of number.
    """
    for kind in sorted({str(a.dtype) for a in arrays.values()}):
        alike = {name: a for name, a in sorted(arrays.items()) if str(a.dtype) == kind}
        everything = np.concatenate([a.reshape(-1) for a in alike.values()])
        all_reduce(transport, everything, wire)
        at = 0
        for name, a in alike.items():
            extent = slice(at, at + a.size)
            a[...] = everything[extent].reshape(a.shape)
            sent, received = ring_traffic(everything.size, extent, transport.rank, transport.ranks)
            size = coded_kind(a.dtype, wire).itemsize
            traffic.count(name, sent * size, received * size)
            at += a.size
