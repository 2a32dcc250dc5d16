"""From operations to commands, in the program's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amphw.ir.program import Instr
from amphw.rtl.isa.commands import IndexMode, LaneOp, VectorOp
from amphw.rtl.microcode.abstract import Command, LaneCommand, VectorCommand
from amphw.rtl.microcode.arrays import Array, View
from amphw.rtl.microcode.columns import Columns, whole
from amphw.rtl.microcode.plan import Plan
from amphw.rtl.microcode.terms import Group
from amphw.rtl.plan.stack import Places

ELEMENTWISE = {
    "relu": VectorOp.RELU,
    "maximum": VectorOp.MAX,
    "abs": VectorOp.ABS,
    "add": VectorOp.ADD,
    "sub": VectorOp.SUB,
    "mul": VectorOp.MUL,
    "scale": VectorOp.SCALE,
    "shift": VectorOp.SHIFT,
    "gate": VectorOp.GATE,
    "step": VectorOp.STEP,
    "sign": VectorOp.SIGN,
    "equal": VectorOp.EQUAL,
    "same": VectorOp.EQUAL,
    "above": VectorOp.ABOVE,
    "lift": VectorOp.LIFT,
    "fill": VectorOp.FILL,
}
"""Operations that make each element of the elements that stand there in their operands."""

ACROSS_COLUMNS = {"sum_cols": VectorOp.SUM, "max_cols": VectorOp.LARGEST, "argmax": VectorOp.ARGMAX}
ACROSS_ROWS = {"sum_rows": VectorOp.SUM, "max_rows": VectorOp.LARGEST}


class Selection:
    """commands: of what has been selected so far. curves: names of the vector unit's tables in order."""

    def __init__(self, plan: Plan, places: Places, curves: Sequence[str]):
        self.plan, self.places, self.curves = plan, places, list(curves)
        self.commands: list[Command] = []
        self._laid: set[Columns] = set()

    def operation(self, v: int, o: Instr) -> None:
        """The commands of one operation: none where only addresses change."""
        if self.plan.columns[v] != whole(v, self._type(v).width):
            return
        if o.op in ELEMENTWISE:
            self._elementwise(v, o, ELEMENTWISE[o.op])
        elif o.op in ACROSS_COLUMNS:
            self._across_columns(v, o, ACROSS_COLUMNS[o.op])
        elif o.op in ACROSS_ROWS:
            self._across_rows(v, o, ACROSS_ROWS[o.op])
        else:
            special: Callable[[int, Instr], None] = getattr(self, f"_{o.op}")
            special(v, o)

    def group(self, group: Group) -> None:
        """The lane command of gradient terms, and of the product that it makes on the way."""
        columns = self.plan.columns
        at = self._type(group.dz).space
        dz = self.side_by_side(columns[group.dz], at)
        x = None if group.a is None else self.side_by_side(columns[group.a], at)
        y = None if group.dx is None else self.plan.place_of(group.dx)
        op = LaneOp.TAKE_GRADIENT if group.kind == "take" else LaneOp.BACKWARD
        place = self.places[group.param]
        self.commands.append(LaneCommand(op, at, place, x, y, dz, bias=group.bias, want_dw=True))

    def write(self, columns: Columns, array: Array) -> None:
        """Copy into an array what is not there already."""
        column = 0
        for found in self.plan.views(columns):
            width = found if isinstance(found, int) else found.width
            d = View(array, column, width)
            if isinstance(found, int):
                self.commands.append(VectorCommand(VectorOp.FILL, array.space, d))
            elif found != d:
                self.commands.append(VectorCommand(VectorOp.COPY, array.space, d, found))
            column += width

    def side_by_side(self, columns: Columns, space: str) -> View:
        """The columns as packed rows; copied if need be."""
        if columns not in self.plan.laid:
            view = self.plan.view(columns)
            if view is not None and view.packed(self.plan.spaces, space):
                return view
        return self._copied(columns, space)

    def _copied(self, columns: Columns, space: str) -> View:
        width = sum(p.width for p in columns)
        array = self.plan.laid.setdefault(columns, Array(f"copy{len(self.plan.laid)}", space, width))
        if columns not in self._laid:
            self._laid.add(columns)
            self.write(columns, array)
        return View(array, 0, width)

    # --- kinds of operations ----------------------------------------------------------------------

    def _type(self, v: int) -> Any:
        return self.plan.program.types[v]

    def _one(self, v: int) -> View:
        """All columns of a value in one view."""
        view = self.plan.view(self.plan.columns[v])
        return self._copied(self.plan.columns[v], self._type(v).space) if view is None else view

    def _views(self, v: int) -> list[View]:
        """All columns of a value; zeros are written out."""
        views = self.plan.views(self.plan.columns[v])
        found = [view for view in views if isinstance(view, View)]
        return (
            found if len(found) == len(views) else [self._copied(self.plan.columns[v], self._type(v).space)]
        )

    def _elementwise(self, v: int, o: Instr, op: VectorOp, table: int = 0) -> None:
        d, at = self.plan.place_of(v), o.attr()
        operands = [self._views(a) for a in o.args]
        edges = sorted({0, d.width, *(e for views in operands for e in _edges(views))})
        for low, high in zip(edges, edges[1:], strict=False):
            a, b = [_cut(views, low, high) for views in operands] + [None] * (2 - len(operands))
            self.commands.append(
                VectorCommand(
                    op,
                    self._type(v).space,
                    d.cut(low, high - low),
                    a,
                    b,
                    at.get("constant", 0),
                    0 if op == VectorOp.LINES else at.get("shift", 0),
                    table,
                )
            )

    def _curve(self, v: int, o: Instr) -> None:
        self._elementwise(v, o, VectorOp.LINES, self.curves.index(o.attr()["curve"]))

    def _across_columns(self, v: int, o: Instr, op: VectorOp) -> None:
        a = self._one(o.args[0])
        space = self._type(v).space
        self.commands.append(VectorCommand(op, space, self.plan.place_of(v), a, across="columns"))

    def _across_rows(self, v: int, o: Instr, op: VectorOp) -> None:
        d, at = self.plan.place_of(v), 0
        for a in self._views(o.args[0]):
            part = d.cut(at, a.width)
            self.commands.append(VectorCommand(op, o.attr()["source"], part, a, across="rows"))
            at += a.width

    def _affine(self, v: int, o: Instr) -> None:
        at, space = o.attr(), self._type(v).space
        x = self.side_by_side(self.plan.columns[o.args[0]], space) if o.args else None
        place = self.places[at["param"] if o.args else at["bias"]]
        y = self.plan.place_of(v)
        self.commands.append(LaneCommand(LaneOp.FORWARD, space, place, x, y, bias=at["bias"] is not None))

    def _affine_t(self, v: int, o: Instr) -> None:
        space = self._type(v).space
        dz = self.side_by_side(self.plan.columns[o.args[0]], space)
        place, y = self.places[o.attr()["param"]], self.plan.place_of(v)
        self.commands.append(LaneCommand(LaneOp.BACKWARD, space, place, None, y, dz))

    def _take(self, v: int, o: Instr) -> None:
        space = self._type(v).space
        x = self.side_by_side(self.plan.columns[o.args[0]], space)
        place = self.places[o.attr()["param"]]
        self.commands.append(LaneCommand(LaneOp.TAKE, space, place, x, self.plan.place_of(v)))

    # --- operations that integers steer -----------------------------------------------------------

    def _index(self, v: int, space: str) -> View:
        return self.side_by_side(self.plan.columns[v], space)

    def _gather_rows(self, v: int, o: Instr) -> None:
        d, at, space = self.plan.place_of(v), 0, self._type(v).space
        index = self._index(o.args[1], space)
        for a in self._views(o.args[0]):
            # Which row an element stands in is up to the index alone.
            row = View(a.array, a.column, a.width, a.inner, one_row=True)
            self.commands.append(
                VectorCommand(
                    VectorOp.COPY,
                    space,
                    d.cut(at, a.width),
                    row,
                    mode=IndexMode.A,
                    index=index,
                    scale=a.outer,
                )
            )
            at += a.width

    def _scatter_rows(self, v: int, o: Instr) -> None:
        d, at, source = self.plan.place_of(v), 0, o.attr()["source"]
        index = self._index(o.args[1], source)
        self.commands.append(VectorCommand(VectorOp.FILL, self._type(v).space, d))
        for a in self._views(o.args[0]):
            row = View(d.array, d.column + at, a.width, one_row=True)
            self.commands.append(
                VectorCommand(
                    VectorOp.ADD, source, row, a, mode=IndexMode.ADD_D, index=index, scale=d.array.width
                )
            )
            at += a.width

    def _pick(self, v: int, o: Instr) -> None:
        space = self._type(v).space
        a, index = self._one(o.args[0]), self._index(o.args[1], space)
        first = View(a.array, a.column, 1, 1, a.one_row)
        self.commands.append(
            VectorCommand(
                VectorOp.COPY,
                space,
                self.plan.place_of(v),
                first,
                mode=IndexMode.A,
                index=index,
                scale=a.inner,
                reach=a,
            )
        )

    def _place(self, v: int, o: Instr) -> None:
        space, d = self._type(v).space, self.plan.place_of(v)
        a, index = self._one(o.args[0]), self._index(o.args[1], space)
        self.commands.append(VectorCommand(VectorOp.FILL, space, d))
        first = View(d.array, d.column, 1)
        self.commands.append(
            VectorCommand(VectorOp.COPY, space, first, a, mode=IndexMode.D, index=index, scale=1, reach=d)
        )


def _edges(views: Sequence[View]) -> list[int]:
    found = [0]
    for view in views:
        found.append(found[-1] + view.width)
    return found


def _cut(views: Sequence[View], low: int, high: int) -> View:
    """Columns low .. high, which lie in one of the views."""
    for view, start in zip(views, _edges(views), strict=False):
        if start <= low and high <= start + view.width:
            return view.cut(low - start, high - low)
    raise AssertionError("a segment crosses views")
