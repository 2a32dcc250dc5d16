"""What kernels of products are made of: how they reach rows of a frame, how a tile begins and ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from amphw.engine.tiles.code import Code, Phase, Place, Ref
from amphw.opencl import abi
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.tiles import indent, load, store
from amphw.opencl.layout import Layout, Layouts, copy_layout


class Finish(Protocol):
    """Elementwise work on a product's results, done while they are in registers."""

    @property
    def tables(self) -> Sequence[int]:
        """Bases whose rows it refers to as `row_{base}`."""

    @property
    def buffers(self) -> Sequence[str]:
        """Buffers that it refers to by name."""

    @property
    def stores_result(self) -> bool:
        """Whether the product itself is still wanted in its place."""

    def statements(self, value: str, row: str, column: str, count: str) -> list[str]:
        """C for one vector of results.

        value: a variable of type V (float where vectors are single); row: of the frame; column: of d, where
        the vector begins; count: how many columns of the vector there are, a number.
        """


@dataclass
class FrameRows:
    """How a kernel of a frame finds rows: what it declares for that, and the buffers it needs.

    layouts: of the parameters. A number outside the rows of one that is looked up is a fault, and reads row
    0.
    """

    code: Code
    layouts: Layouts = field(default_factory=dict)
    tables: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)

    def need(self, base: int) -> None:
        """Say that rows of a base will be asked for."""
        found = self.code.bases[base]
        if self.is_parameter(base):
            self.buffer(f"p{found.index}")
            if found.place == Place.ParamRow and found.ints not in self.slots:
                self.slots.append(found.ints)
        elif base not in self.tables:
            self.tables.append(base)

    def is_parameter(self, base: int) -> bool:
        """Whether its rows lie in a parameter, which kernels of a frame only read."""
        return self.code.bases[base].place in (Place.Param, Place.ParamRow)

    def buffer(self, name: str) -> str:
        if name not in self.buffers:
            self.buffers.append(name)
        return name

    def declarations(self) -> list[str]:
        lines = [
            f"__global const int* table_{b} = (__global const int*)arena + head[TABLES + {b}];"
            for b in self.tables
        ]
        at = len(self.code.bases)
        return lines + [
            f"__global const long* ints_{s} = (__global const long*)(arena + head[TABLES + {at + s}]);"
            for s in self.slots
        ]

    def layout_of(self, phase: Phase, form: Form) -> Layout:
        """How the matrix of a product lies, or its transposed copy."""
        depth = sum(s.width for s in phase.a)
        if phase.transposed:
            return copy_layout(depth, phase.width, form)
        return self.layouts.get(phase.param) or Layout(max(phase.first_row, 0) + depth, phase.width)

    def pointer(self, ref: Ref, row: str) -> str:
        """Where the row's columns from `ref.offset` on are."""
        base = self.code.bases[ref.base]
        behind = f" + {ref.offset}" if ref.offset else ""
        if base.place == Place.Param:
            return f"p{base.index}{behind}"
        if base.place == Place.ParamRow:
            number = f"ints_{base.ints}[{row}]"
            if (layout := self.layouts.get(base.index)) is not None:
                number = f"checked({number}, {layout.rows}, faults, FAULT_TAKE, {row})"
            return f"p{base.index} + {number} * {abi.stride(base.width)}{behind}"
        return f"arena + table_{ref.base}[{row}]{behind}"


def signature(name: str, buffers: Sequence[str], written: Sequence[str], local: Sequence[int]) -> list[str]:
    """The head of a kernel of the usual arguments; `written`: which of the buffers it writes."""
    arguments = ["__global float* arena", "int frame", "__global int* faults"]
    for b in buffers:
        kind = "int" if b.startswith("touched") else "float"
        arguments.append(f"__global {kind}* {b}" if b in written else f"__global const {kind}* {b}")
    size = ", ".join(str(n) for n in (*local, 1, 1, 1)[:3])
    return [
        f"__kernel __attribute__((reqd_work_group_size({size})))",
        f"void {name}({', '.join(arguments)})",
    ]


def weights(phase: Phase, layout: Layout) -> str:
    """Where W's part begins; the transposed copy has that part alone."""
    if phase.transposed:
        return f"p{phase.param}t"
    return f"p{phase.param}" + (f" + {phase.first_row * layout.step}" if phase.first_row > 0 else "")


def beginning(rows: FrameRows, phase: Phase, row: str, column: str, count: int, vector: int) -> str:
    """What one vector of the result begins with, before anything is multiplied."""
    terms = []
    if phase.bias >= 0:
        terms.append(load(f"p{phase.bias} + {column}", vector, vector))
    if phase.start >= 0:
        terms.append(load(f"{rows.pointer(Ref(phase.start), row)} + {column}", count, vector))
    if phase.accumulate:
        terms.append(load(f"{rows.pointer(phase.d, row)} + {column}", count, vector))
    return " + ".join(terms) or "0.0f"


def ending(
    rows: FrameRows, phase: Phase, finish: Finish | None, vectors: Sequence[tuple[str, str, int]], vector: int
) -> list[str]:
    """What happens to the results of row `r`: they are stored, and finished.

    vectors: (value, column, count) of each.
    """  # fmt: skip
    out, kind = [], "V" if vector > 1 else "float"
    for base in dict.fromkeys(finish.tables if finish else ()):
        constant = "const " if rows.is_parameter(base) else ""
        out.append(f"__global {constant}float* row_{base} = {rows.pointer(Ref(base), 'r')};")
    if finish is None or finish.stores_result:
        out.append(f"__global float* result = {rows.pointer(phase.d, 'r')};")
    for value, column, count in vectors:
        done = []
        if finish is None or finish.stores_result:
            done += store(f"result + {column}", "value", count, vector)
        if finish is not None:
            done += finish.statements("value", "r", column, str(count))
        out += ["{", f"    {kind} value = {value};", *indent(done), "}"]
    return out
