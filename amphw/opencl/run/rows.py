"""Where a part of a run has what in its arena: rows that stay while an instance does, and frames.

An instance's rows have their places from the beginning, so that a firing may come back in another frame than
it went in. What only one frame needs lies in the frame, which is short-lived.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from amphw.engine.lowering.plan import row_starts
from amphw.engine.tiles.code import Base, Place, TiledUnit
from amphw.opencl import abi

APART = 16
"""Words to a multiple of which shares begin."""


@dataclass(frozen=True)
class Counts:
    """A unit's firings in an instance, and the rows that each has by space (one number: all as many)."""

    firings: int
    rows: Mapping[str, np.ndarray | int]

    def totals(self, spaces: Sequence[str]) -> list[int]:
        """Rows of all firings, by space."""
        each = (self.rows[s] for s in spaces)
        return [self.firings * r if isinstance(r, int) else int(r.sum()) for r in each]

    def most(self, spaces: Sequence[str]) -> list[int]:
        """Rows of the firing that has most, by space."""
        each = (self.rows[s] for s in spaces)
        return [r if isinstance(r, int) else int(r.max(initial=0)) for r in each]


@dataclass(frozen=True)
class RowsOf:
    """Rows of a frame in one space: of which instances, and which of theirs; both int32 [rows]."""

    slots: np.ndarray
    rows: np.ndarray


class Room:
    """Words `first` to `end` of an arena, given out where there is room first."""

    def __init__(self, first: int, end: int):
        self.first, self.end = abi.rounded(first, APART), end
        self._taken: list[tuple[int, int]] = []  # (place, end), in order

    @property
    def words(self) -> int:
        return max(0, self.end - self.first)

    def take(self, words: int) -> int | None:
        """The place of so many words; None without room."""
        at = self.first
        for place, end in self._taken:
            if at + words <= place:
                break
            at = abi.rounded(end, APART)
        if at + words > self.end:
            return None
        insort(self._taken, (at, at + words))
        return at

    def give(self, place: int) -> None:
        self._taken.remove(next(each for each in self._taken if each[0] == place))


class KeptRows:
    """The rows of a unit that its backward direction reads, by instance."""

    def __init__(self, tiled: TiledUnit):
        self.spaces = tiled.spaces
        read = tiled.backward.bases if tiled.backward is not None else ()
        kept = (Place.Operand, Place.Output, Place.Saved)
        self.bases = tuple(
            dict.fromkeys((b.place, b.index, b.width, b.space) for b in read if b.place in kept)
        )
        self._number = {each[:2]: k for k, each in enumerate(self.bases)}
        self._strides = np.array([abi.row_stride(width) for _, _, width, _ in self.bases], np.int32)
        self._places = np.zeros((len(self.bases), 1), np.int32)
        self._starts: list[dict[int, np.ndarray]] = [{} for _ in self.spaces]

    def has(self, base: Base) -> bool:
        return (base.place, base.index) in self._number

    def words(self, counts: Counts) -> int:
        """That an instance needs, wherever they begin."""
        totals = counts.totals(self.spaces)
        strides = [(abi.row_stride(width), space) for _, _, width, space in self.bases]
        return sum((totals[space] + 1) * stride for stride, space in strides)

    def lay(self, slot: int, place: int, counts: Counts) -> int:
        """Give an instance its places from `place` on -> where they end."""
        if slot >= self._places.shape[1]:
            wider = np.zeros((len(self.bases), 2 * slot + 2), np.int32)
            wider[:, : self._places.shape[1]] = self._places
            self._places = wider
        for starts, name in zip(self._starts, self.spaces, strict=True):
            starts[slot] = row_starts(counts.rows[name], counts.firings)
        for k, (_, _, width, space) in enumerate(self.bases):
            stride = abi.row_stride(width)
            place = abi.rounded(place, stride)  # so that places are row numbers, too
            self._places[k, slot] = place
            place += int(self._starts[space][slot][-1]) * stride
        return place

    def rows(self, slots: np.ndarray, firings: np.ndarray, space: int, counts: np.ndarray) -> RowsOf:
        """Which rows of `space` firings have: counts int32 [n] of each."""
        starts = self._starts[space]
        pairs = zip(slots.tolist(), firings.tolist(), strict=True)
        first = np.array([starts[s][f] for s, f in pairs], np.int32)
        if (counts == 1).all():
            return RowsOf(slots, first)
        within = np.arange(int(counts.sum()), dtype=np.int32) - np.repeat(np.cumsum(counts) - counts, counts)
        return RowsOf(np.repeat(slots, counts), np.repeat(first, counts) + within.astype(np.int32))

    def table(self, base: Base, at: RowsOf) -> np.ndarray:
        """The place of each row: int32 [rows]."""
        table = np.empty((1, len(at.rows)), np.int32)
        self.tables([base], at, table)
        return table[0]

    def tables(self, bases: Sequence[Base], at: RowsOf, out: np.ndarray) -> None:
        """As `table`, of several bases of one space: int32 [bases, rows]."""
        numbers = np.array([self._number[b.place, b.index] for b in bases], np.int64)[:, None]
        np.multiply(self._strides[numbers], at.rows, out=out)
        out += self._places[numbers, at.slots]

    def spans(self, base: Base, at: RowsOf) -> list[tuple[int, int]]:
        """(place, words) that hold these rows, and of others no more than rows of this base."""
        table, stride = self.table(base, at), abi.row_stride(base.width)
        found = []
        for slot in np.unique(at.slots):
            mine = table[at.slots == slot]
            found.append((int(mine.min()), int(mine.max() - mine.min()) + stride))
        return found
