"""The sum of what several messages brought back: gradient rows of one output, in the order of its routes.

Most outputs have one route that returns a gradient, and are read where it lies; only the others are summed.
"""

from __future__ import annotations

from amphw.opencl.codegen.forms import Form

NAME = "sum_gradients"


def sum_text(form: Form) -> str:
    """The kernel; a work-item has a row, or shares it with the others of its group."""
    vectors = f"""
    for (; c + {form.vector} <= width; c += {form.vector}) {{
        V total = (V)(0.0f);
        for (int e = first; e < end; e++) total += LOAD(arena + entries[e] + c);
        STORE(sum + c, total);
    }}"""
    return f"""
// Each row of the sums is the sum of its entries, in their order; without one it is zero.
// Words of a job: rows; floats in one; from one to the next; places of each row's first entry and the end,
// of the entries, which are places of rows, and of the sums.
__kernel __attribute__((reqd_work_group_size({form.lanes}, 1, 1)))
void {NAME}(__global float* arena, const int place)
{{
    __global const int* job = (__global const int*)arena + place;
    const int row = get_group_id(0), width = job[1];
    __global const int* entries = (__global const int*)arena + job[4];
    const int first = ((__global const int*)arena + job[3])[row];
    const int end = ((__global const int*)arena + job[3])[row + 1];
    __global float* sum = arena + job[5] + row * job[2];
    int c = get_local_id(0);{vectors if form.vector > 1 and form.lanes == 1 else ""}
    for (; c < width; c += {form.lanes}) {{
        float total = 0.0f;
        for (int e = first; e < end; e++) total += arena[entries[e] + c];
        sum[c] = total;
    }}
}}
"""
