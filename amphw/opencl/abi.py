"""What host and kernels agree on: where a frame's rows are, and how parameters lie in memory.

All rows that messages refer to lie in one buffer, the *arena*: operands, outputs, saved rows, gradients, the
gradient log, scratch. A kernel finds a row through a table of the frame: `arena + table[r]` is row r of a
base (`amphw.engine.tiles.code.Base`). A frame's tables and integers lie in the arena as well, behind a header
whose place is the kernel's only changing argument. Places and tables count words of 4 bytes from the arena's
start. The names below are macros in the kernels' prelude, too. The engine writes frames
(`native/external.cpp`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_SPACES = 8
"""Row spaces of one program, as in the engine."""

MESSAGES = 0
"""Header word: number of the frame's messages."""

ROWS = 1
"""Header words: rows of each space."""

STARTS = ROWS + MAX_SPACES
"""Header words: where each space has its first row of each message, and the end: int [messages + 1]."""

TABLES = STARTS + MAX_SPACES
"""Header words: where each base of the code has its table, int [rows of its space]; 0: it has none.

Then where each integer slot has its values, long [rows of its space]: those of integer operands are given,
the others are the kernels' to write. Then, of backward code, where the gradient log has each of the unit's
logged integers (`TiledUnit.log_ints`), long [rows of its space]. Places of longs are even.
"""

# A job of the gradient log has a header of its own: rows of each space, then the place of each log buffer,
# then of each column of logged integers (long).
LOG_ROWS = 0
LOG_BUFFERS = LOG_ROWS + MAX_SPACES

FAULT, FAULT_ROW = 0, 1
"""Words of a unit's `faults`: what went wrong first (one of FAULTS, or 0), and in which row."""

BAD_GRADIENT = 4
"""Words of `faults` from here on: whether the gradient of each parameter was not finite."""

TURNS = 16
"""Words of `faults` behind those: in word u % TURNS, the largest magnitude in the gradient of update u.

It is a float. Magnitudes compare as their bits do, so an atomic maximum of integers finds the largest.
"""

FAULTS = {1: "take", 2: "pick", 3: "place", 4: "gather_rows", 5: "scatter_rows", 6: "to_int"}


def row_stride(width: int) -> int:
    """Floats from one row of a base to the next, as in the engine: wide rows start on a cache line."""
    return width if width <= 16 else rounded(width, 16)


def rounded(n: int, to: int) -> int:
    return -(-n // to) * to


def stride(columns: int) -> int:
    """Floats from one row of a parameter to the next. What is beyond the columns is 0, in all its arrays."""
    return rounded(columns, 32)


@dataclass(frozen=True)
class Kernel:
    """One kernel of a generated program.

    Frame kernels take (arena, int frame, faults, buffers...): `buffers` names the rest, such as "p0" (values
    of parameter 0), "p0t" (its transposed copy), "g0" (its gradient). global_size(rows, messages) with the
    rows of each space gives the work-items, a multiple of `local_size`.

    body: of a frame kernel whose groups are single work-items, the statements of one of them, for the rows
    (or messages) `first` to `end` - 1 and number `item` in the second dimension; `whole` puts them together.
    tile_rows: where groups share out whole messages, about how many rows each should have.
    """

    name: str
    text: str
    buffers: tuple[str, ...]
    space: int
    items: tuple[int, ...]
    """Work-items in the dimensions behind the first."""
    rows_per_group: int
    local_size: tuple[int, ...]
    by_message: bool = False
    body: tuple[str, ...] = ()
    tile_rows: int = 0

    def global_size(self, rows: Sequence[int], messages: int) -> tuple[int, ...]:
        """The first dimension counts groups of `rows_per_group` rows (or messages), times its local size."""
        n = messages if self.by_message else rows[self.space]
        if self.tile_rows:
            n = min(messages, -(-max(rows) // self.tile_rows))
        return (-(-n // self.rows_per_group) * self.local_size[0], *self.items)
