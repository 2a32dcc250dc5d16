"""Whether a unit's kernels compute what the tile interpreter does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amphw.engine.tiles.code import Code, Place, TiledUnit
from amphw.engine.tiles.operations import Op
from amphw.engine.tiles.tiling import tile_programs
from amphw.ir.derive import differentiate, inference
from amphw.ir.primitives import RowContext
from amphw.ir.program import ParamSpec, Program
from amphw.opencl.abi import Kernel
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.generate import UnitSource, generate, program_text
from amphw.opencl.codegen.whole import whole_kernel
from amphw.opencl.layout import layouts
from amphw.opencl.tuning import HEIGHTS
from tests.engine.tiles.tile_interpreter import Rows, run_code
from tests.opencl.frames import Frame, build


@dataclass
class Case:
    """A unit with a frame to run it on."""

    name: str
    tiled: TiledUnit
    specs: Sequence[ParamSpec]
    context: RowContext
    inputs: Sequence[np.ndarray]
    ints: Sequence[np.ndarray]
    params: Sequence[np.ndarray]

    def __post_init__(self) -> None:
        self.inputs = [rounded(x) for x in self.inputs]
        self.params = [rounded(p) for p in self.params]
        tables = []
        for f in self.tiled.folds:
            table = self.params[f.table] @ self.params[f.weight][f.first_row : f.first_row + f.width]
            tables.append(rounded(table + self.params[f.bias] if f.bias >= 0 else table))
        self.params = [*self.params, *tables]


def case(
    name: str,
    program: Program,
    spaces: Sequence[str],
    context: RowContext,
    inputs: Sequence[np.ndarray],
    ints: Sequence[np.ndarray],
    params: Sequence[np.ndarray],
    wanted: Sequence[int] | None = None,
) -> Case:
    tiled = tile_programs(program, differentiate(program, wanted), inference(program), spaces)
    return Case(name, tiled, program.params, context, inputs, ints, params)


def rounded(x: np.ndarray) -> np.ndarray:
    """Numbers that a float holds, in double precision."""
    return np.asarray(x, np.float32).astype(np.float64)


def check(cases: Sequence[Case], form: Form) -> None:
    """Build one program of all units, and run each of them in all directions."""
    sources = [generate(c.name, c.tiled, c.specs, form) for c in cases]
    whole = [_whole(c, source) for c, source in zip(cases, sources, strict=True)]
    text = "".join(k.text for each in whole for k in {k.name: k for k in each.values()}.values())
    program = build(program_text(sources, form) + text)
    for c, source, in_one in zip(cases, sources, whole, strict=True):
        with np.errstate(all="ignore"):
            _Check(c, source, program, in_one).run()


def _whole(case: Case, source: UnitSource) -> dict[str, Kernel]:
    """By direction its phases in one launch, where they have such a kernel."""
    found = {}
    for direction in ("forward", "inference", "backward"):
        code, phases = getattr(case.tiled, direction), getattr(source, direction)
        if not phases:
            continue
        name = f"whole_{phases[0].name}"
        kernel = whole_kernel(name, code, [(k,) * len(HEIGHTS) for k in phases], HEIGHTS, "", tile_rows=3)
        if kernel is not None:
            found[direction] = kernel
    return found


@dataclass
class _Check:
    case: Case
    source: UnitSource
    program: Any
    whole: dict[str, Kernel]

    def run(self) -> None:
        c = self.case
        operands: Rows = {(Place.Operand, k): x for k, x in enumerate(c.inputs)}
        self._direction("inference", operands, operands)
        mine, theirs = self._direction("forward", operands, operands)
        back = c.tiled.backward
        if back is None:
            return
        rng = np.random.default_rng(2)
        for b in back.bases:
            if b.place == Place.OutputGradient:
                dy = rounded(rng.normal(size=(c.context.total(c.tiled.spaces[b.space]), b.width)))
                mine[b.place, b.index] = theirs[b.place, b.index] = dy
        self._direction("backward", mine, theirs, c.tiled.log_ints)

    def _direction(
        self, direction: str, mine: Rows, theirs: Rows, log_ints: Sequence[int] = ()
    ) -> tuple[Rows, Rows]:
        """Run both, the kernels phase by phase and in one launch -> the rows of each."""
        if direction in self.whole:
            self._compared(direction, (self.whole[direction],), mine, theirs, log_ints)
        return self._compared(direction, getattr(self.source, direction), mine, theirs, log_ints)

    def _compared(
        self, direction: str, kernels: Sequence[Kernel], mine: Rows, theirs: Rows, log_ints: Sequence[int]
    ) -> tuple[Rows, Rows]:
        c = self.case
        code: Code = getattr(c.tiled, direction)
        expected, slots = run_code(code, c.context, c.tiled.spaces, theirs, c.ints, c.params)
        form = self.source.form
        frame = Frame(c.tiled.spaces, code, c.context, mine, c.ints, log_ints)
        ran = frame.run(kernels, self.program, c.params, layouts(c.tiled, c.specs, form), form)
        assert ran.fault == (0, 0)
        for number, slot in enumerate(slots):
            np.testing.assert_array_equal(ran.slots[number], slot, f"{c.name}: i{number} of\n{code}")
        for number, slot in enumerate(log_ints):
            np.testing.assert_array_equal(ran.logs[number], slots[slot])
        integers = _integers(code)
        for key, values in expected.items():
            found, values = np.array(ran.rows[key], np.float64), np.array(values)
            for column in integers.get(key, ()):
                found[:, column] = values[:, column] = 0
            close(found, values, f"{c.name}: {key[0].name} {key[1]} of\n{code}")
        return ran.rows, expected


def close(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    """Equal as far as single precision goes, NaN and infinities included."""
    expected = rounded(expected)
    finite = np.abs(expected[np.isfinite(expected)])
    scale = finite.max() if finite.size else 0.0
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6 + 2e-6 * scale, err_msg=what)


def _integers(code: Code) -> dict[tuple[Place, int], list[int]]:
    """Columns that hold the bits of integers, which the interpreter writes in another way."""
    out: dict[tuple[Place, int], list[int]] = {}
    for i in code.instructions():
        if i.op == Op.SaveInt:
            base = code.bases[i.d.base]
            out.setdefault((base.place, base.index), []).extend((i.d.offset, i.d.offset + 1))
    return out
