"""All phases of a direction as one kernel: a launch costs as much as a small phase takes.

A work-item runs the phases one behind the other for its tile of the frame, as a worker of the C++ engine
does. Where rows are independent of each other (`Code.factors`) a tile is some rows of space 0 with theirs in
the other spaces; where rows of a message meet it is some whole messages. Each phase is a function, with the
statements that are its own kernel's where phases are launched apart. Of a product that has several forms, the
height of the tile chooses one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from amphw.engine.tiles.code import Code
from amphw.opencl.abi import Kernel
from amphw.opencl.codegen.pointers import head
from amphw.opencl.codegen.tiles import indent

TILE_ROWS = 96
"""Rows of a tile, about: they stay in a core's caches."""

STEP = 24
"""Tiles of rows that are not the last have a multiple of so many: products keep 6, 8 or 12 in registers."""

Variants = Sequence[Kernel]
"""A phase's kernel for each class of heights (`tuning.height_class`)."""


def whole_kernel(
    name: str,
    code: Code,
    phases: Sequence[Variants],
    heights: Sequence[int],
    comment: str,
    tile_rows: int = TILE_ROWS,
) -> Kernel | None:
    """The kernel of a direction; None where it has one phase, or its work-groups are several work-items.

    heights: the most rows of each class but the last. tile_rows: about how many a tile has at most.
    """
    kernels = list({k.name: k for variants in phases for k in variants}.values())
    if len(phases) < 2 or not all(k.body for k in kernels):
        return None
    buffers = tuple(dict.fromkeys(b for k in kernels for b in k.buffers))
    by_message = any(k.by_message or k.space >= len(code.factors) for k in kernels)
    tall = 1 if by_message else max(1, tile_rows // max(code.factors))
    text = [line for k in kernels for line in _function(k)]
    text += [
        *head(name, buffers, comment, (1,)),
        *indent(list(_tile(() if by_message else code.factors, phases, min(STEP, tall)))),
    ]
    for variants in phases:
        text += indent(list(_phase(variants, heights)))
    text += ["}"]
    return Kernel(
        name,
        "\n".join(text) + "\n",
        buffers,
        0,
        (),
        tall,
        (1,),
        by_message,
        tile_rows=tile_rows if by_message else 0,
    )


def _function(kernel: Kernel) -> Iterator[str]:
    """A phase's statements as a function; its comment is the kernel's."""
    yield from (line for line in kernel.text.splitlines() if line.startswith("//"))
    declared = ["__global float* arena", "const int frame", "__global int* faults"]
    declared += [f"__global const float* {b}" for b in kernel.buffers]
    declared += ["const int first", "const int end", "const int item"]
    yield f"static void phase_{kernel.name}({', '.join(declared)})"
    yield "{"
    yield from indent(kernel.body)
    yield "}"


def _tile(factors: Sequence[int], phases: Sequence[Variants], step: int) -> Iterator[str]:
    """Declares the tile's rows `from0` to `to0` - 1 of space 0, and so on, and its messages.

    factors: of the code, () where tiles are of messages. step: of what tiles of rows have a multiple.
    """
    kernels = [variants[0] for variants in phases]
    spaces = sorted({k.space for k in kernels if not k.by_message})
    yield "const int groups = get_num_groups(0), group = get_group_id(0);"
    if factors:
        yield "// Groups share out the rows."
        yield f"const int tall = (ROWS_OF(0) + groups * {step} - 1) / (groups * {step}) * {step};"
        for s in spaces:
            times = f" * {factors[s]}" if factors[s] != 1 else ""
            yield f"const int from{s} = group * tall{times};"
            yield f"const int to{s} = LEAST(from{s} + tall{times}, ROWS_OF({s}));"
        return
    yield "// Groups share out the messages."
    yield "const int messages = HEADER[MESSAGES];"
    yield "const int from = (long)messages * group / groups, to = (long)messages * (group + 1) / groups;"
    for s in spaces:
        yield f"const int from{s} = STARTS_OF({s})[from], to{s} = STARTS_OF({s})[to];"


def _phase(variants: Variants, heights: Sequence[int]) -> Iterator[str]:
    """Calls the phase's function for the tile, as its kernel's work-items would."""
    s = "" if variants[0].by_message else str(variants[0].space)
    least = 0
    forms = [(k, len(list(same))) for k, same in groupby(variants)]
    for number, (kernel, classes) in enumerate(forms):
        least += classes
        if len(forms) == 1:
            yield from _loop(kernel, s)
            return
        test = f"if (to{s} - from{s} <= {heights[least - 1]}) " if number + 1 < len(forms) else ""
        yield f"{'} else ' if number else ''}{test}{{"
        yield from indent(list(_loop(kernel, s)))
    yield "}"


def _loop(kernel: Kernel, s: str) -> Iterator[str]:
    across = kernel.items[0] if kernel.items else 1
    step = kernel.rows_per_group
    given = ", ".join(["arena", "frame", "faults", *kernel.buffers])
    end = f"LEAST(first + {step}, to{s})" if step > 1 else "first + 1"
    rows = f"for (int first = from{s}; first < to{s}; first += {step})"
    if across > 1:
        yield f"for (int item = 0; item < {across}; item++)"
        yield f"    {rows}"
        yield f"        phase_{kernel.name}({given}, first, {end}, item);"
    else:
        yield rows
        yield f"    phase_{kernel.name}({given}, first, {end}, 0);"
