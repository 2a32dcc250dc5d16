"""The newest part of a run's service log, with its instances: what a report walks through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from amphw.ir.device import Mode, Report
from amphw.ir.instance import Instance
from amphw.ir.service_log import Event, Run

MOST = 100_000
"""Firings that are kept, at least, where there were as many."""


class Recent:
    """Keeps the newest `most` firings or up to twice as many; what is older goes. A quarter of them may be of
    validation, which has no gradients to show: of more of it only the first instances are kept.

    updates: by node, how often its parameters were published before the first event that is kept. instances,
    losses: of those that have retired, by number and mode; an instance that ran more than once has its last.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.events: list[Event] = []
        self.updates: Counter[str] = Counter()
        self.instances: dict[Run, Instance] = {}
        self.losses: dict[Run, float] = {}
        self._firings = self._inferred = 0
        self._left_out: set[Run] = set()

    def take(self, events: Sequence[Event]) -> None:
        """What a device has logged since the last call."""
        for event in events:
            if self._wanted(event):
                self.events.append(event)
                self._count(event, 1)
        if self._firings > 2 * self.most:
            self._let_go()

    def reported(self, report: Report, instance: Instance) -> None:
        """An instance has retired."""
        run = report.number, report.mode.value
        self.instances[run] = instance
        # The first figure of a loss node is its loss, of as many rows as it has.
        self.losses[run] = sum(next(iter(sums.values())) for sums in report.sums.values() if sums)

    def _wanted(self, event: Event) -> bool:
        if event[0] == "submit":
            run = event[1], event[2]
            if event[2] == Mode.INFER.value and self._inferred >= self.most // 4:
                self._left_out.add(run)
            else:
                self._left_out.discard(run)
            return run not in self._left_out
        if event[0] == "start":
            return any((number, mode) not in self._left_out for number, mode, _ in event[4])
        return event[0] != "retire" or (event[1], event[2]) not in self._left_out

    def _count(self, event: Event, sign: int) -> None:
        if event[0] == "start":
            self._firings += sign * len(event[4])
            self._inferred += sign * sum(mode == Mode.INFER.value for _, mode, _ in event[4])

    def _let_go(self) -> None:
        """Of the oldest events, until no more than `most` firings are left."""
        at = 0
        gone: set[Run] = set()
        while self._firings > self.most:
            event = self.events[at]
            at += 1
            self._count(event, -1)
            if event[0] == "reduced":
                self.updates[event[1]] += 1
            elif event[0] == "retire":
                gone.add((event[1], event[2]))
        del self.events[:at]
        for run in gone - {(event[1], event[2]) for event in self.events if event[0] in ("submit", "retire")}:
            self.instances.pop(run, None)
            self.losses.pop(run, None)
