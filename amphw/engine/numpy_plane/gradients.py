"""When gradients of one node's parameters are summed, and when they become an update.

Backward frames log their rows `(a, dz)`; the product that makes a weight gradient of them waits until there
are enough rows to be worth it, or until the interval is complete. Rows are counted once, when the frame is
committed. One worker at a time reduces a node's log, in the order in which frames were committed, so every
partial sum is taken exactly once and a replayed run makes the same sums.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amphw.engine.numbering import WORTH_REDUCING
from amphw.engine.numpy_plane.arithmetic import Entry, UnitParameters
from amphw.ir.update import NodeParameters


@dataclass
class GradientLog:
    """One node's log of what has not been reduced yet.

    taken: rows of a share that is being reduced and completes no interval. closing: a share that does is
    being reduced, so that what has been accumulated belongs to the interval before this one.
    """

    held: UnitParameters
    entries: list[Entry] = field(default_factory=list)
    logged: int = 0
    taken: int = 0
    closing: bool = False
    busy: bool = False
    waiting: list[Any] = field(default_factory=list)  # slots that retire only once the update is published

    @property
    def node(self) -> str:
        return self.held.node

    @property
    def params(self) -> NodeParameters:
        return self.held.params

    def add(self, rows: int, terms: list[tuple[np.ndarray | None, np.ndarray]]) -> None:
        self.entries.append((rows, terms))
        self.logged += rows

    @property
    def rows(self) -> int:
        """Gradient rows of the current interval: logged, being reduced, and reduced."""
        return self.logged + (0 if self.closing else self.taken + self.params.rows)

    def wants(self, self_updating: bool) -> bool:
        """Whether somebody should reduce the log now."""
        return not self.busy and (
            self.logged >= WORTH_REDUCING or (self_updating and self.rows >= self.params.rule.interval)
        )

    def take(self, due: bool) -> Share:
        """All entries; whoever takes them is the one that reduces."""
        self.busy = True
        share = Share(self, self.entries, due)
        self.entries, self.logged = [], 0
        self.closing, self.taken = due, 0 if due else share.rows
        if due:
            share.waiting, self.waiting = self.waiting, []
        return share

    def reduce(self, share: Share) -> None:
        """Add the share's gradients; if the interval is complete, prepare a version.

        Raises NonFiniteError, and the old version stays, where a gradient is not finite.
        """
        with np.errstate(all="ignore"):
            self.held.accumulate(share.entries)
            if share.due:
                self.params.rows += share.rows
                if self.params.rows:
                    share.values = self.held.prepare()

    def finish(self, share: Share) -> None:
        """The share is reduced; called under the lock, so that `rows` never counts it twice or not at all."""
        if not share.due:
            self.params.rows += share.rows
        self.busy, self.closing, self.taken = False, False, 0
        if share.values is not None:
            self.held.publish(share.values)


@dataclass
class Share:
    """Entries taken from a log; due: they complete an interval, and `waiting` slots wait for the update."""

    log: GradientLog
    entries: list[Entry]
    due: bool
    waiting: list[Any] = field(default_factory=list)
    values: dict[str, np.ndarray] | None = None  # the prepared version, to be published

    @property
    def rows(self) -> int:
        return sum(rows for rows, _ in self.entries)
