"""What lies beyond a device: whoever sends to its nodes, and takes what they send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from amphw.engine.lowering.lower import Path
from amphw.engine.lowering.plan import PathTable
from amphw.ir.device import Mode
from amphw.rtl.driver.active import Active
from amphw.rtl.driver.layout import path_table
from amphw.rtl.driver.losses import LossUnit
from amphw.rtl.driver.sources import SourceUnit

if TYPE_CHECKING:
    from amphw.rtl.driver.device import HardwareDevice


@dataclass(frozen=True)
class Sent:
    """A message of a node of the device, sent along `path` by its firing `at`.

    table, delivery: of the path's deliveries, which one. values: float32 [rows, width]. answer: header fields
    of its gradient.
    """

    path: Path
    at: int
    table: PathTable
    delivery: int
    values: np.ndarray
    answer: Mapping[str, int]


class Border(Protocol):
    """Of one device, which calls these methods."""

    def prepare(self) -> None:
        """The device has a plan."""
        ...

    def begin(self, a: Active) -> None:
        """The device has been sent an instance's tables; `HardwareDevice.deliver` sends it messages."""
        ...

    def sent(self, a: Active, message: Sent) -> None:
        """In training, `HardwareDevice.answer` owes it a gradient."""
        ...

    def returned(self, a: Active, place: int, gradient: np.ndarray) -> None:
        """A message that was delivered at `place` came back: words of its gradient."""
        ...

    def idle(self, a: Active) -> None:
        """Nothing is left to do of what was delivered; said of instances that infer."""
        ...


class HostBorder:
    """Sources and losses run on the host, with everything else on the device."""

    def __init__(self, device: HardwareDevice):
        self.device = device

    def prepare(self) -> None:
        units = self.device.plan.lowered.units
        self._sources = [SourceUnit(u) for u in units if u.behaviour.is_source]
        self.losses = {u.index: LossUnit(u) for u in units if u.behaviour.report}
        self._answers: dict[tuple[int, int, int, int], Mapping[str, int] | None] = {}

    def begin(self, a: Active) -> None:
        d = self.device
        for loss in self.losses.values():
            loss.begin(a.slot, a.layout.plan, a.instance)
        for source in self._sources:
            for path in source.unit.out:
                table = path_table(d.plan, a.layout.plan, path)
                for k in range(len(table.firing)):
                    payload = source.payload(a.instance, path, table, k)
                    if path.target in d.plan.partition.number:
                        d.deliver(a, path, table, k, payload)
                    else:
                        self._arrive(a, path, table, k, payload, None)

    def sent(self, a: Active, message: Sent) -> None:
        m = message
        self._arrive(a, m.path, m.table, m.delivery, m.values, m.answer)

    def returned(self, a: Active, place: int, gradient: np.ndarray) -> None:
        self._settle(a)

    def idle(self, a: Active) -> None:
        if not a.at_losses:
            self._retire(a)

    def _arrive(
        self,
        a: Active,
        path: Path,
        table: PathTable,
        delivery: int,
        payload: np.ndarray,
        answer: Mapping[str, int] | None,
    ) -> None:
        """A message reaches a loss; answer: where its gradient must go, None for a source's."""
        d, loss = self.device, self.losses[path.target]
        firing, position = int(table.firing[delivery]), int(table.position[delivery])
        a.at_losses += 1
        d.stats.forward += a.report.mode is Mode.TRAIN
        self._answers[a.slot, path.target, path.operand, position] = answer
        got = loss.arrive(a.slot, a.layout.plan, firing, path.operand, position, payload, a.report)
        if got is None:
            return
        a.at_losses -= len(got)
        d.watcher.loss(a, path.target, firing)
        for operand, at, gradient in got:
            back = self._answers.pop((a.slot, path.target, operand, at))
            if a.report.mode is not Mode.TRAIN:
                continue
            d.stats.backward += 1
            if back is not None:
                d.answer(a, back, gradient)
        self._settle(a)

    def _settle(self, a: Active) -> None:
        if a.report.mode is Mode.TRAIN and a.unreturned == 0 and not a.at_losses:
            self._retire(a)

    def _retire(self, a: Active) -> None:
        for loss in self.losses.values():
            loss.end(a.slot, a.report)
        self.device.retire(a)
        self.device.report(a)
