"""Replay of a run of the C++ data plane from its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amphw.cpu_runtime.native_plane import NativePlane
from amphw.engine.faults import replay_mismatch
from amphw.ir.device import Mode, Report
from amphw.ir.errors import ExecutionError
from amphw.ir.instance import Instance


class NativeReplay:
    """Drives a plane from the log of a native one: one thread, the same frames, the same bits.

    Instances are submitted as in the logged run: under the same numbers, any time before the log needs them.
    """

    def __init__(self, plane: NativePlane, log: Sequence[tuple[Any, ...]]):
        self.plane, self.events, self.next = plane, log, 0
        plane.engine.replay()
        self.offered: dict[tuple[int, str], tuple[int, int, Instance, Mode]] = {}
        self.active: dict[tuple[int, str], int] = {}

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        self.offered[(instance.number, mode.value)] = (slot, generation, instance, mode)

    def run(self) -> list[Report]:
        """Serve the log until it needs an instance that has not been submitted, or something has retired."""
        engine = self.plane.engine
        while self.next < len(self.events):
            kind, *what = self.events[self.next]
            if kind == "submit" and tuple(what) not in self.offered:
                break
            self.next += 1
            if kind == "submit":
                offer = self.offered.pop((what[0], what[1]))
                self.plane.submit(*offer)
                self.active[(what[0], what[1])] = offer[0]
            elif kind == "start":
                number, unit, direction, keys = what
                engine.replay_start(number, unit, direction, [(self._slot(n, m), at) for n, m, at in keys])
            elif kind == "end":
                engine.replay_end(what[0])
            elif kind == "seal":
                engine.replay_seal(self._unit(what[0]), what[1])
            elif kind == "reduced":
                engine.replay_reduced(self._unit(what[0]))
            elif kind == "retire":
                self._slot(*what)
                del self.active[(what[0], what[1])]
                # A frame may retire several: the next call would find no report of the others.
                if self.next == len(self.events) or self.events[self.next][0] != "retire":
                    break
            else:
                raise replay_mismatch(f"an event '{kind}', which this data plane does not log")
        return self.plane.poll(0.0)

    def _slot(self, number: int, mode: str) -> int:
        try:
            return self.active[(number, mode)]
        except KeyError as missing:
            raise ExecutionError(f"replay: the log runs instance {missing}, which is not in flight") from None

    def _unit(self, node: str) -> int:
        try:
            return self.plane.lowered.by_name[node]
        except KeyError:
            raise replay_mismatch(f"an update of a node '{node}'") from None
