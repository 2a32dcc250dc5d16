"""In which order the nodes of a draft run, and which of them run together in one phase."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from amphw.engine.tiles.code import PhaseKind, Place
from amphw.engine.tiles.draft import ZERO, Draft, Kind
from amphw.engine.tiles.operations import SETS_INT


@dataclass
class Step:
    """A phase as nodes: several instructions (Rows), or one product or move."""

    kind: PhaseKind
    space: int
    nodes: list[int]


def ordered(draft: Draft) -> list[int]:
    """All nodes, each behind what it needs; otherwise by number."""
    missing, readers = _dependencies(draft)
    ready = [i for i, n in missing.items() if not n]
    heapq.heapify(ready)
    out = []
    while ready:
        i = heapq.heappop(ready)
        out.append(i)
        for r in readers[i]:
            missing[r] -= 1
            if not missing[r]:
                heapq.heappush(ready, r)
    assert len(out) == len(draft.nodes), "a draft with a circle"
    return out


def _dependencies(draft: Draft) -> tuple[dict[int, int], dict[int, list[int]]]:
    missing: dict[int, int] = {}
    readers: dict[int, list[int]] = {i: [] for i in draft.nodes}
    for i in draft.nodes:
        needed = set(draft.inputs(i))
        missing[i] = len(needed)
        for n in needed:
            readers[n].append(i)
    return missing, readers


def steps(draft: Draft) -> list[Step]:
    """Few phases: products and moves as early as possible, then everything that can run row by row."""
    return _Steps(draft).run()


class _Steps:
    def __init__(self, draft: Draft):
        self.draft = draft
        self.missing, self.readers = _dependencies(draft)
        self.rows: dict[int, list[int]] = {}  # ready instructions by space, heaps
        self.other: list[int] = []  # ready products and moves, a heap
        self.out: list[Step] = []
        for i in [i for i, n in self.missing.items() if not n]:
            self._ready(i)

    def run(self) -> list[Step]:
        while self.other or self.rows:
            while self.other:
                self._other(heapq.heappop(self.other))
            if self.rows:
                self._rows(max(self.rows, key=lambda s: (len(self.rows[s]), -s)))
        return self.out

    def _ready(self, i: int) -> None:
        node = self.draft.nodes[i]
        if node.kind == Kind.Instr:
            heapq.heappush(self.rows.setdefault(node.space, []), i)
        elif node.kind in (Kind.Gemm, Kind.Move):
            heapq.heappush(self.other, i)
        else:
            self._done(i)

    def _done(self, i: int) -> None:
        for r in self.readers[i]:
            self.missing[r] -= 1
            if not self.missing[r]:
                self._ready(r)

    def _other(self, i: int) -> None:
        node = self.draft.nodes[i]
        kind = PhaseKind.Gemm if node.move is None else node.move
        self.out.append(Step(kind, node.space, [i]))
        self._done(i)

    def _rows(self, space: int) -> None:
        step = Step(PhaseKind.Rows, space, [])
        later: list[int] = []
        fresh: set[int] = set()
        while self.rows.get(space):
            i = heapq.heappop(self.rows[space])
            if self._chosen(i) & fresh:
                later.append(i)
                continue
            step.nodes.append(i)
            node = self.draft.nodes[i]
            if node.op in SETS_INT:
                fresh.add(node.ints[0])
            self._done(i)
        del self.rows[space]
        if later:
            heapq.heapify(later)
            self.rows[space] = later
        self.out.append(step)

    def _chosen(self, i: int) -> set[int]:
        """Integer slots that choose table rows which the instruction reads.

        Row pointers are looked up before a phase, so the phase must not be the one that makes the slot.
        """
        found = set()
        for row in self.draft.nodes[i].args:
            for p in row:
                base = None if p.var == ZERO else self.draft.nodes[p.var].base
                if base is not None and base.place == Place.ParamRow:
                    found.add(base.ints)
        return found
