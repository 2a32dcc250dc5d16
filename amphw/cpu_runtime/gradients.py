"""Gradients and updates of one node's parameters on the CPU.

Backward frames log their rows `(a, dz)`; the product that makes a weight gradient of them waits until there
are enough rows to be worth it, or until the interval is complete. Rows are counted once, when the frame is
committed. One worker at a time reduces a node's log, in the order in which frames were committed, so every
partial sum is taken exactly once and a replayed run makes the same sums.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amphw.ir.derive import GradientTerm, accumulate
from amphw.ir.errors import NonFiniteError
from amphw.ir.update import NodeParameters

WORTH_REDUCING = 256
"""Rows from which a weight-gradient product runs near its best speed."""

FEW_ROWS = 64
"""Rows of a table up to which a product with one-hot rows is the fastest way to add gradients to it."""

Entry = tuple[int, list[tuple[np.ndarray | None, np.ndarray]]]
"""(gradient rows, (a, dz) for each term) of one backward frame."""


def add_rows(table: np.ndarray, index: np.ndarray, rows: np.ndarray) -> None:
    """table[index[i]] += rows[i] for all i; an index may occur often.

    What `np.add.at` does, ten times as fast; the sums of one table row are taken in another order.
    """
    if len(table) <= FEW_ROWS:
        chosen = np.zeros((len(index), len(table)), dtype=table.dtype)
        chosen[np.arange(len(index)), index] = 1
        table += chosen.T @ rows
    elif len(index):
        order = np.argsort(index, kind="stable")
        ordered = index[order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        table[ordered[starts]] += np.add.reduceat(rows[order], starts, axis=0)


@dataclass
class GradientLog:
    """One node's log. `rows` counts what has been logged since the last interval was complete."""

    node: str
    params: NodeParameters
    terms: tuple[GradientTerm, ...]
    entries: list[Entry] = field(default_factory=list)
    logged: int = 0
    rows: int = 0
    busy: bool = False
    waiting: list[Any] = field(default_factory=list)  # slots that retire only once the update is published

    def add(self, rows: int, terms: list[tuple[np.ndarray | None, np.ndarray]]) -> None:
        self.entries.append((rows, terms))
        self.logged += rows
        self.rows += rows

    def wants(self, self_updating: bool) -> bool:
        """Whether somebody should reduce the log now."""
        return not self.busy and (
            self.logged >= WORTH_REDUCING or (self_updating and self.rows >= self.params.rule.interval)
        )

    def take(self, due: bool, n: int | None = None) -> Share:
        """The oldest n entries (default: all); whoever takes them is the one that reduces."""
        self.busy = True
        n = len(self.entries) if n is None else n
        share = Share(self, self.entries[:n], due)
        self.entries = self.entries[n:]
        self.logged -= sum(rows for rows, _ in share.entries)
        if due:
            self.rows = self.logged
            share.waiting, self.waiting = self.waiting, []
        return share

    def reduce(self, share: Share) -> None:
        """Add the share's gradients, one product a term; if the interval is complete, prepare a version."""
        with np.errstate(all="ignore"):
            for k, term in enumerate(self.terms if share.entries else ()):
                parts = [terms[k] for _, terms in share.entries]
                dz = parts[0][1] if len(parts) == 1 else np.concatenate([p[1] for p in parts])
                a = None
                if term.a is not None:
                    arrays = [p[0] for p in parts if p[0] is not None]
                    a = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
                if term.kind == "take" and a is not None:
                    add_rows(self.params.gradients[term.param], a, dz)
                else:
                    accumulate(term.kind, self.params.gradients[term.param], a, dz)
            self.params.rows += sum(rows for rows, _ in share.entries)
            if share.due and self.params.rows:
                share.values = self._prepare()

    def _prepare(self) -> dict[str, np.ndarray]:
        """Raises NonFiniteError, and the old version stays, if a gradient is not finite."""
        for name, g in self.params.gradients.items():
            # A sum is much cheaper than a test of each element, and finite only if they all are.
            if not np.isfinite(g.sum()) and not np.isfinite(g).all():
                raise NonFiniteError(self.node, "backward", f"the gradient of '{name}'")
        return self.params.prepare()


@dataclass
class Share:
    """Entries taken from a log; due: they complete an interval, and `waiting` slots wait for the update."""

    log: GradientLog
    entries: list[Entry]
    due: bool
    waiting: list[Any] = field(default_factory=list)
    values: dict[str, np.ndarray] | None = None  # the prepared version, to be published
