"""Products, plainly: a work-item for each row and vector of columns. Right on every device, fast on none."""

from __future__ import annotations

from collections.abc import Mapping

from amphw.engine.tile_code import Code, Phase
from amphw.opencl.abi import Kernel, stride
from amphw.opencl.finish import Finish
from amphw.opencl.forms import Form
from amphw.opencl.pointers import Pointers, head, plus
from amphw.opencl.prelude import store


def product_kernel(
    name: str,
    code: Code,
    phase: Phase,
    form: Form,
    finish: Finish | None,
    comment: str,
    table_rows: Mapping[int, int],
) -> Kernel:
    """The kernel of a Gemm phase, and of the instructions that `finish` has taken from the one behind it."""
    pointers = Pointers(code, table_rows)
    size, width = form.vector, phase.width
    last = (width - 1) // size * size  # where the last vector begins
    matrix = f"p{phase.param}t" if phase.transposed else f"p{phase.param}"
    bases = [s.at.base for s in phase.a] + ([phase.start] if phase.start >= 0 else [])
    buffers = {matrix, *pointers.buffers(bases), *(finish.buffers if finish else ())}
    if phase.bias >= 0:
        buffers.add(f"p{phase.bias}")
    names = tuple(sorted(buffers))
    body = [f"// {line}" for line in (*pointers.lines(phase), *(finish.lines if finish else ()))]
    body.append(f"const int r = get_group_id(0), c = (int)get_group_id(1) * {size};")
    body += _sum(pointers, phase, matrix, size)
    for b in finish.tables if finish else ():
        body.append(f"{pointers.kind(b)} const row_{b} = {pointers.row(b, 'r')};")
    if last:
        body += _branch(f"if (c < {last})", _results(pointers, phase, finish, size, size))
        body += _branch("else", _results(pointers, phase, finish, size, width - last))
    else:
        body += _results(pointers, phase, finish, size, width)
    text = [*head(name, names, comment, (1, 1)), *(f"    {line}" for line in body), "}"]
    return Kernel(name, "\n".join(text) + "\n", names, phase.space, (last // size + 1,), 1, (1, 1))


def _sum(pointers: Pointers, phase: Phase, matrix: str, size: int) -> list[str]:
    """The product in `v`."""
    kind, load = ("float", "*({})") if size == 1 else ("V", "LOAD({})")
    start = f"({kind})(0.0f)"
    if phase.bias >= 0:
        start = load.format(f"p{phase.bias} + c")
    if phase.start >= 0:
        start = load.format(f"{pointers.row(phase.start, 'r')} + c")
    out = [f"{kind} v = {start};"]
    first = 0 if phase.transposed else max(0, phase.first_row)  # the transposed copy has that part alone
    step = stride(phase.width)
    for segment in phase.a:
        out += [
            "{",
            f"    __global const float* const a = {pointers.at(segment.at, 'r')};",
            f"    __global const float* const w = {plus(matrix, first * step, 'c')};",
            f"    for (int k = 0; k < {segment.width}; k++) v += a[k] * {load.format(f'w + k * {step}')};",
            "}",
        ]
        first += segment.width
    if phase.accumulate:
        out.append(f"v = {load.format(pointers.at(phase.d, 'r', 'c'))} + v;")
    return out


def _branch(condition: str, statements: list[str]) -> list[str]:
    return [f"{condition} {{", *(f"    {line}" for line in statements), "}"]


def _results(pointers: Pointers, phase: Phase, finish: Finish | None, size: int, count: int) -> list[str]:
    out = [] if finish is None else finish.statements("v", "r", "c", str(count))
    if finish is None or finish.stores_result:
        out += store(pointers.at(phase.d, "r", "c"), "v", count, size)
    return out
