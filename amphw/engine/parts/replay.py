"""Replay of a run on several devices: the engine's log says when each part was handed what, and answered."""

from __future__ import annotations

import time
from collections.abc import Mapping

from amphw.engine.parts.driver import LOOK, PartDriver
from amphw.engine.parts.part import PartResult
from amphw.engine.plane import EnginePlane
from amphw.engine.replay import EngineReplay
from amphw.ir.device import Mode
from amphw.ir.instance import Instance
from amphw.ir.service_log import ReplayDiffers, ServiceLog


class PartReplay(EngineReplay):
    """drivers: by unit that a part computes. Their threads are not running: this one serves the parts.

    A part gets its frames in the logged order, and is the same to the bit if it depends on nothing else.
    """

    def __init__(self, plane: EnginePlane, log: ServiceLog, drivers: Mapping[int, PartDriver]) -> None:
        super().__init__(plane, log)
        self.drivers = drivers
        self._out: dict[int, PartDriver] = {}  # frames that parts have
        self._came: dict[int, PartResult] = {}

    def pump(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        for driver in dict.fromkeys(self.drivers.values()):
            if not driver.begin(slot, generation, instance, mode):
                raise ReplayDiffers(f"instance {instance.number}, for which {driver.label} has no room")
        super().pump(slot, generation, instance, mode)

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
