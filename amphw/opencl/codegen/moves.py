"""Row moves as kernels: phases in which rows of a message meet, and windows of images.

Work-groups go by message and block of columns, so that no two of them write to one place and every sum has
one order. Windows are in proportion to the images, so there they go by row.
"""

from __future__ import annotations

from collections.abc import Callable

from amphw.engine.tiles.code import Phase, PhaseKind
from amphw.opencl.abi import Kernel, rounded
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.pointers import Pointers, frame_kernel
from amphw.opencl.codegen.prelude import store

BLOCK = 64
"""Columns of a row that one work-group moves, or as many as its lanes hold at once."""


def move_kernel(name: str, pointers: Pointers, phase: Phase, form: Form, comment: str) -> Kernel:
    if phase.kind == PhaseKind.Patches:
        return _window_kernel(name, pointers, phase, form, comment, _patches)
    if phase.kind == PhaseKind.Unpatch:
        return _window_kernel(name, pointers, phase, form, comment, _unpatch)
    size = form.vector if phase.width > 1 else 1
    block = rounded(BLOCK, form.lanes * size)
    names = pointers.buffers([phase.from_.base])
    local = (form.lanes, 1)
    text = [
        *(f"// {line}" for line in pointers.lines(phase)),
        f"__global const int* const to_starts = STARTS_OF({phase.space}) + first;",
        f"__global const int* const from_starts = STARTS_OF({phase.source}) + first;",
        "const int to = to_starts[0], to_count = to_starts[1] - to;",
        "const int from = from_starts[0], from_count = from_starts[1] - from;",
    ]
    if phase.ints >= 0:
        text.append(f"__global long* const index = {pointers.integers(phase.ints)};")
    text += _columns(pointers, phase, size, block, form.lanes)
    blocks = -(-phase.width // block)
    return frame_kernel(
        name, names, comment, phase.space, text, items=(blocks,), local_size=local, by_message=True
    )


def _columns(pointers: Pointers, phase: Phase, size: int, block: int, lanes: int) -> list[str]:
    """A lane's columns of the group's block, vector by vector; the last one of a row may be cut off."""
    whole = phase.width // size * size
    lane = (
        "" if lanes == 1 else f" + (int)get_local_id(0) * {size}" if size > 1 else " + (int)get_local_id(0)"
    )
    out = [f"const int begin = item * {block};"]
    if whole:
        out.append(f"for (int c = begin{lane}; c < LEAST(begin + {block}, {whole}); c += {lanes * size}) {{")
        out += [f"    {line}" for line in _move(pointers, phase, "c", size, size)]
        out.append("}")
    if whole < phase.width:
        last = "" if lanes == 1 else f" && get_local_id(0) == {whole % block // size % lanes}"
        out.append(f"if (begin == {whole // block * block}{last}) {{")
        out += [f"    {line}" for line in _move(pointers, phase, str(whole), size, phase.width - whole)]
        out.append("}")
    return out


def _move(pointers: Pointers, phase: Phase, column: str, size: int, count: int) -> list[str]:
    """Moves `count` columns of all rows of a message."""
    kind, load = ("float", "*({})") if size == 1 else ("V", "LOAD({})")

    def source(row: str) -> str:
        return load.format(pointers.at(phase.from_, row, column))

    def target(row: str) -> str:
        return pointers.at(phase.d, row, column)

    def put(row: str, value: str, indent: str = "    ") -> list[str]:
        return [indent + line for line in store(target(row), value, count, size)]

    zero = f"({kind})(0.0f)"
    if phase.kind in (PhaseKind.SumRows, PhaseKind.MaxRows):
        add = (
            "total + x"
            if phase.kind == PhaseKind.SumRows
            else f"maximum{'_s' if size == 1 else '_v'}(x, total)"
        )
        return [
            f"{kind} total = {zero};",
            f"if (from_count > 0) total = {source('from')};",
            "for (int r = 1; r < from_count; r++) {",
            f"    const {kind} x = {source('(from + r)')};",
            f"    total = {add};",
            "}",
            *put("to", "total", ""),
        ]
    every = "for (int r = 0; r < to_count; r++) {"
    if phase.kind == PhaseKind.SpreadRows:
        return [f"const {kind} x = {source('from')};", every, *put("(to + r)", "x"), "}"]
    if phase.kind == PhaseKind.GatherRows:
        return [
            every,
            f"    {kind} x = {zero};",
            "    const int row = checked(index[to + r], from_count, faults, FAULT_GATHER_ROWS, to + r);",
            f"    if (from_count > 0) x = {source('(from + row)')};",
            *put("(to + r)", "x"),
            "}",
        ]
    assert phase.kind == PhaseKind.ScatterRows, phase.kind
    return [
        every,
        f"    const {kind} zero = {zero};",
        *put("(to + r)", "zero"),
        "}",
        "for (int r = 0; r < from_count; r++) {",
        "    const int row = checked(index[from + r], to_count, faults, FAULT_SCATTER_ROWS, from + r);",
        "    if (to_count == 0) continue;",
        f"    const {kind} x = {load.format(target('(to + row)'))} + {source('(from + r)')};",
        *put("(to + row)", "x"),
        "}",
    ]


# --- windows of images --------------------------------------------------------------------------------------


class _Windows:
    """Sizes of a windows phase, lines of pixels in floats."""

    def __init__(self, phase: Phase):
        self.height, width, self.channels, self.tall, wide, self.stride, self.padding = phase.windows
        self.line, self.wide = width * self.channels, wide * self.channels
        self.down = (self.height + 2 * self.padding - self.tall) // self.stride + 1
        self.across = (width + 2 * self.padding - wide) // self.stride + 1

    def left(self, j: str) -> str:
        """The column of an image's line where the windows number j of a row of windows begin."""
        return f"({j} * {self.stride} - {self.padding}) * {self.channels}"


def _window_kernel(
    name: str,
    pointers: Pointers,
    phase: Phase,
    form: Form,
    comment: str,
    statements: Callable[[Pointers, Phase, _Windows, int], list[str]],
) -> Kernel:
    """A work-group for each row of the result and line of its pixels."""
    windows = _Windows(phase)
    names = pointers.buffers([phase.from_.base])
    local = (form.lanes, 1)
    lane = "(int)get_local_id(0)" if form.lanes > 1 else "0"
    text = [
        *(f"// {line}" for line in pointers.lines(phase)),
        f"const int r = first, line = item, lane = {lane};",
        *statements(pointers, phase, windows, form.lanes),
    ]
    lines = windows.tall if phase.kind == PhaseKind.Patches else windows.height
    return frame_kernel(name, names, comment, phase.space, text, items=(lines,), local_size=local)


def _patches(pointers: Pointers, phase: Phase, w: _Windows, lanes: int) -> list[str]:
    """One line of one window: what it shares with the image, and zeros on both sides."""
    count = w.down * w.across
    image = pointers.at(phase.from_, f"(r / {count})", "")
    return [
        f"const int window = r % {count}, i = window / {w.across}, j = window % {w.across};",
        f"const int y = i * {w.stride} - {w.padding} + line, left = {w.left('j')};",
        f"const int inside = y >= 0 && y < {w.height};",
        f"const int begin = inside ? MOST(0, -left) : {w.wide};",
        f"const int stop = inside ? LEAST({w.wide}, {w.line} - left) : {w.wide};",
        f"__global const float* const image = {image} + y * {w.line} + left;",
        f"__global float* const to = {pointers.at(phase.d, 'r', '')} + line * {w.wide};",
        f"for (int c = lane; c < begin; c += {lanes}) to[c] = 0.0f;",
        f"for (int c = begin + lane; c < stop; c += {lanes}) to[c] = image[c];",
        f"for (int c = MOST(begin, stop) + lane; c < {w.wide}; c += {lanes}) to[c] = 0.0f;",
    ]


def _unpatch(pointers: Pointers, phase: Phase, w: _Windows, lanes: int) -> list[str]:
    """One line of one image: what the lines of windows that lie on it add up to, in the windows' order."""
    window = pointers.at(phase.from_, f"(r * {w.down * w.across} + i * {w.across} + j)", "")
    # A lane has the same columns of the image for every window, so that lanes need not wait for each other.
    mine = "begin" if lanes == 1 else f"begin + (lane - begin % {lanes} + {lanes}) % {lanes}"
    return [
        f"__global float* const to = {pointers.at(phase.d, 'r', '')} + line * {w.line};",
        f"for (int c = lane; c < {w.line}; c += {lanes}) to[c] = 0.0f;",
        f"for (int i = 0; i < {w.down}; i++) {{",
        f"    const int y = line - (i * {w.stride} - {w.padding});",
        f"    if (y < 0 || y >= {w.tall}) continue;",
        f"    for (int j = 0; j < {w.across}; j++) {{",
        f"        const int left = {w.left('j')};",
        f"        const int begin = MOST(0, left), stop = LEAST({w.line}, left + {w.wide});",
        f"        __global const float* const from = {window} + y * {w.wide} - left;",
        f"        for (int c = {mine}; c < stop; c += {lanes}) to[c] += from[c];",
        "    }",
        "}",
    ]
