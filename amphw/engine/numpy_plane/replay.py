"""Replay of a logged run: one thread serves the frames of the log, in their order, with the same bits.

The log holds what depended on timing: when instances were submitted, which firings made up each frame, when
frames began (they pin a parameter version there) and ended, and which entries each update summed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from amphw.engine.numpy_plane.frames import Frame, Task, compute
from amphw.engine.numpy_plane.gradients import Share
from amphw.engine.numpy_plane.plane import NumpyPlane
from amphw.engine.numpy_plane.slots import Slot
from amphw.engine.policy import KINDS
from amphw.ir.device import Mode, Report
from amphw.ir.errors import ExecutionError
from amphw.ir.instance import Instance
from amphw.ir.service_log import COUNTS_ENDED, SUM, ServiceLog


class Replay:
    """Drives a plane from a log.

    Instances are submitted as in the logged run: under the same numbers, any time before the log needs them.
    """

    def __init__(self, plane: NumpyPlane, log: ServiceLog):
        self.plane, self.events = plane, deque(log)
        if not self.events or self.events.popleft() != COUNTS_ENDED:
            raise ExecutionError(
                "replay: this log is not one of the numpy data plane, which counts gradient rows when frames "
                "have ended; replay it on the C++ data plane or on the reference"
            )
        plane.replaying = True
        self.offered: dict[tuple[int, str], tuple[int, int, Instance, Mode]] = {}
        self.active: dict[tuple[int, str], Slot] = {}
        self.frames: dict[int, Frame] = {}
        self.shares: dict[str, Share] = {}

    @property
    def left(self) -> int:
        """Instances that wait though the log has ended; 0 while it goes on."""
        return 0 if self.events else len(self.offered) + len(self.active)

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

    def _start(
        self, number: int, node: str, kind: str, firings: Sequence[tuple[int, str, tuple[int, ...]]]
    ) -> None:
        unit = self.plane.lowered.by_name[node]
        tasks: list[Task] = []
        for instance, mode, state in firings:
            run = (instance, mode)
            if run not in self.active:
                raise ExecutionError(f"replay: the log runs instance {run}, which is not in flight")
            slot = self.active[run]
            tasks.append((slot, slot.plan.tables.units[unit].space.address_of(state), 0))
        with self.plane.lock:
            frame = self.plane.begin(unit, KINDS.index(kind), tasks)
        compute(frame)
        self.frames[number] = frame

    def _end(self, number: int) -> None:
        frame = self.frames.pop(number)
        with self.plane.lock:
            self.plane.observe(frame)
            self.plane.commit(frame)

    def _seal(self, node: str, cause: str) -> None:
        log = self.plane.logs[self.plane.lowered.by_name[node]]
        with self.plane.lock:
            self.shares[node] = self.plane.take(log, cause)
        if cause == SUM:  # it is the same whenever it is taken, as long as the order is
            self._reduced(node)

    def _reduced(self, node: str) -> None:
        share = self.shares.pop(node)
        share.log.reduce(share)
        with self.plane.lock:
            self.plane.reduced(share)

    def _retire(self, number: int, mode: str) -> None:
        self.active.pop((number, mode), None)
