"""What a device did, in its order: the log that replays on the model, and statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amphw.engine import policy
from amphw.ir.device import Mode

if TYPE_CHECKING:
    from amphw.rtl.driver.device import Active, HardwareDevice

FORWARD, INFER, BACKWARD = 0, 1, 2
"""Kinds of runs, as the hardware numbers them."""

KIND_OF_PLANE = {FORWARD: policy.FORWARD, BACKWARD: policy.BACKWARD, INFER: policy.INFER}


class Watcher:
    """Turns events of the device into a log in the form of the numpy plane's.

    writes: of each run, what it was and the words that it wrote, by address; None: not kept.
    """

    def __init__(self, device: HardwareDevice, writes: bool):
        self.device = device
        self._frames = 0
        self._running = 0  # the frame that the engines are at
        self._backward: dict[int, int] = {}  # frames of a node since its last update
        self.writes: list[tuple[dict[str, Any], dict[int, int]]] | None = [] if writes else None

    def note(self, events: list[int]) -> None:
        for event in events:
            what, kind, unit = event & 3, event >> 2 & 3, event >> 4 & 0xFF
            slot, firing, word = event >> 12 & 0xFF, event >> 20 & 0xFFFF, event >> 36 & 0xFFFF
            if what == 3:
                if self.writes is not None and self.writes:
                    self.writes[-1][1][firing] = word - 0x10000 if word & 0x8000 else word
            elif what == 2:
                self._update(unit)
            elif what == 0:
                self._begin(kind, unit, slot, firing)
            else:
                self.device.log.append(("end", self._running))

    def _begin(self, kind: int, unit: int, slot: int, fid: int) -> None:
        d = self.device
        u = d.plan.partition.units[unit]
        a = d._active[slot]
        at = fid - a.at.firings - a.layout.firings[u.index].first
        self._frames += 1
        self._running = self._frames
        d.stats.frames += 1
        keys = [(a.instance.number, a.report.mode.value, at)]
        d.log.append(("start", self._frames, u.index, KIND_OF_PLANE[kind], keys))
        if kind == BACKWARD and u.owns:
            self._backward[u.index] = self._backward.get(u.index, 0) + 1
        need = int(a.layout.plan.units[u.index].need[at])
        d.stats.forward += need * (kind == FORWARD)
        d.stats.backward += need * (kind == BACKWARD)
        if self.writes is not None:
            self.writes.append(({"unit": u.index, "kind": kind, "firing": at, "active": a}, {}))

    def _update(self, unit: int) -> None:
        u = self.device.plan.partition.units[unit]
        self.device.log.append(("flush", u.name, self._backward.pop(u.index, 0), True))
        self.device.log.append(("reduced", u.name))
        self.device.stats.updates += 1

    def loss(self, a: Active, unit: int, firing: int) -> None:
        """A loss has run on the host: its forward frame, and in training its backward one."""
        mode = a.report.mode
        keys = [(a.instance.number, mode.value, firing)]
        for kind in (FORWARD, BACKWARD) if mode is Mode.TRAIN else (INFER,):
            self._frames += 1
            self.device.stats.frames += 1
            self.device.log.append(("start", self._frames, unit, KIND_OF_PLANE[kind], keys))
            self.device.log.append(("end", self._frames))
