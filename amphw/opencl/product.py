"""Products over the rows of a frame: d (+)= [a segments] @ W (+ bias, or + the rows of a base).

Plain form, for CPUs: a work-item keeps a tile of the result in registers, `rows` rows of `vectors` vectors, and
goes once through the columns of the left side: one row of W's columns, times one number of each of its rows.
Its last columns are a tile of their own, as narrow as they are. Rows behind the last are computed as copies of
the last, and not stored. Local form, for GPUs: see `product_local`.

A result is whole when it leaves the registers, which is where elementwise work that follows it is done: `Finish`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from amphw.engine.tile_code import Code, Phase, Place, Ref
from amphw.opencl import abi
from amphw.opencl.forms import Form


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

        value: a variable of type V; row: the frame's row; column: of d, where the vector begins; count: how many
        columns of the vector there are, a number.
        """


# --- vectors -----------------------------------------------------------------------------------------------------


def prelude(form: Form) -> str:
    """What the kernels' text refers to: places in headers, the vector type and ways to load and store it."""
    v = form.vector
    lines = [
        "#pragma OPENCL FP_CONTRACT ON  // a * b + c is one operation, of one rounding",
        f"#define ROWS {abi.ROWS}",
        f"#define TABLES {abi.TABLES}",
        f"#define LOG_ROWS {abi.LOG_ROWS}",
        f"#define LOG_BUFFERS {abi.LOG_BUFFERS}",
        f"#define BAD_GRADIENT {abi.BAD_GRADIENT}",
        "// Rows may begin anywhere, so a vector in memory is aligned as a float is.",
    ]
    for n in (2, 4, 8, 16):
        lines += [
            f"typedef float{n} __attribute__((aligned(4))) F{n};",
            f"#define LOAD_{n}(p) (*(__global const F{n}*)(p))",
            f"#define STORE_{n}(p, v) (*(__global F{n}*)(p) = (v))",
        ]
    lines += ["#define LOAD_1(p) (*(p))", "#define STORE_1(p, v) (*(p) = (v))"]
    lines += [
        f"typedef float{v if v > 1 else ''} V;",
        f"#define LOAD(p) LOAD_{v}(p)",
        f"#define STORE(p, v) STORE_{v}(p, v)",
    ]
    return "\n".join(lines) + "\n"


def pieces(count: int) -> list[tuple[int, int]]:
    """Part of a vector as vectors that there are -> (first, size) of each."""
    out, first = [], 0
    for size in (16, 8, 4, 2, 1):
        if count - first >= size:
            out.append((first, size))
            first += size
    return out


def load(pointer: str, count: int, vector: int) -> str:
    """The first `count` floats at a place as a vector, with zeros behind them."""
    if count == vector:
        return f"LOAD({pointer})"
    parts = [f"LOAD_{size}({pointer} + {first})" for first, size in pieces(count)]
    return f"(V)({', '.join(parts + ['0.0f'] * (vector - count))})"


def store(pointer: str, value: str, count: int, vector: int) -> list[str]:
    """Statements that store the first `count` floats of a vector, and touch nothing behind them."""
    if count == vector:
        return [f"STORE({pointer}, {value});"]
    out = []
    for first, size in pieces(count):
        lanes = "".join(f"{lane:x}" for lane in range(first, first + size))
        out.append(f"STORE_{size}({pointer} + {first}, {value}.s{lanes});")
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


# --- rows of a frame ---------------------------------------------------------------------------------------------


@dataclass
class FrameRows:
    """How a kernel of a frame finds rows: what it declares for that, and the buffers it needs.

    table_rows: rows of the parameters that are looked up; a number outside them is a fault, and reads row 0.
    """

    code: Code
    table_rows: Mapping[int, int] = field(default_factory=dict)
    tables: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)

    def need(self, base: int) -> None:
        """Say that rows of a base will be asked for."""
        found = self.code.bases[base]
        if found.place in (Place.Param, Place.ParamRow):
            self.buffer(f"p{found.index}")
            if found.place == Place.ParamRow and found.ints not in self.slots:
                self.slots.append(found.ints)
        elif base not in self.tables:
            self.tables.append(base)

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

    def pointer(self, ref: Ref, row: str) -> str:
        """Where the row's columns from `ref.offset` on are."""
        base = self.code.bases[ref.base]
        behind = f" + {ref.offset}" if ref.offset else ""
        if base.place == Place.Param:
            return f"p{base.index}{behind}"
        if base.place == Place.ParamRow:
            number = f"ints_{base.ints}[{row}]"
            if (rows := self.table_rows.get(base.index, 0)) > 0:
                number = f"checked({number}, {rows}, {row}, faults)"
            return f"p{base.index} + {number} * {abi.stride(base.width)}{behind}"
        return f"arena + table_{ref.base}[{row}]{behind}"


CHECKED = """
// The number of a table's row, or 0 and a fault where there is no such row.
long checked(long number, int rows, int row, volatile __global int* faults)
{
    if (number >= 0 && number < rows) return number;
    if (atomic_cmpxchg(faults, 0, 1) == 0) faults[1] = row;
    return 0;
}
"""
"""Text that kernels with `table_rows` need ahead of them, once a program."""


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


# --- the product -------------------------------------------------------------------------------------------------


