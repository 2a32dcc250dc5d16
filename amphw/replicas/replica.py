"""One replica among others, as the host knows it (`host.replication.Replication`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from amphw.host.replication import Share
from amphw.host.run_model import InstanceSet
from amphw.ir.device import Device
from amphw.replicas.collectives import all_reduce
from amphw.replicas.gradients import accumulated, give
from amphw.replicas.strategy import Strategy
from amphw.replicas.transport import Transport

STOP, PAUSE, THROUGH = range(3)


class Replica:
    """Ranks go in step: each takes part in every exchange, with zero rows once it has no more windows."""

    def __init__(self, transport: Transport, strategy: Strategy):
        self.transport, self.strategy = transport, strategy
        self.leads = transport.rank == 0
        self._wants = np.zeros(3, np.int64)
        self._agreed = np.zeros(3, np.int64)

    def share(self, instances: InstanceSet, start: int, window: int) -> Share:
        rank, ranks, count = self.transport.rank, self.transport.ranks, len(instances)
        blocks = range(start + rank * window, count, ranks * window)
        return Share(instances, [i for first in blocks for i in range(first, min(first + window, count))])

    def update(self, device: Device) -> None:
        self._exchange(device, through=False)

    def settle(self, device: Device) -> None:
        while not self._exchange(device, through=True):
            pass

    def _exchange(self, device: Device, through: bool) -> bool:
        """One step of all ranks -> whether all of them are through with their windows."""
        flags = self._wants.copy()
        flags[THROUGH] = through
        all_reduce(self.transport, flags)
        self._agreed, self._wants = flags, np.zeros(3, np.int64)
        gradients = accumulated(device)
        self.strategy.exchange(gradients, self.transport)
        give(device, gradients)
        device.update()
        return int(flags[THROUGH]) == self.transport.ranks

    def stopping(self, wanted: bool) -> bool:
        self._wants[STOP] = self._wants[STOP] or wanted
        return bool(self._agreed[STOP])

    def pausing(self, wanted: bool) -> bool:
        self._wants[PAUSE] = self._wants[PAUSE] or (wanted and self.leads)
        return bool(self._agreed[PAUSE])

    def total(self, values: Sequence[float]) -> list[float]:
        sums = np.array(values, np.float64)
        all_reduce(self.transport, sums)
        return [float(v) for v in sums]
