"""Columns of the rows that a code makes for itself: what it saves for the backward direction, and scratch.

There is one base of each a row space, in which every free block gets its columns. Saved blocks lie side by
side, in the order in which products read them where they can, so that a product has fewer segments and the
log fewer copies. Scratch blocks share columns when they do not live at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from amphw.engine.tiles.code import Base, Place
from amphw.engine.tiles.draft import Draft, Kind
from amphw.engine.tiles.order import Step
from amphw.engine.tiles.place import IN_PLACE, Block, Home, Places

ALIGNMENT = 16
"""Floats to whose multiple a scratch block starts: a cache line."""


class Columns:
    """saved: (width, space) of each base of saved rows. scratch: the width of scratch rows by space."""

    def __init__(self, draft: Draft, places: Places, steps: Sequence[Step]):
        self.draft, self.places = draft, places
        self.saved: list[tuple[int, int]] = []
        self.spots: dict[int, tuple[Place, int, int]] = {}  # free block -> place, base index, first column
        self._save()
        self.scratch = self._scratch(steps)

    def located(self, block: int) -> tuple[Base, int]:
        """The base that a free block lies in, and its first column there."""
        place, index, column = self.spots[block]
        space = self.places.blocks[block].space
        width = self.saved[index][0] if place == Place.Saved else self.scratch[space]
        return Base(place, index, width, space), column

    def _save(self) -> None:
        """Wide chains first: what follows them is then likely aligned."""
        blocks = self.places.blocks
        chains = sorted(self._chains(), key=lambda c: -sum(blocks[k].width for k in c))
        for space in sorted({b.space for b in blocks}):
            at = 0
            for k in (k for c in chains for k in c if blocks[k].space == space):
                self.spots[k] = (Place.Saved, len(self.saved), at)
                at += blocks[k].width
            if at:
                self.saved.append((at, space))

    def _chains(self) -> list[list[int]]:
        """Saved blocks, put together where the left side of a product reads one behind the other."""
        blocks = self.places.blocks
        chain = {k: [k] for k, b in enumerate(blocks) if b.saved and b.base is None}
        for left, right in self._neighbours():
            a, b = chain.get(left), chain.get(right)
            if a is not None and b is not None and a is not b and a[-1] == left and b[0] == right:
                a += b
                chain.update((k, a) for k in b)
        return [c for k, c in chain.items() if c[0] == k]

    def _neighbours(self) -> Iterator[tuple[int, int]]:
        """Pairs of blocks of which a product reads the end of one and then the beginning of the other."""
        homes, blocks = self.places.homes, self.places.blocks
        for node in self.draft.nodes.values():
            for row in node.args if node.kind == Kind.Gemm else ():
                for p, q in zip(row, row[1:], strict=False):
                    if p.var in homes and q.var in homes:
                        end, start = homes[p.var], homes[q.var]
                        last = end.offset + p.offset + p.width == blocks[end.block].width
                        if last and start.offset + q.offset == 0:
                            yield end.block, start.block

    def _scratch(self, steps: Sequence[Step]) -> dict[int, int]:
        """Columns for the blocks that die with the tile, first fit over their lifetimes -> width by space."""
        order = [i for s in steps for i in s.nodes]
        position = {id: k for k, id in enumerate(order)}
        born, dies = self._lifetimes(position)
        widths: dict[int, int] = {}
        live: list[int] = []
        for block in sorted(born, key=lambda k: born[k]):
            now, b = born[block], self.places.blocks[block]
            live = [k for k in live if dies[k] >= now]
            over = self._overwritten(order[now], block, [k for k in live if dies[k] == now])
            if over is not None:
                at = self.spots[over][2]
                live.remove(over)
            else:
                at = self._gap(b, live)
            self.spots[block] = (Place.Scratch, b.space, at)
            live.append(block)
            widths[b.space] = max(widths.get(b.space, 0), at + b.width)
        return widths

    def _lifetimes(self, position: dict[int, int]) -> tuple[dict[int, int], dict[int, int]]:
        born: dict[int, int] = {}
        dies: dict[int, int] = {}

        def touch(var: int, when: int) -> None:
            home = self.places.homes.get(var)
            if home is None:
                return
            block = self.places.blocks[home.block]
            if block.base is None and not block.saved:
                born[home.block] = min(when, born.get(home.block, when))
                dies[home.block] = max(when, dies.get(home.block, when))

        for id, when in position.items():
            touch(id, when)
            for row in self.draft.nodes[id].args:
                for p in row:
                    touch(p.var, when)
        return born, dies

    def _overwritten(self, id: int, block: int, dying: list[int]) -> int | None:
        """A dying block over which the block's first instruction may write its result."""
        node, homes = self.draft.nodes[id], self.places.homes
        b = self.places.blocks[block]
        if node.op not in IN_PLACE or node.width != b.width or homes[id] != Home(block, 0):
            return None
        for row in node.args:
            for p in row:
                home = homes.get(p.var)
                if home is None or home.block not in dying or home.offset + p.offset:
                    continue
                same = all(
                    homes[q.var].offset + q.offset == 0 and q.width == b.width
                    for r in node.args
                    for q in r
                    if q.var in homes and homes[q.var].block == home.block
                )
                if same and self.places.blocks[home.block].width == b.width:
                    return home.block
        return None

    def _gap(self, b: Block, live: list[int]) -> int:
        """The first columns of the space's scratch that no live block occupies."""
        taken = sorted(
            (self.spots[k][2], self.spots[k][2] + self.places.blocks[k].width)
            for k in live
            if self.places.blocks[k].space == b.space
        )
        at = 0
        for start, end in taken:
            if at + b.width <= start:
                break
            at = max(at, -(-end // ALIGNMENT) * ALIGNMENT)
        return at
