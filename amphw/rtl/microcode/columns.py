"""Values as columns of stored ones: what only rearranges numbers is a matter of addresses.

A value is a row of pieces: columns of an array that lies somewhere, or of one that an operation makes, or
zeros. Slices, concatenations, padding and spreading make pieces of pieces, and a sum of values that are zero
where the other is not is one of them, too; so none of these costs a command until somebody needs the columns
side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from amphw.ir.program import Instr
from amphw.rtl.fixed.program import FixedProgram
from amphw.rtl.microcode.arrays import Array


@dataclass(frozen=True)
class Piece:
    """Columns start .. start + width of `source`: an array, the number of a value that is made, None: zeros.

    spread: all columns are column `start`. one_row: all rows are row 0.
    """

    source: Array | int | None
    start: int
    width: int
    spread: bool = False
    one_row: bool = False

    def cut(self, start: int, width: int) -> Piece:
        """Columns start .. start + width of the piece."""
        first = self.start if self.spread or self.source is None else self.start + start
        return replace(self, start=first, width=width, spread=self.spread and width > 1)


Columns = tuple[Piece, ...]


def whole(source: Array | int, width: int) -> Columns:
    """All columns of something stored."""
    return (Piece(source, 0, width),)


def zeros(width: int) -> Columns:
    return (Piece(None, 0, width),) if width else ()


def cut(columns: Columns, start: int, width: int) -> Columns:
    """Columns start .. start + width of a value."""
    found, at = [], 0
    for piece in columns:
        low, high = max(start, at), min(start + width, at + piece.width)
        if low < high:
            found.append(piece.cut(low - at, high - low))
        at += piece.width
    return tuple(found)


def join(columns: Sequence[Piece]) -> Columns:
    """The same columns in as few pieces as can be."""
    out: list[Piece] = []
    for piece in columns:
        if out and (both := _joined(out[-1], piece)) is not None:
            out[-1] = both
        else:
            out.append(piece)
    return tuple(out)


def _joined(a: Piece, b: Piece) -> Piece | None:
    if a.source is not b.source and a.source != b.source:
        return None
    wide = replace(a, width=a.width + b.width)
    if a.source is None:
        return wide
    if a.one_row == b.one_row and not a.spread and not b.spread and a.start + a.width == b.start:
        return wide
    return None


def edges(columns: Columns) -> list[int]:
    """Where pieces begin, and where the last ends."""
    found = [0]
    for piece in columns:
        found.append(found[-1] + piece.width)
    return found


def _sum(a: Columns, b: Columns) -> Columns | None:
    """a + b, where no column is other than zero in both."""
    at = sorted({*edges(a), *edges(b)})
    out: list[Piece] = []
    for low, high in zip(at, at[1:], strict=False):
        left, right = (cut(c, low, high - low)[0] for c in (a, b))
        if left.source is not None and right.source is not None:
            return None
        out.append(right if left.source is None else left)
    return join(out)


def _rearranged(o: Instr, args: list[Columns]) -> Columns | None:
    """The pieces of what an operation makes, None where it computes."""
    at = o.attr()
    if o.op == "concat":
        return join([piece for c in args for piece in c])
    if o.op == "slice":
        return join(cut(args[0], at["start"], at["width"]))
    if o.op == "pad":
        behind = at["width"] - at["start"] - edges(args[0])[-1]
        return join([*zeros(at["start"]), *args[0], *zeros(behind)])
    if o.op == "spread_cols":
        (piece,) = args[0]
        return (replace(piece, width=at["width"], spread=piece.source is not None and at["width"] > 1),)
    if o.op == "spread_rows":
        return tuple(replace(p, one_row=p.source is not None) for p in args[0])
    if o.op == "fill" and at["constant"] == 0:
        return zeros(at["width"])
    if o.op == "add":
        return _sum(*args)
    return None


def columns_of(program: FixedProgram, given: Sequence[Columns]) -> list[Columns]:
    """Of every value. given: those of the inputs and the state expressions."""
    found = list(given)
    for v, o in program.numbered():
        made = _rearranged(o, [found[a] for a in o.args])
        found.append(whole(v, program.types[v].width) if made is None else made)
    return found