def product_kernel(
    name: str,
    code: Code,
    phase: Phase,
    form: Form,
    finish: Finish | None,
    comment: str,
    table_rows: Mapping[int, int] | None = None,
) -> abi.Kernel:
    """The kernel of one Gemm phase. table_rows: as in `FrameRows`."""
    from amphw.opencl.product_local import local_body  # which needs this file's parts

    rows = FrameRows(code, table_rows or {})
    for segment in phase.a:
        rows.need(segment.at.base)
    rows.need(phase.d.base)
    if phase.start >= 0:
        rows.need(phase.start)
    rows.buffer(f"p{phase.param}t" if phase.transposed else f"p{phase.param}")
    if phase.bias >= 0:
        rows.buffer(f"p{phase.bias}")
    for base in finish.tables if finish else ():
        rows.need(base)
    for buffer in finish.buffers if finish else ():
        rows.buffer(buffer)

    shape = form.product
    if shape.local:
        local = (shape.group, shape.group)
        across = -(-phase.width // (shape.vectors * shape.group)) * shape.group
        body = local_body(rows, phase, form, finish)
    else:
        local = (1, 1)
        across = column_tiles(phase.width, shape.vectors, form.vector)[0]
        body = _plain_body(rows, phase, form, finish)
    text = [
        *(f"// {line}" for line in comment.splitlines()),
        *signature(name, rows.buffers, (), local),
        "{",
        "    __global const int* head = (__global const int*)arena + frame;",
        f"    const int rows = head[ROWS + {phase.space}];",
        *indent(rows.declarations()),
        *indent(body),
        "}",
    ]
    return abi.Kernel(
        name,
        "\n".join(text) + "\n",
        tuple(rows.buffers),
        phase.space,
        (across,),
        shape.rows * (shape.group if shape.local else 1),
        local,
    )


def weights(phase: Phase) -> str:
    """Where W's part begins; the transposed copy has that part alone."""
    if phase.transposed:
        return f"p{phase.param}t"
    return f"p{phase.param}" + (
        f" + {phase.first_row * abi.stride(phase.width)}" if phase.first_row > 0 else ""
    )


def beginning(rows: FrameRows, phase: Phase, row: str, column: str, count: int, vector: int) -> str:
    """What one vector of the result begins with, before anything is multiplied."""
    terms = []
    if phase.bias >= 0:
        terms.append(f"LOAD(p{phase.bias} + {column})")
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
    out = []
    for base in dict.fromkeys(finish.tables if finish else ()):
        out.append(f"__global float* row_{base} = {rows.pointer(Ref(base), 'r')};")
    if finish is None or finish.stores_result:
        out.append(f"__global float* result = {rows.pointer(phase.d, 'r')};")
    for value, column, count in vectors:
        done = []
        if finish is None or finish.stores_result:
            done += store(f"result + {column}", "value", count, vector)
        if finish is not None:
            done += finish.statements("value", "r", column, str(count))
        out += ["{", f"    V value = {value};", *indent(done), "}"]
    return out


def _plain_body(rows: FrameRows, phase: Phase, form: Form, finish: Finish | None) -> list[str]:
    return [
        f"const int first = get_global_id(0) * {form.product.rows};",
        "const int tile = get_global_id(1);",
        *by_columns(
            "tile",
            column_tiles(phase.width, form.product.vectors, form.vector)[1],
            form.vector,
            lambda columns: _tile(rows, phase, form, finish, columns),
        ),
    ]


def _tile(rows: FrameRows, phase: Phase, form: Form, finish: Finish | None, tile: Columns) -> list[str]:
    """One tile of the result, from its beginning to its end."""
    vector, height, vectors = form.vector, form.product.rows, tile.vectors
    columns = [(f"column + {v * vector}", vector) for v in range(vectors - 1)]
    columns.append((f"column + {(vectors - 1) * vector}", tile.last))
    out = [f"V sum[{height}][{vectors}];"]
    over_rows = [
        "#pragma unroll",
        f"for (int i = 0; i < {height}; i++) {{",
    ]
    clamped = (
        ["const int r = first + i < rows ? first + i : rows - 1;"] if height > 1 else ["const int r = first;"]
    )
    starts = [
        f"sum[i][{v}] = {beginning(rows, phase, 'r', column, count, vector)};"
        for v, (column, count) in enumerate(columns)
    ]
    out += [*over_rows, *indent([*clamped, *starts] if phase.start >= 0 or phase.accumulate else starts), "}"]
    out.append(f"__global const float* w = {weights(phase)} + column;")
    for segment in phase.a:
        out += [
            "{",
            f"    __global const float* a[{height}];",
            *indent([*over_rows, *indent([*clamped, f"a[i] = {rows.pointer(segment.at, 'r')};"]), "}"]),
            f"    for (int k = 0; k < {segment.width}; k++, w += {abi.stride(phase.width)}) {{",
            *(f"        const V w{v} = LOAD(w + {v * vector});" for v in range(vectors)),
            *indent([*over_rows, "    const float x = a[i][k];"], 2),
            *(f"            sum[i][{v}] = x * w{v} + sum[i][{v}];" for v in range(vectors)),
            "        }",
            "    }",
            "}",
        ]
    results = [(f"sum[i][{v}]", column, count) for v, (column, count) in enumerate(columns)]
    out += [
        *over_rows,
        "    const int r = first + i;",
        "    if (r < rows) {",
        *indent(ending(rows, phase, finish, results, vector), 2),
        "    }",
        "}",
    ]
    return out
