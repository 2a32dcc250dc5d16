"""From a draft whose variables have their homes to code: columns of scratch, bases, and phases."""

from __future__ import annotations

from dataclasses import replace

from amphw.cpu_runtime.tile_code import (
    SETS_INT,
    Base,
    Code,
    Instr,
    Phase,
    PhaseKind,
    Place,
    Ref,
    Segment,
)
from amphw.cpu_runtime.tile_draft import ZERO, Draft, Kind, Node, Piece, Row
from amphw.cpu_runtime.tile_order import Step, steps
from amphw.cpu_runtime.tile_place import IN_PLACE, Block, Home, Places

ALIGNMENT = 16
"""Floats to whose multiple a scratch block starts: a cache line."""

Spot = tuple[Place, int, int]
"""Where a free block lies: (Saved or Scratch, base index, first column)."""


class Emitter:
    """One draft's code. saved: (width, space) of the saved rows that it writes."""

    def __init__(self, draft: Draft, places: Places, n_spaces: int):
        self.draft, self.places, self.n_spaces = draft, places, n_spaces
        self.steps = steps(draft)
        self.saved: list[tuple[int, int]] = []
        self.spots: dict[int, Spot] = {}
        self._keep()
        self.scratch = self._scratch()
        self._bases: dict[Base, int] = {}
        self._widths: list[int] = []
        self._slots: dict[int, int] = {}

    # --- columns of what is saved and of scratch ---------------------------------------------------

    def _keep(self) -> None:
        """One saved base a space; wide blocks first, whose offsets are then likely aligned."""
        blocks = [(k, b) for k, b in enumerate(self.places.blocks) if b.saved and b.base is None]
        for space in range(self.n_spaces):
            at = 0
            for k, b in sorted(blocks, key=lambda item: -item[1].width):
                if b.space == space:
                    self.spots[k] = (Place.Saved, len(self.saved), at)
                    at += b.width
            if at:
                self.saved.append((at, space))

    def _scratch(self) -> dict[int, int]:
        """Columns for the blocks that die with the tile, first fit over their lifetimes -> width by space."""
        order = [i for s in self.steps for i in s.nodes]
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

    # --- references -------------------------------------------------------------------------------

    def located(self, p: Piece) -> tuple[Base, int]:
        """The base that a piece of a variable lies in (its integer slot is the draft's), and the column."""
        node = self.draft.nodes[p.var]
        if node.kind == Kind.Source:
            assert node.base is not None
            return node.base, p.offset
        home = self.places.homes[p.var]
        block = self.places.blocks[home.block]
        column = home.offset + p.offset
        if block.base is not None:
            return block.base, column
        place, index, start = self.spots[home.block]
        width = self.saved[index][0] if place == Place.Saved else self.scratch[block.space]
        return Base(place, index, width, block.space), start + column

    def _ref(self, p: Piece, space: int) -> Ref:
        if p.var == ZERO:
            return Ref(self._base(Base(Place.Constant, 0, p.width, space)), 0)
        base, column = self.located(p)
        return Ref(self._base(base), column)

    def _base(self, base: Base) -> int:
        """The code's number of a base. Of a constant row there is one, as wide as anybody needs it."""
        if base.ints >= 0:
            base = replace(base, ints=self.slot(base.ints))
        key = replace(base, width=0)
        if key not in self._bases:
            self._bases[key] = len(self._widths)
            self._widths.append(0)
        number = self._bases[key]
        self._widths[number] = max(self._widths[number], base.width)
        return number

    def slot(self, slot: int) -> int:
        """The code's number of a slot of the draft; `code` has those asked for before."""
        return self._slots.setdefault(slot, len(self._slots))

    # --- phases -----------------------------------------------------------------------------------

    def code(self, int_outputs: tuple[int, ...]) -> Code:
        """int_outputs: by output the draft's slot, or -1."""
        outputs = tuple(self.slot(s) if s >= 0 else -1 for s in int_outputs)
        phases = tuple(p for s in self.steps for p in self._phases(s))
        moves = any(p.kind not in (PhaseKind.Rows, PhaseKind.Gemm) for p in phases)
        draft = self.draft
        return Code(
            tuple(replace(base, width=width) for base, width in zip(self._bases, self._widths, strict=True)),
            tuple(draft.int_operands[s] for s in self._slots),
            tuple(draft.int_spaces[s] for s in self._slots),
            phases,
            outputs,
            rowwise=self.n_spaces == 1 and not moves,
        )

    def _phases(self, step: Step) -> list[Phase]:
        if step.kind == PhaseKind.Rows:
            code = tuple(self._instr(i) for i in step.nodes)
            return [Phase(PhaseKind.Rows, step.space, code)]
        (id,) = step.nodes
        node = self.draft.nodes[id]
        d = self._ref(Piece(id, 0, node.width), node.space)
        if step.kind == PhaseKind.Gemm:
            return self._gemms(node, d)
        return [
            Phase(
                step.kind,
                node.space,
                d=d,
                width=node.width,
                from_=self._ref(node.args[0][0], node.source),
                source=node.source,
                ints=self.slot(node.ints[0]) if node.ints else -1,
            )
        ]

    def _gemms(self, node: Node, d: Ref) -> list[Phase]:
        return [
            Phase(
                PhaseKind.Gemm,
                node.space,
                param=param,
                bias=-1 if k else node.bias,
                transposed=transposed,
                accumulate=k > 0,
                a=self._segments(row, node.space),
                d=d,
                width=node.width,
            )
            for k, ((param, transposed), row) in enumerate(zip(node.products, node.args, strict=True))
        ]

    def _segments(self, row: Row, space: int) -> tuple[Segment, ...]:
        """The left side of a product; neighbours in memory are one segment."""
        out: list[Segment] = []
        for p in row:
            at = self._ref(p, space)
            last = out[-1] if out else None
            if last is not None and at == Ref(last.at.base, last.at.offset + last.width):
                out[-1] = replace(last, width=last.width + p.width)
            else:
                out.append(Segment(at, p.width))
        return tuple(out)

    def _instr(self, id: int) -> Instr:
        node = self.draft.nodes[id]
        assert node.op is not None
        a, b, c = [self._ref(row[0], node.space) for row in node.args] + [Ref()] * (3 - len(node.args))
        d = Ref() if node.op in SETS_INT else self._ref(Piece(id, 0, node.width), node.space)
        ints = tuple(map(self.slot, node.ints))
        return Instr(node.op, node.n, d, a, b, c, node.f, ints, node.seed)
