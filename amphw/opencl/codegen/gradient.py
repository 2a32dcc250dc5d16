"""Gradients of parameters, from the rows of a log job: what each `Term` contributes is added to "g{param}".

Kernels take (arena, int job, faults, buffers...); the job's header says how many rows there are and where the
log buffers lie, row after row (`abi.LOG_ROWS`, `abi.LOG_BUFFERS`). Every number of a gradient is added up by
one work-item, row after row, so the result is the same in every run.

A matrix is computed in tiles that stay in registers, and a bias whose gradient is the sum of the same rows is
done with it, while they are in the cache. A table's rows are added in the order of the log, in parallel over
columns alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from amphw.engine.tiles.code import Term, TiledUnit
from amphw.opencl import abi
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.product_parts import signature
from amphw.opencl.codegen.tiles import Columns, by_columns, column_tiles, indent, load, store, vector_type
from amphw.opencl.layout import Layout, Layouts

ALL_ROWS = 1 << 30
"""Rows a group goes through: however many the job has, one group in dimension 0, and none if it has none."""


@dataclass(frozen=True)
class Rows:
    """Rows of a factor: where they begin (C), its columns, and floats from one row to the next."""

    at: str
    width: int
    stride: int


@dataclass(frozen=True)
class Gradient:
    """Rows of a matrix's gradient that a product is added to, from the first on."""

    name: str
    layout: Layout
    first_row: int = 0


def gradient_kernels(
    name: str, unit: TiledUnit, form: Form, layouts: Layouts, touched: Collection[int]
) -> list[abi.Kernel]:
    """The kernels of a unit's terms, to run in this order.

    layouts: of the parameters, folded tables included. touched: those whose touched rows are marked, in
    "touched{param}", int a row.
    """
    sums = [t for t in unit.terms if t.kind == "sum"]
    kernels = []
    for number, term in enumerate(unit.terms):
        called = f"{name}_{number}"
        if term.kind == "matmul":
            with_it = next((s for s in sums if s.d == term.d), None)
            if with_it is not None:
                sums.remove(with_it)
            kernels.append(_matmul(called, unit, term, with_it, form, layouts[term.param]))
        elif term.kind == "take":
            kernels.append(_take(called, unit, term, form, layouts[term.param].rows, term.param in touched))
    for number, term in enumerate(sums):
        kernels.append(_sum(f"{name}_sum{number}", unit, term, form))
    return kernels


def _log(unit: TiledUnit, buffer: int, name: str) -> Rows:
    width = unit.log_buffers[buffer][0]
    return Rows(name, width, abi.row_stride(width))


def _job_kernel(
    name: str, unit: TiledUnit, log: int, form: Form, items: tuple[int, ...], buffers: Sequence[str],
    body: list[str], comment: str,
) -> abi.Kernel:  # fmt: skip
    """A kernel over a job's rows of the space of one log buffer."""
    space = unit.log_buffers[log][1]
    text = [
        f"// {comment}",
        *(line.replace("int frame", "int job") for line in signature(name, buffers, buffers, (form.lanes,))),
        "{",
        "    __global const int* head = (__global const int*)arena + job;",
        f"    const int rows = head[LOG_ROWS + {space}];",
        f"    __global const float* d = arena + head[LOG_BUFFERS + {log}];",
        *indent(body),
        "}",
    ]
    local = (form.lanes, *(1 for _ in items))
    return abi.Kernel(name, "\n".join(text) + "\n", tuple(buffers), space, items, ALL_ROWS, local)


# --- matrices -----------------------------------------------------------------------------------------------


def _matmul(
    name: str, unit: TiledUnit, term: Term, bias: Term | None, form: Form, layout: Layout
) -> abi.Kernel:
    x, d = _log(unit, term.x, "x"), _log(unit, term.d, "d")
    buffers = [f"g{term.param}"] + ([f"g{bias.param}"] if bias else [])
    gradient = Gradient(f"g{term.param}", layout, term.first_row)
    body, items = matmul_body(x, d, gradient, f"g{bias.param}" if bias else "", form)
    begin = f"__global const float* x = arena + head[LOG_BUFFERS + {term.x}];"
    added = f", g{bias.param} += sum of its rows" if bias else ""
    comment = (
        f"g{term.param}[{term.first_row}:{term.first_row + x.width}] += log{term.x}' @ log{term.d}{added}"
    )
    return _job_kernel(name, unit, term.d, form, items, buffers, [begin, *body], comment)


