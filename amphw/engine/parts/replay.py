"""Replay of a run on several devices: the engine's log says when each part was handed what, and answered."""

from __future__ import annotations

import time
from collections.abc import Mapping

from amphw.engine.parts.driver import LOOK, PartDriver
from amphw.engine.parts.part import PartResult
from amphw.engine.parts.region import Regions
from amphw.engine.plane import EnginePlane
from amphw.engine.replay import EngineReplay
from amphw.ir.device import Mode
from amphw.ir.instance import Instance
from amphw.ir.service_log import ReplayDiffers, ServiceLog


class RegionReplay(EngineReplay):
    """Every frame of an executor outside of the engine is waited for before the next one begins.

    regions: None where there are none.
    """

    def __init__(self, plane: EnginePlane, log: ServiceLog, regions: Regions | None) -> None:
        super().__init__(plane, log)
        self.regions = regions
        self._begun: dict[int, int] = {}  # unit of each frame of an executor

    def _outside(self, unit: int) -> Regions | None:
        """Where the unit is computed, if an executor does that."""
        return self.regions if self.regions is not None and self.regions.runs(unit) else None

    def start(self, number: int, unit: int, direction: int, keys: list[tuple[int, int]]) -> None:
        if (regions := self._outside(unit)) is None:
            super().start(number, unit, direction, keys)
            return
        self._begun[number] = unit
        regions.replay_start(number, unit, direction, keys)

    def end(self, number: int) -> None:
        unit = self._begun.pop(number, -1)
        if self.regions is None or unit < 0:
            super().end(number)
        else:
            self.regions.replay_end(number, unit)

    def seal(self, unit: int, due: bool) -> None:
        super().seal(unit, due)
        if self._outside(unit) is not None:
            self.plane.check()
            if not due:
                self.reduced(unit)

    def reduced(self, unit: int) -> None:
        if (regions := self._outside(unit)) is None:
            super().reduced(unit)
            return
        if not regions.has(unit):
            raise ReplayDiffers("an update of a node without parameters")
        regions.reduce(unit, until_due=True)
        regions.complete()


class PartReplay(RegionReplay):
    """drivers: by unit that a part computes. Their threads are not running: this one serves the parts.

    A part gets its frames in the logged order, and is the same to the bit if it depends on nothing else.
    """

    def __init__(
        self,
        plane: EnginePlane,
        log: ServiceLog,
        drivers: Mapping[int, PartDriver],
        regions: Regions | None = None,
    ) -> None:
        super().__init__(plane, log, regions)
        self.drivers = drivers
        self._out: dict[int, PartDriver] = {}  # frames that parts have
        self._came: dict[int, PartResult] = {}

    def pump(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        for driver in dict.fromkeys(self.drivers.values()):
            if not driver.begin(slot, generation, instance, mode):
                raise ReplayDiffers(f"instance {instance.number}, for which {driver.label} has no room")

        def submit() -> None:
            super(PartReplay, self).pump(slot, generation, instance, mode)

        if self.regions is None:
            submit()
        elif not self.regions.pump(submit, slot, instance, mode):
            # The logged run had room: what is only kept for later may be more by now.
            self.plane.engine.trim()
            if not self.regions.pump(submit, slot, instance, mode):
                raise ReplayDiffers(f"instance {instance.number}, for which there is no room")

    def start(self, number: int, unit: int, direction: int, keys: list[tuple[int, int]]) -> None:
        driver = self.drivers.get(unit)
        if driver is None:
            super().start(number, unit, direction, keys)
            return
        frame = driver.framed(self.plane.engine.replay_hand_out(number, unit, direction, keys))
        self.plane.check()
        assert frame is not None
        self._out[number] = driver
        driver.give(frame)

    def end(self, number: int) -> None:
        driver = self._out.pop(number, None)
        if driver is None:
            super().end(number)
            return
        begun = time.perf_counter()
        while number not in self._came:
            found = driver.part.finished(LOOK)
            if not found and time.perf_counter() - begun > driver.patience:
                raise ReplayDiffers(f"the end of frame {number}, which {driver.label} has not done by then")
            self._came |= {result.number: result for result in found}
        driver.bring_back(self._came.pop(number))
        self.plane.check()
