"""How a kernel finds rows: the beginning of its text, and the pointers of one row."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from amphw.engine.tile_code import Base, Code, Phase, Place
from amphw.opencl.abi import stride


def buffer(base: Base) -> str:
    """The parameter buffer that the rows of a base lie in; "" if they have a table."""
    return f"p{base.index}" if base.place in (Place.Param, Place.ParamRow) else ""


def buffers(code: Code, bases: Iterable[int]) -> tuple[str, ...]:
    """Parameter buffers that a kernel needs for these bases."""
    return tuple(sorted({buffer(code.bases[b]) for b in bases} - {""}))


def head(name: str, names: Iterable[str], comment: str, local_size: tuple[int, ...]) -> list[str]:
    """A kernel's first lines, up to the opening brace. names: its buffers."""
    sizes = ", ".join(map(str, (*local_size, 1, 1)[:3]))
    arguments = ["__global float* arena", "const int frame", "__global int* faults"]
    arguments += [f"__global const float* {n}" for n in names]
    return [
        f"// {comment}",
        f"__kernel __attribute__((reqd_work_group_size({sizes})))",
        f"void {name}({', '.join(arguments)})",
        "{",
    ]


def integers(code: Code, slot: int) -> str:
    """The values of an integer slot, long [rows]."""
    return f"INTS({len(code.bases) + slot})"


def row_pointer(code: Code, b: int, row: str) -> str:
    """Where a row of a base begins, whatever the base; text that includes it needs `with_table_rows`."""
    base = code.bases[b]
    if base.place == Place.Param:
        return buffer(base)
    if base.place != Place.ParamRow:
        return f"ROW({b}, {row})"
    index = (
        f"checked({integers(code, base.ints)}[{row}], {_table_rows(base.index)}, faults, FAULT_TAKE, {row})"
    )
    return f"{buffer(base)} + (long){index} * {stride(base.width)}"


def pointer_type(base: Base) -> str:
    return "__global const float*" if buffer(base) or base.place == Place.Constant else "__global float*"


def identifier(code: Code, b: int) -> str:
    """A name for a row of a base, as tile code prints it: x0, p3_i1."""
    return re.sub(r"\W", "_", str(code.bases[b])).rstrip("_")


def lines_of(code: Code, phase: Phase) -> list[str]:
    """The phase's lines of tile code, one for each instruction."""
    lines = str(replace(code, phases=(phase,))).splitlines()
    return [line.strip() for line in (lines[1:] if phase.code else lines)]


def _table_rows(param: int) -> str:
    return f"TABLE_ROWS_{param}"


def with_table_rows(text: str, shapes: list[tuple[int, ...]]) -> str:
    """The text behind definitions of how many rows the tables have that it takes rows from.

    shapes: of the unit's parameters, the folded ones behind.
    """
    found = sorted({int(n) for n in re.findall(r"\bTABLE_ROWS_(\d+)\b", text)})
    lines = [f"#undef {_table_rows(n)}\n#define {_table_rows(n)} {shapes[n][0]}\n" for n in found]
    return "".join(lines) + text
