"""Products over the rows of a frame: d (+)= [a segments] @ W (+ bias, or + the rows of a base).

Plain form, for CPUs: a work-item keeps a tile of the result in registers, `rows` rows of `vectors` vectors,
and goes once through the columns of the left side: a row of W, times one number of each of the tile's rows.
Then it does the same for the tile below, with those rows of W in the caches. Rows behind the last are
computed as copies of the last, and not stored. Local form, for GPUs: see `product_local`.

A result is whole when it leaves the registers, which is where elementwise work on it can be done: `Finish`.
"""

from __future__ import annotations

from amphw.engine.tiles.code import Code, Phase, Segment
from amphw.opencl import abi
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.pointers import frame_kernel
from amphw.opencl.codegen.product_local import local_body
from amphw.opencl.codegen.product_parts import Finish, FrameRows, beginning, ending, signature, weights
from amphw.opencl.codegen.tiles import Columns, by_columns, column_tiles, indent, load, vector_type
from amphw.opencl.layout import Layouts

BLOCK = 400
"""Rows of W that are multiplied at once: 25 KB with one vector of 16, for first-level caches of 32 KB."""


def product_kernel(
    name: str,
    code: Code,
    phase: Phase,
    form: Form,
    finish: Finish | None,
    comment: str,
    layouts: Layouts | None = None,
) -> abi.Kernel:
    """The kernel of one Gemm phase. layouts: as in `FrameRows`."""
    rows = FrameRows(code, layouts or {})
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
    if not shape.local:
        body = [
            "__global const int* head = (__global const int*)arena + frame;",
            *rows.declarations(),
            *plain_body(rows, phase, form, finish),
        ]
        across = column_tiles(phase.width, shape.vectors, form.vector)[0]
        return frame_kernel(
            name, rows.buffers, comment, phase.space, body,
            items=(across,), rows_per_group=shape.rows * shape.tiles, local_size=(1, 1),
        )  # fmt: skip
    local = (shape.group, shape.group)
    across = -(-phase.width // (shape.vectors * shape.group)) * shape.group
    text = [
        *(f"// {line}" for line in comment.splitlines()),
        *signature(name, rows.buffers, (), local),
        "{",
        "    __global const int* head = (__global const int*)arena + frame;",
        f"    const int rows = head[ROWS + {phase.space}];",
        *indent(rows.declarations()),
        *indent(local_body(rows, phase, form, finish)),
        "}",
    ]
    buffers, tall = tuple(rows.buffers), shape.rows * shape.group
    return abi.Kernel(name, "\n".join(text) + "\n", buffers, phase.space, (across,), tall, local)


def plain_body(rows: FrameRows, phase: Phase, form: Form, finish: Finish | None) -> list[str]:
    """Statements for tiles in registers: rows `first` to `end` - 1, and number `item` across."""
    return by_columns(
        "item",
        column_tiles(phase.width, form.product.vectors, form.vector)[1],
        form.vector,
        lambda columns: _Tiles(rows, phase, form, finish, columns).statements(),
    )


class _Tiles:
    """Tiles of the result below each other, of one height and width.

    Where the left side has more columns than the caches hold rows of W, it is gone through in blocks of them,
    each for all tiles before the next one: what the tiles have so far is kept in `part`.
    """

    def __init__(self, rows: FrameRows, phase: Phase, form: Form, finish: Finish | None, tile: Columns):
        self.rows, self.phase, self.form, self.finish, self.vectors = rows, phase, form, finish, tile.vectors
        vector, self.height = form.vector, form.product.rows
        self.columns = [(f"column + {v * vector}", vector) for v in range(tile.vectors - 1)]
        self.columns.append((f"column + {(tile.vectors - 1) * vector}", tile.last))
        self.layout = rows.layout_of(phase, form)
        self.kind = vector_type(form)
        self.over_rows = ["#pragma unroll", f"for (int i = 0; i < {self.height}; i++) {{"]
        self.clamped = (
            ["const int r = top + i < end ? top + i : end - 1;"]
            if self.height > 1
            else ["const int r = top;"]
        )

    def statements(self) -> list[str]:
        start = weights(self.phase, self.layout)
        out = [f"__global const float* w = {start} + {self.layout.place('column')};"]
        tiles, depth = self.form.product.tiles, sum(s.width for s in self.phase.a)
        if tiles == 1 or depth <= BLOCK:
            products, above = [], 0
            for segment in self.phase.a:
                products += self._product(segment, "0", str(segment.width), above)
                above += segment.width
            return [*out, *self._each([*self._sums(), *self._begin("sum"), *products, *self._end("sum")])]
        part = "part[tile]"
        out.append(f"{self.kind} part[{tiles}][{self.height}][{self.vectors}];")
        out += self._each(self._begin(part))
        above = 0
        load, keep = self._moved("sum", part), self._moved(part, "sum")
        for segment in self.phase.a:
            blocks = -(-segment.width // BLOCK)
            size = -(-segment.width // blocks)
            product = self._product(segment, "from", f"LEAST(from + {size}, {segment.width})", above)
            out += [
                f"for (int from = 0; from < {segment.width}; from += {size}) {{",
                *indent(self._each([*self._sums(), *load, *product, *keep])),
                "}",
            ]
            above += segment.width
        return [*out, *self._each(self._end(part))]

    def _each(self, lines: list[str]) -> list[str]:
        """For every tile, whose first row is `top`."""
        if self.form.product.tiles == 1:
            return ["const int top = first;", *lines]
        numbers = "int top = first, tile = 0; top < end; top += {0}, tile++"
        return [f"for ({numbers.format(self.height)}) {{", *indent(lines), "}"]

    def _sums(self) -> list[str]:
        return [f"{self.kind} sum[{self.height}][{self.vectors}];"]

    def _moved(self, to: str, source: str) -> list[str]:
        lines = [f"    {to}[i][{v}] = {source}[i][{v}];" for v in range(self.vectors)]
        return [*self.over_rows, *lines, "}"]

    def _begin(self, sums: str) -> list[str]:
        reads = self.phase.start >= 0 or self.phase.accumulate
        starts = [
            f"{sums}[i][{v}] = {beginning(self.rows, self.phase, 'r', column, count, self.form.vector)};"
            for v, (column, count) in enumerate(self.columns)
        ]
        return [*self.over_rows, *indent([*self.clamped, *starts] if reads else starts), "}"]

    def _product(self, segment: Segment, begin: str, end: str, above: int) -> list[str]:
        """Add columns of a segment, times their rows of W. above: rows of those before it."""
        vector, layout = self.form.vector, self.layout
        pointers = [*self.clamped, f"a[i] = {self.rows.pointer(segment.at, 'r')};"]
        offset = f" + {above * layout.step}" if above else ""
        offset += f" + {begin} * {layout.step}" if begin != "0" else ""
        return [
            "{",
            f"    __global const float* a[{self.height}];",
            *indent([*self.over_rows, *indent(pointers), "}"]),
            f"    __global const float* b = w{offset};",
            f"    for (int k = {begin}; k < {end}; k++, b += {layout.step}) {{",
            *(
                f"        const {self.kind} w{v} = {load(f'b + {v * layout.apart(vector)}', vector, vector)};"
                for v in range(self.vectors)
            ),
            *indent([*self.over_rows, "    const float x = a[i][k];"], 2),
            *(f"            sum[i][{v}] = x * w{v} + sum[i][{v}];" for v in range(self.vectors)),
            "        }",
            "    }",
            "}",
        ]

    def _end(self, sums: str) -> list[str]:
        results = [(f"{sums}[i][{v}]", column, count) for v, (column, count) in enumerate(self.columns)]
        return [
            *self.over_rows,
            "    const int r = top + i;",
            "    if (r < end) {",
            *indent(ending(self.rows, self.phase, self.finish, results, self.form.vector), 2),
            "    }",
            "}",
        ]