def matmul_body(
    x: Rows, d: Rows, gradient: Gradient, bias: str, form: Form
) -> tuple[list[str], tuple[int, ...]]:
    """Statements for gradient += x' @ d over `rows` rows; work-items in dimensions 1 and 2.

    bias: where the sum of d's rows is added as well, "": nowhere.
    """
    # Columns of x are rows of the gradient; tiles of one height, or two heights next to each other.
    heights, tall = column_tiles(x.width, form.product.rows, 1)
    below = form.product.tiles  # that an item computes one after the other
    tiles, wide = d_tiles(d.width, form)

    def tile(columns: Columns) -> list[str]:
        out = by_columns("high", tall, 1, lambda h: _tile(x, d, gradient, form, columns, h.vectors), "row")
        if below > 1:
            each = f"for (int high = first; high < LEAST(first + {below}, {heights}); high++) {{"
            out = [each, *indent(out), "}"]
        if bias:
            out += ["if (first == 0) {", *indent(_column_sums(d, bias, form, columns)), "}"]
        return out

    first = f"get_global_id(1) * {below}" if below > 1 else "get_global_id(1), high = first"
    return [
        f"const int first = {first}, tile = {tile_number(2, form)};",
        *within(d.width, tiles, form),
        *by_columns("tile", wide, form.vector, tile),
    ], (-(-heights // below), tiles)


def d_tiles(width: int, form: Form) -> tuple[int, list[Columns]]:
    """How columns are shared out: in tiles of vectors, or one to each of a group's work-items."""
    if form.lanes == 1:
        return column_tiles(width, form.product.vectors, form.vector)
    return -(-width // form.lanes), [Columns(0, 0, 1, form.vector)]


def tile_number(dimension: int, form: Form) -> str:
    tile = f"get_global_id({dimension})"
    return tile if form.lanes == 1 else f"{tile} * {form.lanes} + get_local_id(0)"


def within(width: int, tiles: int, form: Form) -> list[str]:
    """Work-items without a column have nothing to do."""
    return [f"if (tile >= {width}) return;"] if tiles * form.lanes > width and form.lanes > 1 else []


def _tile(x: Rows, d: Rows, gradient: Gradient, form: Form, columns: Columns, height: int) -> list[str]:
    vector, layout, kind = form.vector, gradient.layout, vector_type(form)
    counts = [vector] * (columns.vectors - 1) + [columns.last]
    start = f"({gradient.first_row} + row)" if gradient.first_row else "row"
    places = [f"g + i * {layout.step} + {v * layout.apart(vector)}" for v in range(len(counts))]
    out = [
        f"__global float* g = {gradient.name} + {layout.place('column')} + {start} * {layout.step};",
        f"__global const float* left = {x.at} + row;",
        f"__global const float* right = {d.at} + column;",
        f"{kind} sum[{height}][{len(counts)}];",
    ]
    over_rows = ["#pragma unroll", f"for (int i = 0; i < {height}; i++) {{"]
    out += [*over_rows]
    out += [f"    sum[i][{v}] = {load(places[v], vector, vector)};" for v in range(len(counts))]
    out += [
        "}",
        # The tile below is the next one.
        *(
            [*over_rows, *(f"    ASK({p} + {height * layout.step});" for p in places), "}"]
            if form.panels
            else []
        ),
        f"for (int k = 0; k < rows; k++, left += {x.stride}, right += {d.stride}) {{",
        *(f"    const {kind} d{v} = {_row_part(d, v, counts[v], vector)};" for v in range(len(counts))),
        *indent(over_rows),
        *(f"        sum[i][{v}] = left[i] * d{v} + sum[i][{v}];" for v in range(len(counts))),
        "    }",
        "}",
        *over_rows,
    ]
    for v, count in enumerate(counts):
        out += indent(store(places[v], f"sum[i][{v}]", count, vector))
    return [*out, "}"]


def _row_part(d: Rows, v: int, count: int, vector: int) -> str:
    """A vector of a row of d. Wide rows end with the vector, whatever is there: it is not stored."""
    return load(f"right + {v * vector}", count if d.stride < abi.rounded(d.width, vector) else vector, vector)


# --- biases -------------------------------------------------------------------------------------------------


def _sum(name: str, unit: TiledUnit, term: Term, form: Form) -> abi.Kernel:
    body, items = sum_body(_log(unit, term.d, "d"), f"g{term.param}", form)
    comment = f"g{term.param} += sum of the rows of log{term.d}"
    return _job_kernel(name, unit, term.d, form, items, [f"g{term.param}"], body, comment)


def sum_body(d: Rows, gradient: str, form: Form) -> tuple[list[str], tuple[int, ...]]:
    """Statements for gradient += sum of d's rows, and its work-items in dimension 1."""
    tiles, wide = d_tiles(d.width, form)
    return [
        f"const int tile = {tile_number(1, form)};",
        *within(d.width, tiles, form),
        *by_columns("tile", wide, form.vector, lambda columns: _column_sums(d, gradient, form, columns)),
    ], (tiles,)


def _column_sums(d: Rows, gradient: str, form: Form, columns: Columns) -> list[str]:
    vector, kind = form.vector, vector_type(form)
    counts = [vector] * (columns.vectors - 1) + [columns.last]
    out = [f"__global const float* right = {d.at} + column;"]
    out += [
        f"{kind} total{v} = {load(f'{gradient} + column + {v * vector}', vector, vector)};"
        for v in range(len(counts))
    ]
    out.append(f"for (int k = 0; k < rows; k++, right += {d.stride}) {{")
    out += [f"    total{v} += {_row_part(d, v, counts[v], vector)};" for v in range(len(counts))]
    out.append("}")
    for v, count in enumerate(counts):
        out += store(f"{gradient} + column + {v * vector}", f"total{v}", count, vector)
    return out


# --- tables -------------------------------------------------------------------------------------------------


def _take(name: str, unit: TiledUnit, term: Term, form: Form, table_rows: int, touched: bool) -> abi.Kernel:
    d = _log(unit, term.d, "d")
    tiles, wide = d_tiles(d.width, form)
    at = len(unit.log_buffers) + unit.log_ints.index(term.ints)
    gradient, stride = f"g{term.param}", abi.stride(d.width)
    vector, kind = form.vector, vector_type(form)
    marks = f"touched{term.param}"

    def tile(columns: Columns) -> list[str]:
        counts = [vector] * (columns.vectors - 1) + [columns.last]
        out = [
            "__global const float* right = d + column;",
            f"for (int k = 0; k < rows; k++, right += {d.stride}) {{",
            "    const long number = index[k];",
            f"    if (number < 0 || number >= {table_rows}) continue;  // the frame's fault",
            f"    __global float* g = {gradient} + number * {stride} + column;",
        ]
        for v, count in enumerate(counts):
            value = f"{load(f'g + {v * vector}', vector, vector)} + {_row_part(d, v, count, vector)}"
            out += [
                f"    const {kind} sum{v} = {value};",
                *indent(store(f"g + {v * vector}", f"sum{v}", count, vector)),
            ]
        return [*out, *(["    if (tile == 0) " + f"{marks}[number] = 1;"] if touched else []), "}"]

    body = [
        f"__global const long* index = (__global const long*)(arena + head[LOG_BUFFERS + {at}]);",
        f"const int tile = {tile_number(1, form)};",
        *within(d.width, tiles, form),
        *by_columns("tile", wide, vector, tile),
    ]
    buffers = [gradient] + ([marks] if touched else [])
    comment = f"{gradient}[number of the row] += log{term.d}, row after row"
    return _job_kernel(name, unit, term.d, form, (tiles,), buffers, body, comment)
