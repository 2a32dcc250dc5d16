"""Products, plainly: a work-item for each row and vector of columns. Right on every device, fast on none."""

from __future__ import annotations

from amphw.engine.tile_code import Code, Phase
from amphw.opencl.abi import Kernel, stride
from amphw.opencl.finish import Finish
from amphw.opencl.forms import Form
from amphw.opencl.pointers import buffers, head, lines_of, row_pointer
from amphw.opencl.prelude import store


def product_kernel(
    name: str, code: Code, phase: Phase, form: Form, finish: Finish | None, comment: str
) -> Kernel:
    """The kernel of a Gemm phase, and of the instructions that `finish` has taken from the phase behind it."""
    matrix = f"p{phase.param}t" if phase.transposed else f"p{phase.param}"
    bias = f"p{phase.bias}" if phase.bias >= 0 else ""
    bases = [s.at.base for s in phase.a] + ([phase.start] if phase.start >= 0 else [])
    names = {matrix, bias, *buffers(code, bases), *(finish.buffers if finish else ())} - {""}
    size, last = form.vector, (phase.width - 1) // form.vector * form.vector
    blocks = last // size + 1
    partial = phase.width - last
    text = head(name, sorted(names), comment, (1, 1))
    text += [f"    // {line}" for line in (*lines_of(code, phase), *(finish.lines if finish else ()))]
    text.append(f"    const int r = get_group_id(0), c = (int)get_group_id(1) * {size};")
    text += [f"    {line}" for line in _sum(code, phase, matrix, bias, size)]
    if partial == size:
        text += [f"    {line}" for line in _results(code, phase, finish, size, str(size))]
    else:
        count = f"LEAST({size}, {phase.width} - c)"
        text += [f"    {line}" for line in _results(code, phase, finish, size, count)]
    text.append("}")
    return Kernel(name, "\n".join(text) + "\n", tuple(sorted(names)), phase.space, (blocks,), 1, (1, 1))


def _sum(code: Code, phase: Phase, matrix: str, bias: str, size: int) -> list[str]:
    kind, load = ("float", "*({})") if size == 1 else ("V", "LOAD({})")
    start = f"({kind})(0.0f)"
    if bias:
        start = load.format(f"{bias} + c")
    if phase.start >= 0:
        start = load.format(f"{row_pointer(code, phase.start, 'r')} + c")
    out = [f"{kind} v = {start};"]
    first = 0 if phase.transposed else max(0, phase.first_row)
    step = stride(phase.width)
    for segment in phase.a:
        out += [
            "{",
            f"    __global const float* const a = {row_pointer(code, segment.at.base, 'r')} + {segment.at.offset};",
            f"    __global const float* const w = {matrix} + {first * step} + c;",
            f"    for (int k = 0; k < {segment.width}; k++) v += a[k] * {load.format(f'w + k * {step}')};",
            "}",
        ]
        first += segment.width
    if phase.accumulate:
        at = f"ROW({phase.d.base}, r) + {phase.d.offset} + c"
        out.append(f"v = {load.format(at)} + v;")
    return out


def _results(code: Code, phase: Phase, finish: Finish | None, size: int, count: str) -> list[str]:
    at = f"ROW({phase.d.base}, r) + {phase.d.offset} + c"
    out = [] if finish is None else finish.statements("v", "r", "c", count)
    if finish is not None and not finish.stores_result:
        return out
    if size == 1 or count == str(size):
        return out + store(at, "v", size, size)
    return [*out, f"if ({count} == {size}) STORE({at}, v);", f"else store_some({at}, v, {count});"]
