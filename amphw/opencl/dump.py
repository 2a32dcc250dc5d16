"""The generated source of every unit of a graph, as files to read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from amphw.engine.lowering.lower import lower
from amphw.engine.tiles.tiling import tile
from amphw.ir.errors import AmphwError
from amphw.ir.graph import Graph
from amphw.ir.passes import fuse
from amphw.ir.update import UpdateRule
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.unit_program import unit_program
from amphw.opencl.codegen.variants import Tune


def dump(
    graph: Graph, rules: Mapping[str, UpdateRule], out: Path, form: Form, tune: Tune, device: str
) -> list[Path]:
    """Write `out`/UNIT.cl for every unit that computes, as the device runs it: fused -> the files, in order.

    Each is the unit's complete program, as `unit_program` makes it. rules: by node with parameters.
    A character of the unit's name that a file's name may not have becomes `_`.
    """
    written: list[Path] = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        for unit in lower(fuse(graph, sinks=True)).units:
            if unit.behaviour.program is None:
                continue  # a source computes nothing
            path = _free(out / f"{re.sub(r'[^A-Za-z0-9_.+-]', '_', unit.name)}.cl", written)
            made = unit_program(unit, tile(unit), rules.get(unit.name), form, tune, device)
            path.write_text(made.text, encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise AmphwError(f"{out} cannot be written ({error.strerror}). Give another folder.") from error
    return written


def _free(path: Path, taken: list[Path]) -> Path:
    """`path`, or with a number behind its name where another unit has it."""
    number, free = 1, path
    while free in taken:
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free
