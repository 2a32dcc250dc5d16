"""From a draft whose variables have their homes to code: columns, bases and phases."""

from __future__ import annotations

from dataclasses import replace

from amphw.engine.tiles.code import ATTENTION, Base, Code, Instr, Phase, PhaseKind, Place, Ref, Segment
from amphw.engine.tiles.columns import Columns
from amphw.engine.tiles.draft import ZERO, Draft, Kind, Node, Piece, Row
from amphw.engine.tiles.operations import SETS_INT
from amphw.engine.tiles.order import Step, steps
from amphw.engine.tiles.place import Places
from amphw.ir.primitives.attention import OPERANDS

ROWS_MEET = frozenset(PhaseKind) - {PhaseKind.Rows, PhaseKind.Gemm, PhaseKind.Patches, PhaseKind.Unpatch}
"""Phases in which rows of a message meet that belong to different rows of space 0."""


class Emitter:
    """One draft's code. factors: as in `Code`, as far as the spaces are concerned."""

    def __init__(self, draft: Draft, places: Places, factors: tuple[int, ...]):
        self.draft, self.places, self.factors = draft, places, factors
        self.steps = steps(draft)
        self.columns = Columns(draft, places, self.steps)
        self._bases: dict[Base, int] = {}
        self._widths: list[int] = []
        self._slots: dict[int, int] = {}

    # --- references -------------------------------------------------------------------------------

    def located(self, p: Piece) -> tuple[Base, int]:
        """The base that a piece of a variable lies in (its integer slot is the draft's), and the column."""
        node = self.draft.nodes[p.var]
        if node.kind == Kind.Source:
            assert node.base is not None
            return node.base, p.offset
        home = self.places.homes[p.var]
        block = self.places.blocks[home.block]
        base, start = (block.base, 0) if block.base is not None else self.columns.located(home.block)
        return base, start + home.offset + p.offset

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
        meet = any(p.kind in ROWS_MEET for p in phases)
        draft = self.draft
        return Code(
            tuple(replace(base, width=width) for base, width in zip(self._bases, self._widths, strict=True)),
            tuple(draft.int_operands[s] for s in self._slots),
            tuple(draft.int_spaces[s] for s in self._slots),
            phases,
            outputs,
            () if meet else self.factors,
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
        if step.kind in ATTENTION:
            return [self._attention(step.kind, node, d)]
        return [
            Phase(
                step.kind,
                node.space,
                d=d,
                width=node.width,
                from_=self._ref(node.args[0][0], node.source),
                source=node.source,
                ints=self.slot(node.ints[0]) if node.ints else -1,
                windows=node.windows,
            )
        ]

    def _attention(self, kind: PhaseKind, node: Node, d: Ref) -> Phase:
        rows = zip(node.args, OPERANDS[ATTENTION[kind]], strict=True)
        return Phase(
            kind,
            node.space,
            a=tuple(
                Segment(self._ref(row[0], node.space if here else node.source), row[0].width)
                for row, here in rows
            ),
            d=d,
            width=node.width,
            source=node.source,
            ints=self.slot(node.ints[0]) if node.ints else -1,
            heads=node.heads,
        )

    def _gemms(self, node: Node, d: Ref) -> list[Phase]:
        n = len(node.products)
        start = self._ref(node.args[n][0], node.space) if len(node.args) > n else Ref()
        assert start.offset == 0, "a product begins with whole rows"
        return [
            Phase(
                PhaseKind.Gemm,
                node.space,
                param=product.param,
                bias=-1 if k else node.bias,
                transposed=product.transposed,
                accumulate=k > 0,
                start=-1 if k else start.base,
                first_row=product.first_row,
                a=self._segments(row, node.space),
                d=d,
                width=node.width,
            )
            for k, (product, row) in enumerate(zip(node.products, node.args[:n], strict=True))
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
