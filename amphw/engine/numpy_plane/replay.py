"""Replay of a logged run: one thread serves the frames of the log, in their order, with the same bits.

The log holds what depended on timing: when instances were submitted, which firings made up each frame, when
frames began (they pin a parameter version there) and ended, and which entries each update summed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from amphw.engine.numpy_plane.frames import Frame, Task, compute
from amphw.engine.numpy_plane.gradients import Share
from amphw.engine.numpy_plane.plane import NumpyPlane
from amphw.engine.numpy_plane.slots import Slot
from amphw.ir.device import Mode, Report
from amphw.ir.errors import ExecutionError
from amphw.ir.instance import Instance


class Replay:
    """Drives a plane from a log.

    Instances are submitted as in the logged run: under the same numbers, any time before the log needs them.
    """

    def __init__(self, plane: NumpyPlane, log: Sequence[tuple[Any, ...]]):
        self.plane, self.events = plane, deque(log)
        plane.replaying = True
        self.offered: dict[tuple[int, str], tuple[int, int, Instance, Mode]] = {}
        self.active: dict[tuple[int, str], Slot] = {}
        self.frames: dict[int, Frame] = {}
        self.shares: dict[str, Share] = {}

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        self.offered[(instance.number, mode.value)] = (slot, generation, instance, mode)

    def run(self) -> list[Report]:
        """Serve the log until it needs an instance that has not been submitted, or something has retired."""
        while self.events and not self.plane.done:
            kind, *what = self.events[0]
            if kind == "submit" and tuple(what) not in self.offered:
                break
            self.events.popleft()
            getattr(self, f"_{kind}")(*what)
        done, self.plane.done = self.plane.done, []
        return done

    def _submit(self, number: int, mode: str) -> None:
        offer = self.offered.pop((number, mode))
        self.plane.submit(*offer)
        if offer[0] in self.plane.slots:
            self.active[(number, mode)] = self.plane.slots[offer[0]]

    def _start(self, number: int, unit: int, kind: int, keys: Sequence[tuple[int, str, int]]) -> None:
        try:
            tasks: list[Task] = [(self.active[(n, mode)], at, 0) for n, mode, at in keys]
        except KeyError as missing:
            raise ExecutionError(f"replay: the log runs instance {missing}, which is not in flight") from None
        with self.plane.lock:
            frame = self.plane.begin(unit, kind, tasks)
        compute(frame)
        self.frames[number] = frame

    def _end(self, number: int) -> None:
        frame = self.frames.pop(number)
        with self.plane.lock:
            self.plane.observe(frame)
            self.plane.commit(frame)

    def _flush(self, node: str, n: int, due: bool) -> None:
        log = self.plane.logs[self.plane.lowered.by_name[node]]
        with self.plane.lock:
            self.shares[node] = self.plane.take(log, due, n)

    def _reduced(self, node: str) -> None:
        share = self.shares.pop(node)
        share.log.reduce(share)
        with self.plane.lock:
            self.plane.reduced(share)

    def _retire(self, number: int, mode: str) -> None:
        self.active.pop((number, mode), None)
