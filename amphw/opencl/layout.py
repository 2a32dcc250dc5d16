"""How parameters lie in a device's memory, and so their gradients and their optimisers' sums.

Row after row, each padded to a multiple of 32 floats: so a kernel finds a row that is looked up. A matrix
that is only multiplied lies in *panels* on CPUs: vectors of columns, one panel after the other, each with all
its rows. A product goes down the rows of a panel, which is one stretch of memory then, and not a cache line
of each of many pages. Elementwise work, such as an update, sees no difference.

Either way, the vector that begins at `column` of `row` is at `column / vector * apart + row * step`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from amphw.engine.tiles.code import Place, TiledUnit
from amphw.ir.program import ParamSpec
from amphw.opencl import abi
from amphw.opencl.codegen.forms import Form


@dataclass(frozen=True)
class Layout:
    """Of a matrix, or of a vector, whose `rows` are 0. panel: columns of a panel; 0: row after row."""

    rows: int
    columns: int
    panel: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """In memory: [rows, columns], or [panels, rows, columns of one]. What is beyond the matrix is 0."""
        rows, columns = abi.rounded(max(self.rows, 1), 16), abi.stride(self.columns)
        if not self.panel:
            return rows, columns
        # Panels of an odd number of rows: those of a power of two would share few sets of a cache.
        return columns // self.panel, rows + 1, self.panel

    @property
    def floats(self) -> int:
        return prod(self.shape)

    @property
    def step(self) -> int:
        """Floats from a vector to the one in the next row."""
        return self.shape[-1]

    def apart(self, vector: int) -> int:
        """Floats from a vector of so many columns to the next one in the row."""
        return self.shape[1] * self.panel if self.panel else vector

    def place(self, column: str) -> str:
        """C for where a vector's first row begins, by its first column, a multiple of the panel."""
        return f"({column}) / {self.panel} * {self.apart(self.panel)}" if self.panel else column

    def packed(self, a: np.ndarray) -> np.ndarray:
        """The array as it lies in memory, float32."""
        whole = np.zeros((self._rows, abi.stride(self.columns)), np.float32)
        whole[: max(self.rows, 1), : self.columns] = a
        if not self.panel:
            return whole
        return np.ascontiguousarray(whole.reshape(self._rows, -1, self.panel).transpose(1, 0, 2))

    def unpacked(self, memory: np.ndarray) -> np.ndarray:
        """The matrix [rows, columns], or the vector as one row, from an array of `shape`."""
        if self.panel:
            memory = memory.transpose(1, 0, 2).reshape(self._rows, -1)
        return np.ascontiguousarray(memory[: max(self.rows, 1), : self.columns])

    @property
    def _rows(self) -> int:
        return self.shape[1 if self.panel else 0]


Layouts = Mapping[int, Layout]
"""By a parameter's number; folded tables follow the unit's own."""


def copy_layout(rows: int, columns: int, form: Form) -> Layout:
    """Of a transposed copy [rows, columns], which is only multiplied."""
    return Layout(rows, columns, form.panel)


def layouts(tiled: TiledUnit, params: Sequence[ParamSpec], form: Form) -> dict[int, Layout]:
    """Of a unit's parameters, and of its folded tables behind them."""
    codes = [c for c in (tiled.forward, tiled.inference, tiled.backward) if c is not None]
    by_rows = {b.index for c in codes for b in c.bases if b.place in (Place.Param, Place.ParamRow)}
    by_rows |= {t.param for t in tiled.terms if t.kind == "take"} | {f.table for f in tiled.folds}
    out = {}
    for k, spec in enumerate(params):
        rows, columns = spec.shape if len(spec.shape) == 2 else (0, spec.shape[0])
        out[k] = Layout(rows, columns, form.panel if rows and k not in by_rows else 0)
    for k, fold in enumerate(tiled.folds, len(params)):
        out[k] = Layout(out[fold.table].rows, out[fold.weight].columns)
    return out
