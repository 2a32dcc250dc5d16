"""Products for GPUs: a work-group takes both factors through local memory.

A group of `group` x `group` work-items computes a tile of `group * rows` by `group * vectors` results. It
goes through the columns of the left side `depth` at a time: the work-items bring that many columns of the
tile's rows, and the rows of W that belong to them, into local memory, wait for each other, and multiply from
there. What is outside the rows, the columns or the segment counts as 0 there, and is not stored.

Work-items next to each other in dimension 0 have columns next to each other, so that they share what the
memory hands out at once. (The numbers of the groups in dimension 0 are those of the rows, as everywhere.)
"""

from __future__ import annotations

from amphw.engine.tiles.code import Phase
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.product_parts import Finish, FrameRows, beginning, ending, weights
from amphw.opencl.codegen.tiles import indent


def local_floats(form: Form) -> int:
    """Floats of local memory that a work-group takes; its rows' places beside them."""
    shape = form.product
    return shape.depth * shape.group * (shape.rows + shape.vectors) + 2 * shape.group * shape.rows


def local_body(rows: FrameRows, phase: Phase, form: Form, finish: Finish | None) -> list[str]:
    shape = form.product
    if form.vector != 1:
        raise ValueError(f"the local form computes single columns, so vector = {form.vector} must be 1")
    group, height, vectors, depth = shape.group, shape.rows, shape.vectors, shape.depth
    tall, wide = group * height, group * vectors
    layout, step = rows.layout_of(phase, form), group * group
    columns = [f"(column + {v * group})" for v in range(vectors)]
    out = [
        f"__local float left[{tall}][{depth}];",
        f"__local float right[{depth}][{wide}];",
        f"__global const float* __local places[{tall}];",
        "const int x = get_local_id(0), y = get_local_id(1);",
        f"const int item = y * {group} + x;",
        f"const int first_row = get_group_id(0) * {tall};",
        f"const int first_column = get_group_id(1) * {wide};",
        f"const int first = first_row + y * {height}, column = first_column + x;",
        f"float sum[{height}][{vectors}];",
        "#pragma unroll",
        f"for (int i = 0; i < {height}; i++) {{",
    ]
    if phase.start >= 0 or phase.accumulate:
        out.append("    const int r = first + i < rows ? first + i : rows - 1;")
    out += [
        f"    sum[i][{v}] = {c} < {phase.width} ? {beginning(rows, phase, 'r', c, 1, 1)} : 0.0f;"
        for v, c in enumerate(columns)
    ]
    out += ["}", f"__global const float* w = {weights(phase, layout)};"]
    for segment in phase.a:
        out += [
            "// Where the tile's rows are.",
            f"for (int i = item; i < {tall}; i += {step}) {{",
            "    const int r = first_row + i < rows ? first_row + i : rows - 1;",
            f"    places[i] = {rows.pointer(segment.at, 'r')};",
            "}",
            "barrier(CLK_LOCAL_MEM_FENCE);",
            f"for (int begin = 0; begin < {segment.width}; begin += {depth}) {{",
            f"    for (int i = item; i < {tall * depth}; i += {step}) {{",
            f"        const int r = i / {depth}, k = i % {depth};",
            f"        left[r][k] = begin + k < {segment.width} ? places[r][begin + k] : 0.0f;",
            "    }",
            f"    for (int i = item; i < {depth * wide}; i += {step}) {{",
            f"        const int k = i / {wide}, c = first_column + i % {wide};",
            f"        const int inside = begin + k < {segment.width} && c < {phase.width};",
            f"        right[k][i % {wide}] = inside ? w[(begin + k) * {layout.step} + c] : 0.0f;",
            "    }",
            "    barrier(CLK_LOCAL_MEM_FENCE);",
            f"    for (int k = 0; k < {depth}; k++) {{",
            *(f"        const float w{v} = right[k][x + {v * group}];" for v in range(vectors)),
            "        #pragma unroll",
            f"        for (int i = 0; i < {height}; i++) {{",
            f"            const float a = left[y * {height} + i][k];",
            *(f"            sum[i][{v}] = a * w{v} + sum[i][{v}];" for v in range(vectors)),
            "        }",
            "    }",
            "    barrier(CLK_LOCAL_MEM_FENCE);",
            "}",
            f"w += {segment.width * layout.step};",
        ]
    results = []
    for v, c in enumerate(columns):
        results += [f"if ({c} < {phase.width}) {{", *indent(ending_of(rows, phase, finish, v, c)), "}"]
    out += [
        "#pragma unroll",
        f"for (int i = 0; i < {height}; i++) {{",
        "    const int r = first + i;",
        "    if (r < rows) {",
        *indent(results, 2),
        "    }",
        "}",
    ]
    return out


def ending_of(rows: FrameRows, phase: Phase, finish: Finish | None, v: int, column: str) -> list[str]:
    return ending(rows, phase, finish, [(f"sum[i][{v}]", column, 1)], 1)
