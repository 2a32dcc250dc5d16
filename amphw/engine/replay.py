"""Replay of a run of the C++ engine from its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amphw.engine.faults import replay_mismatch
from amphw.engine.plane import EnginePlane
from amphw.ir.device import Mode, Report
from amphw.ir.errors import ExecutionError
from amphw.ir.instance import Instance


class EngineReplay:
    """Drives a plane from a log: one thread, the same frames, the same bits.

    Instances are submitted as in the logged run: under the same numbers, any time before the log needs them.
    """

    def __init__(self, plane: EnginePlane, log: Sequence[tuple[Any, ...]]):
        self.plane, self.events, self.next = plane, log, 0
        plane.engine.replay()
        self.offered: dict[tuple[int, str], tuple[int, int, Instance, Mode]] = {}
        self.active: dict[tuple[int, str], int] = {}

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        self.offered[(instance.number, mode.value)] = (slot, generation, instance, mode)

    def run(self) -> list[Report]:
        """Serve the log until it needs an instance that has not been submitted, or something has retired."""
        while self.next < len(self.events):
            kind, *what = self.events[self.next]
            if kind == "submit" and tuple(what) not in self.offered:
                break
            self.next += 1
            if kind == "submit":
                offer = self.offered.pop((what[0], what[1]))
                self.pump(*offer)
                self.active[(what[0], what[1])] = offer[0]
            elif kind == "start":
                number, unit, direction, keys = what
                self.start(number, unit, direction, [(self._slot(n, m), at) for n, m, at in keys])
            elif kind == "end":
                self.end(what[0])
            elif kind == "seal":
                self.seal(self._unit(what[0]), what[1])
            elif kind == "reduced":
                self.reduced(self._unit(what[0]))
            elif kind == "retire":
                self._slot(*what)
                del self.active[(what[0], what[1])]
                # A frame may retire several: the next call would find no report of the others.
                if self.next == len(self.events) or self.events[self.next][0] != "retire":
                    break
            else:
                raise replay_mismatch(f"an event '{kind}', which this data plane does not log")
        return self.plane.poll(0.0)

    # What an executor outside the engine does in its own way.

    def pump(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        self.plane.submit(slot, generation, instance, mode)

    def start(self, number: int, unit: int, direction: int, keys: list[tuple[int, int]]) -> None:
        """Begin and compute a frame; keys: (slot, firing)."""
        self.plane.engine.replay_start(number, unit, direction, keys)

    def end(self, number: int) -> None:
        """Deliver a frame."""
        self.plane.engine.replay_end(number)

    def seal(self, unit: int, due: bool) -> None:
        """Close the node's log at this point."""
        self.plane.engine.replay_seal(unit, due)

    def reduced(self, unit: int) -> None:
        """Sum the node's sealed log up to the one that is due, and publish the next version."""
        self.plane.engine.replay_reduced(unit)

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
