"""Replay of a run of the C++ engine from its log."""

from __future__ import annotations

from collections.abc import Sequence

from amphw.engine.firings import Firings
from amphw.engine.plane import EnginePlane
from amphw.engine.policy import KINDS
from amphw.ir.device import Mode, Report
from amphw.ir.errors import ExecutionError
from amphw.ir.instance import Instance
from amphw.ir.service_log import INTERVAL, UPDATE, ReplayDiffers, ServiceLog, not_ready
from amphw.ir.state import OUT_OF_DOMAIN


class EngineReplay:
    """Drives a plane from a log: one thread, the same frames, the same bits.

    Instances are submitted as in the logged run: under the same numbers, any time before the log needs them.
    """

    def __init__(self, plane: EnginePlane, log: ServiceLog):
        self.plane, self.events, self.next = plane, log, 0
        self.firings = Firings(plane.lowered)
        plane.engine.replay()
        self.offered: dict[tuple[int, str], tuple[int, int, Instance, Mode]] = {}
        self.active: dict[tuple[int, str], int] = {}

    @property
    def left(self) -> int:
        """Instances that wait though the log has ended; 0 while it goes on."""
        return 0 if self.next < len(self.events) else len(self.offered) + len(self.active)

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
                self.firings.admit((what[0], what[1]), offer[2])
            elif kind == "start":
                self._start(*what)
            elif kind == "end":
                self.end(what[0])
            elif kind == "seal":
                # An interval's is sealed again with the frame that completes it.
                if what[1] != INTERVAL:
                    self.seal(self._unit(what[0], "an update"), what[1] == UPDATE)
            elif kind == "reduced":
                self.reduced(self._unit(what[0], "an update"))
            elif kind == "retire":
                self._slot(*what)
                del self.active[(what[0], what[1])]
                self.firings.retire((what[0], what[1]))
                # A frame may retire several: the next call would find no report of the others.
                if self.next == len(self.events) or self.events[self.next][0] != "retire":
                    break
            elif kind == "counts":
                raise ExecutionError(
                    "replay: this log counts gradient rows when frames have ended, as the numpy data plane "
                    "does; replay it there (AMPHW_ENGINE=numpy) or on the reference"
                )
            else:
                raise ReplayDiffers(f"an event '{kind}', which this data plane does not log")
        return self.plane.poll(0.0)

    def _start(
        self, number: int, node: str, kind: str, firings: Sequence[tuple[int, str, tuple[int, ...]]]
    ) -> None:
        unit = self._unit(node, "a frame")
        keys = []
        for instance, mode, state in firings:
            slot = self._slot(instance, mode)
            firing = self.firings.of((instance, mode), unit).address_of(state)
            if firing == OUT_OF_DOMAIN:
                raise not_ready(node, kind, instance, state)
            keys.append((slot, firing))
        if kind not in KINDS:
            raise ReplayDiffers(f"a frame of the kind '{kind}'")
        self.start(number, unit, KINDS.index(kind), keys)

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

    def _unit(self, node: str, what: str) -> int:
        try:
            return self.plane.lowered.by_name[node]
        except KeyError:
            raise ReplayDiffers(f"{what} of a node '{node}'") from None
