"""Text that products and gradients share: parts of vectors, and columns cut into tiles of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amphw.opencl.codegen.forms import Form


def vector_type(form: Form) -> str:
    return "V" if form.vector > 1 else "float"


def pieces(count: int) -> list[tuple[int, int]]:
    """Part of a vector as vectors that there are -> (first, size) of each."""
    out, first = [], 0
    for size in (8, 4, 2, 1):
        if count - first >= size:
            out.append((first, size))
            first += size
    return out


def load(pointer: str, count: int, vector: int) -> str:
    """The first `count` floats at a place as a vector, with zeros behind them."""
    if vector == 1:
        return f"*({pointer})"
    if count == vector:
        return f"LOAD({pointer})"
    parts = []
    for first, size in pieces(count):
        at = f"({pointer} + {first})" if first else f"({pointer})"
        parts.append(f"*{at}" if size == 1 else f"*(__global const FLOAT{size}*){at}")
    return f"(V)({', '.join(parts + ['0.0f'] * (vector - count))})"


def store(pointer: str, value: str, count: int, vector: int) -> list[str]:
    """Statements that store the first `count` floats of a vector, and touch nothing behind them."""
    if vector == 1:
        return [f"*({pointer}) = {value};"]
    if count == vector:
        return [f"STORE({pointer}, {value});"]
    out = []
    for first, size in pieces(count):
        lanes = "".join(f"{lane:x}" for lane in range(first, first + size))
        out.append(f"STORE{size}({pointer}{f' + {first}' if first else ''}, {value}.s{lanes});")
    return out


def indent(lines: Sequence[str], by: int = 1) -> list[str]:
    return [f"{'    ' * by}{line}" if line else line for line in lines]


@dataclass(frozen=True)
class Columns:
    """Tiles of one width next to each other: their numbers begin at `tile`, their columns at `column`.

    vectors: of each; last: columns of the last vector.
    """

    tile: int
    column: int
    vectors: int
    last: int


def column_tiles(width: int, most: int, vector: int) -> tuple[int, list[Columns]]:
    """Columns cut into tiles of `most` vectors, or nearly equal ones of fewer -> how many, and their groups.

    Equal tiles waste least: where a tile is narrow, memory is not read in long stretches.
    """
    vectors = -(-width // vector)
    tiles = -(-vectors // most)
    wide, rest = vectors // tiles, width - (vectors - 1) * vector
    groups = []
    tile = column = 0
    for count, size in ((vectors % tiles, wide + 1), (tiles - vectors % tiles, wide)):
        whole = count - 1 if tile + count == tiles and rest < vector else count
        for n, last in ((whole, vector), (count - whole, rest)):
            if n > 0:
                groups.append(Columns(tile, column, size, last))
                tile, column = tile + n, column + n * size * vector
    return tiles, groups


def by_columns(
    number: str,
    groups: Sequence[Columns],
    vector: int,
    body: Callable[[Columns], list[str]],
    name: str = "column",
) -> list[str]:
    """The statements of each group of tiles, behind their first column, `name`; number: the tile's."""
    out: list[str] = []
    for i, group in enumerate(groups):
        size = group.vectors * vector
        column = (
            f"{group.column} + ({number} - {group.tile}) * {size}" if group.tile else f"{number} * {size}"
        )
        inside = [f"const int {name} = {column};", *body(group)]
        if len(groups) == 1:
            return inside
        test = f"if ({number} < {groups[i + 1].tile}) " if i + 1 < len(groups) else ""
        out += [f"{'} else ' if i else ''}{test}{{", *indent(inside)]
    return [*out, "}"]
