"""Where a program's values come to lie, so that as little as possible is copied.

What an operation makes is written straight into its place in an output, in a concatenation, or among the
columns that a later command reads side by side; the first that wants a value gets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from amphw.rtl.fixed.program import FixedProgram
from amphw.rtl.microcode.arrays import Array, View
from amphw.rtl.microcode.columns import Columns, Piece, columns_of
from amphw.rtl.plan.records import RowSpaces

BY_LANES = frozenset({"affine", "affine_t", "take"})
"""Operations of the lane engine: it writes its rows one behind the other."""

TOGETHER = frozenset({"affine", "affine_t", "max_cols", "sum_cols", "argmax", "pick"})
"""Operations that want all columns of their first operand side by side."""


class Plan:
    """columns: pieces of every value. kept: arrays that must outlive the program, without a home as yet."""

    def __init__(
        self,
        program: FixedProgram,
        given: Sequence[Columns],
        spaces: RowSpaces,
        targets: Sequence[tuple[int, Array]],
        together: Sequence[int] = (),
        kept: Sequence[int] = (),
    ):
        """given: columns of the inputs and state expressions. targets: values, and arrays that they go into.

        together: further values whose columns are wanted side by side. kept: values that must outlive the
        program.
        """
        self.program, self.spaces = program, spaces
        self.columns = columns_of(program, given)
        self.kept: list[Array] = []
        self.laid: dict[Columns, Array] = {}
        self._where: dict[int, tuple[Array, int]] = {}
        for v, array in targets:
            self._settle(self.columns[v], array)
        wanted = [o.args[0] for o in program.operations if o.op in TOGETHER and o.args]
        for v in (*wanted, *together):
            self._lay(v, {self.columns[k] for k in kept}, self._made(kept))
        for v in sorted(self._made(kept)):
            if v not in self._where:
                self._settle(self.columns[v], self._keep(v, self.columns[v]))
        for o in program.operations:
            for a in o.args:
                self._gather(a)

    def _made(self, values: Sequence[int]) -> set[int]:
        """What operations make of these values."""
        return {p.source for v in values for p in self.columns[v] if isinstance(p.source, int)}

    def _free(self, piece: Piece, width: int) -> bool:
        """Whether a piece is all that an operation makes, and may still go into an array of that width."""
        v = piece.source
        if not isinstance(v, int) or v in self._where or piece.spread or piece.one_row:
            return False
        t = self.program.types[v]
        made = self.program.operations[v - self.program.first].op
        fits = made not in BY_LANES or width == t.width or self.spaces.single(t.space)
        return piece.start == 0 and piece.width == t.width and fits

    def _settle(self, columns: Columns, array: Array) -> None:
        at = 0
        for piece in columns:
            if self._free(piece, array.width):
                assert isinstance(piece.source, int)
                self._where[piece.source] = array, at
            at += piece.width

    def _keep(self, v: int, columns: Columns) -> Array:
        t = self.program.types[v]
        self.kept.append(Array(f"kept{len(self.kept)}", t.space, sum(p.width for p in columns)))
        return self.kept[-1]

    def _lay(self, v: int, kept: set[Columns], lasting: set[int]) -> None:
        """An array for columns that do not lie side by side already."""
        columns, t = self.columns[v], self.program.types[v]
        if columns in self.laid or (view := self.view(columns)) and view.packed(self.spaces, t.space):
            return
        if len(columns) == 1 and self._free(columns[0], columns[0].width):
            return  # it gets an array of its own
        lasts = columns in kept or any(p.source in lasting and self._free(p, t.width) for p in columns)
        self.laid[columns] = array = (
            self._keep(v, columns) if lasts else Array(f"laid{len(self.laid)}", t.space, t.width)
        )
        self._settle(columns, array)

    def _gather(self, v: int) -> None:
        """An array for columns that would lie side by side without a copy."""
        columns, t = self.columns[v], self.program.types[v]
        sources = {p.source for p in columns}
        if len(sources) > 1 and len(sources) == len(columns) and all(self._free(p, t.width) for p in columns):
            self._settle(columns, Array(f"side{v}", t.space, t.width))

    # --- views ------------------------------------------------------------------------------------

    def place_of(self, v: int) -> View:
        """Where an operation's result goes."""
        t = self.program.types[v]
        array, column = self._where.setdefault(v, (Array(f"v{v}", t.space, t.width), 0))
        return View(array, column, t.width)

    def views(self, columns: Columns) -> list[View | int]:
        """What the columns are in memory, as few views as can be; a number stands for so many zeros.

        Results that have no place yet get one.
        """
        out: list[View | int] = []
        for piece in columns:
            found = self._view(piece)
            last = out[-1] if out else None
            if isinstance(last, View) and isinstance(found, View) and _adjacent(last, found):
                out[-1] = View(last.array, last.column, last.width + found.width, 1, last.one_row)
            else:
                out.append(found)
        return out

    def settled(self, columns: Columns) -> Columns:
        """The same columns, of arrays alone."""
        out = []
        for piece in columns:
            if isinstance(piece.source, int):
                place = self.place_of(piece.source)
                piece = replace(piece, source=place.array, start=place.column + piece.start)
            out.append(piece)
        return tuple(out)

    def view(self, columns: Columns) -> View | None:
        """The one view that the columns are; None if they are several, or not placed yet."""
        if any(isinstance(p.source, int) and p.source not in self._where for p in columns):
            return None
        views = self.views(columns)
        return views[0] if len(views) == 1 and isinstance(views[0], View) else None

    def _view(self, piece: Piece) -> View | int:
        if piece.source is None:
            return piece.width
        if isinstance(piece.source, Array):
            array, column = piece.source, 0
        else:
            place = self.place_of(piece.source)
            array, column = place.array, place.column
        return View(array, column + piece.start, piece.width, 0 if piece.spread else 1, piece.one_row)


def _adjacent(a: View, b: View) -> bool:
    side = a.array is b.array and a.column + a.width == b.column
    return side and a.inner == b.inner == 1 and a.one_row == b.one_row
