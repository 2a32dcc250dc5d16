"""Replay of a logged run on the devices: the same frames in the same order, and so the same bits."""

from __future__ import annotations

from amphw.engine.replay import EngineReplay
from amphw.ir.service_log import ReplayDiffers
from amphw.opencl.run.plane import OpenCLPlane


class OpenCLReplay(EngineReplay):
    """Every frame is waited for before the next one begins."""

    plane: OpenCLPlane

    def start(self, number: int, unit: int, direction: int, keys: list[tuple[int, int]]) -> None:
        job = self.plane.engine.replay_take(number, unit, direction, keys)
        self.plane.check()
        executor = next(e for e in self.plane.executors if e.runs(unit))
        running = executor.run(job, waits=True)
        executor.finish()
        executor.running.remove(running)
        self.plane.fetch_results(executor, running)

    def end(self, number: int) -> None:
        self.plane.engine.commit(number)
        self.plane.check()
        self.plane.engine.ended(number, 0, 0.0)

    def seal(self, unit: int, due: bool) -> None:
        self.plane.engine.replay_seal(unit, due)
        self.plane.check()
        if not due:
            self.reduced(unit)

    def reduced(self, unit: int) -> None:
        if self.plane.lowered.units[unit].name not in self.plane.params:
            raise ReplayDiffers("an update of a node without parameters")
        self.plane.reduce(unit, until_due=True)
        self.plane.complete()
