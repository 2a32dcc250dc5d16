"""How a kernel finds rows: the beginning of its text, and expressions for what a row's number leads to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from amphw.engine.tiles.code import Base, Code, Phase, Place, Ref
from amphw.opencl.abi import Kernel, stride
from amphw.opencl.codegen.tiles import indent
from amphw.opencl.layout import Layouts


@dataclass(frozen=True)
class Pointers:
    """Expressions for the rows of a code. layouts: of the parameters that rows are looked up in."""

    code: Code
    layouts: Layouts = field(default_factory=dict)

    def integers(self, slot: int) -> str:
        """The values of an integer slot, long [rows]."""
        return f"INTS({len(self.code.bases) + slot})"

    def row(self, b: int, row: str) -> str:
        """Where a row of a base begins. A number that a table does not have is a fault, and row 0."""
        base = self.code.bases[b]
        if base.place == Place.Param:
            return buffer(base)
        if base.place != Place.ParamRow:
            return f"ROW({b}, {row})"
        end = self.layouts[base.index].rows
        index = f"checked({self.integers(base.ints)}[{row}], {end}, faults, FAULT_TAKE, {row})"
        return f"{buffer(base)} + (long){index} * {stride(base.width)}"

    def at(self, ref: Ref, row: str, column: str = "") -> str:
        """Where a column of a row is, counted from the reference's own."""
        return plus(self.row(ref.base, row), ref.offset, column)

    def kind(self, b: int) -> str:
        """The type of a pointer to a base's row."""
        base = self.code.bases[b]
        return "__global const float*" if buffer(base) or base.place == Place.Constant else "__global float*"

    def name(self, b: int) -> str:
        """A name for a row of a base, as tile code prints it: x0, p3_i1."""
        return re.sub(r"\W", "_", str(self.code.bases[b])).rstrip("_")

    def buffers(self, bases: Iterable[int]) -> tuple[str, ...]:
        """The parameter buffers that rows of these bases lie in."""
        return tuple(sorted({buffer(self.code.bases[b]) for b in bases} - {""}))

    def lines(self, phase: Phase) -> list[str]:
        """The phase's lines of tile code, one for each instruction."""
        lines = str(replace(self.code, phases=(phase,))).splitlines()
        return [line.strip() for line in (lines[1:] if phase.code else lines)]


def buffer(base: Base) -> str:
    """The parameter buffer that the rows of a base lie in; "" if they have a table."""
    return f"p{base.index}" if base.place in (Place.Param, Place.ParamRow) else ""


def plus(pointer: str, offset: int, column: str = "") -> str:
    """A pointer moved by an offset and an expression, less the zeros among them."""
    parts = [pointer, str(offset) if offset else "", column if column != "0" else ""]
    return " + ".join(p for p in parts if p)


def head(name: str, buffers: Iterable[str], comment: str, local_size: tuple[int, ...]) -> list[str]:
    """A kernel's first lines, up to the opening brace."""
    sizes = ", ".join(map(str, (*local_size, 1, 1)[:3]))
    arguments = ["__global float* arena", "int frame", "__global int* faults"]
    arguments += [f"__global const float* {b}" for b in buffers]
    return [
        *(f"// {line}" for line in comment.splitlines()),
        f"__kernel __attribute__((reqd_work_group_size({sizes})))",
        f"void {name}({', '.join(arguments)})",
        "{",
    ]


def frame_kernel(
    name: str, buffers: Sequence[str], comment: str, space: int, body: Sequence[str], *,
    items: tuple[int, ...] = (), rows_per_group: int = 1, local_size: tuple[int, ...] = (1,),
    by_message: bool = False,
) -> Kernel:  # fmt: skip
    """The kernel of a phase. body: statements for the rows (or messages) `first` to `end` - 1, and number
    `item` in the second dimension."""
    count = "HEADER[MESSAGES]" if by_message else f"ROWS_OF({space})"
    begin = "get_group_id(0)" if rows_per_group == 1 else f"(int)get_group_id(0) * {rows_per_group}"
    behind = "first + 1" if rows_per_group == 1 else f"LEAST(first + {rows_per_group}, {count})"
    given = {"first": begin, "end": behind, "item": "get_group_id(1)"}
    used = [n for n in given if n == "first" or any(re.search(rf"\b{n}\b", line) for line in body)]
    text = [
        *head(name, buffers, comment, local_size),
        f"    const int {', '.join(f'{n} = {given[n]}' for n in used)};",
        *indent(body),
        "}",
    ]
    source = "\n".join(text) + "\n"
    alone = tuple(body) if prod(local_size) == 1 else ()
    return Kernel(name, source, tuple(buffers), space, items, rows_per_group, local_size, by_message, alone)
