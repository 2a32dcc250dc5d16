"""Products over the rows of a frame: d (+)= [a segments] @ W (+ bias, or + the rows of a base).

Plain form, for CPUs: a work-item keeps a tile of the result in registers, `rows` rows of `vectors` vectors,
and goes once through the columns of the left side: a row of W, times one number of each of the tile's rows.
Rows behind the last are computed as copies of the last, and not stored. Local form, for GPUs: see
`product_local`.

A result is whole when it leaves the registers, which is where elementwise work on it can be done: `Finish`.
"""

from __future__ import annotations

from collections.abc import Mapping

from amphw.engine.tiles.code import Code, Phase
from amphw.opencl import abi
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.pointers import frame_kernel
from amphw.opencl.codegen.product_local import local_body
from amphw.opencl.codegen.product_parts import Finish, FrameRows, beginning, ending, signature, weights
from amphw.opencl.codegen.tiles import Columns, by_columns, column_tiles, indent, load, vector_type


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
    if not shape.local:
        body = [
            "__global const int* head = (__global const int*)arena + frame;",
            *rows.declarations(),
            *plain_body(rows, phase, form, finish),
        ]
        across = column_tiles(phase.width, shape.vectors, form.vector)[0]
        return frame_kernel(
            name, rows.buffers, comment, phase.space, body,
            items=(across,), rows_per_group=shape.rows, local_size=(1, 1),
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
    """Statements for one tile in registers: rows `first` to `end` - 1, and number `item` across."""
    return by_columns(
        "item",
        column_tiles(phase.width, form.product.vectors, form.vector)[1],
        form.vector,
        lambda columns: _tile(rows, phase, form, finish, columns),
    )


def _tile(rows: FrameRows, phase: Phase, form: Form, finish: Finish | None, tile: Columns) -> list[str]:
    """One tile of the result, from its beginning to its end."""
    vector, height, vectors = form.vector, form.product.rows, tile.vectors
    columns = [(f"column + {v * vector}", vector) for v in range(vectors - 1)]
    columns.append((f"column + {(vectors - 1) * vector}", tile.last))
    kind = vector_type(form)
    out = [f"{kind} sum[{height}][{vectors}];"]
    over_rows = [
        "#pragma unroll",
        f"for (int i = 0; i < {height}; i++) {{",
    ]
    clamped = (
        ["const int r = first + i < end ? first + i : end - 1;"] if height > 1 else ["const int r = first;"]
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
            *(
                f"        const {kind} w{v} = {load(f'w + {v * vector}', vector, vector)};"
                for v in range(vectors)
            ),
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
        "    if (r < end) {",
        *indent(ending(rows, phase, finish, results, vector), 2),
        "    }",
        "}",
    ]
    return out
