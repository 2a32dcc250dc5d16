"""Arrays in payload memory, and views of them as loops of commands see them."""

from __future__ import annotations

from dataclasses import dataclass

from amphw.rtl.plan.records import RowSpaces, Words


@dataclass(frozen=True)
class Home:
    """An address: that in register PTR[pointer], and so many words behind it."""

    pointer: int
    offset: Words = Words()


@dataclass(eq=False)
class Array:
    """[rows of `space`, width], row behind row. home None: in scratch, where is decided last."""

    name: str
    space: str
    width: int
    home: Home | None = None

    def __repr__(self) -> str:
        return f"{self.name}[{self.space}, {self.width}]"


@dataclass(frozen=True)
class View:
    """`width` columns of an array from `column` on; its rows, or row 0 for all.

    inner: from one column to the next, 0 where all are the same one. outer: from one row to the next.
    """

    array: Array
    column: int
    width: int
    inner: int = 1
    one_row: bool = False

    @property
    def outer(self) -> int:
        return 0 if self.one_row else self.array.width

    @property
    def columns(self) -> tuple[int, int]:
        """First and one behind the last column that it touches."""
        return self.column, self.column + (self.width if self.inner else 1)

    def meets(self, other: View) -> bool:
        """Whether both touch a column of one array."""
        (first, end), (start, last) = self.columns, other.columns
        return self.array is other.array and first < last and start < end

    def cut(self, start: int, width: int) -> View:
        """Its columns start .. start + width."""
        return View(self.array, self.column + start * self.inner, width, self.inner, self.one_row)

    def packed(self, spaces: RowSpaces, space: str) -> bool:
        """Whether its rows, as many as `space` has, lie one behind the other without gaps."""
        if self.inner != 1:
            return False
        return spaces.single(space) or (not self.one_row and self.array.width == self.width)
