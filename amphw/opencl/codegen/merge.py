"""Kernels that do not need one another, as one: a launch costs as much as a small kernel takes.

Kernels that run once each, as those of an update, are put together into as few as their order allows. Each
becomes a function; the kernel calls it for the work-items that were the function's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from amphw.opencl.abi import Kernel

_HEAD = re.compile(r"__kernel __attribute__\(\(reqd_work_group_size\(1, 1, 1\)\)\)\nvoid (\w+)\(([^)]*)\)")


def merged(name: str, kernels: Sequence[Kernel], comment: str = "") -> list[Kernel]:
    """The kernels in as few as possible, to run in their order; they take (arena, job, faults, buffers...).

    Those whose work-groups share rows stay by themselves. comment: what stands before those put together.
    """
    if any(prod(k.local_size) > 1 for k in kernels):
        return list(kernels)
    stages: list[list[Kernel]] = []
    for kernel in kernels:
        if not stages or any(_depends(kernel, other) for other in stages[-1]):
            stages.append([])
        stages[-1].append(kernel)
    return [_merged(f"{name}_{n}", stage, comment) for n, stage in enumerate(stages)]


def _depends(later: Kernel, earlier: Kernel) -> bool:
    """Whether one writes what the other reads or writes; faults that both note are no matter."""
    a, b = _written(later), _written(earlier)
    if a & set(earlier.buffers) or b & set(later.buffers):
        return True
    return _notes_faults(earlier) and "faults[" in later.text and not _notes_faults(later)


def _written(kernel: Kernel) -> set[str]:
    return {b for b in kernel.buffers if re.search(rf"__global (float|int)\* {b}\b", kernel.text)}


def _notes_faults(kernel: Kernel) -> bool:
    return re.search(r"faults\[[^\]]*\] = ", kernel.text) is not None


def _merged(name: str, kernels: Sequence[Kernel], comment: str) -> Kernel:
    functions, calls, groups = [], [], 0
    arguments: dict[str, str] = {}
    for kernel in kernels:
        found = _HEAD.search(kernel.text)
        assert found is not None, kernel.text
        part = f"{name}_{found[1]}"
        declared = {each.split()[-1].lstrip("*"): each.strip() for each in found[2].split(",")}
        for argument, text in declared.items():
            # A buffer that anybody writes is not constant.
            if argument not in arguments or " const " in arguments[argument]:
                arguments[argument] = text
        head = f"static void {part}(const int item1, const int item2, {', '.join(declared.values())})"
        text = kernel.text[: found.start()] + head + kernel.text[found.end() :]
        functions.append(re.sub(r"get_(?:global|group)_id\(([12])\)", r"item\1", text))
        items, across = prod(kernel.items), kernel.items[0] if kernel.items else 1
        place = f"(item - {groups})" if groups else "item"
        calls.append(
            f"    {'else ' if groups else ''}if (item < {groups + items}) "
            f"{part}({place} % {across}, {place} / {across}, {', '.join(declared)});"
        )
        groups += items
    lines = [
        *functions,
        f"// {comment}{': ' if comment else ''}each has some of the work-items: "
        f"{', '.join(k.name for k in kernels)}.",
        "__kernel __attribute__((reqd_work_group_size(1, 1, 1)))",
        f"void {name}({', '.join(arguments.values())})",
        "{",
        "    const int item = get_global_id(1);",
        *calls,
        "}",
    ]
    buffers = tuple(a for a in arguments if a not in ("arena", "frame", "job", "faults"))
    return Kernel(name, "\n".join(lines) + "\n", buffers, 0, (groups,), 1, (1, 1), by_message=True)
