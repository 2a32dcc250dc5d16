"""Row moves over rows wider than a block of columns, and windows of images."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.engine.tiles.code import Base, Code, Phase, PhaseKind, Place, Ref, TiledUnit
from amphw.ir.primitives import RowContext
from amphw.ir.program import ParamSpec
from tests.daily import daily
from tests.opencl.codegen.test_generate import FORMS
from tests.opencl.unit_checks import Case, check

K = PhaseKind
COUNTS = np.array([2, 0, 5, 1])
WIDTH = 150


def moves() -> Case:
    """Each kind of move, out of columns and into columns in the middle of a row."""
    random = np.random.default_rng(4)
    wide = WIDTH + 7
    # operands: rows, one row a message, numbers of rows; then the outputs, in spaces 1, 1, 0, 0, 0
    bases = [Base(Place.Operand, 0, wide, 0), Base(Place.Operand, 1, wide, 1)]
    bases += [Base(Place.Output, k, wide, space) for k, space in enumerate((1, 1, 0, 0, 0, 0))]
    bases.append(Base(Place.ParamRow, 0, wide, 0, ints=1))
    kinds = [
        (K.SumRows, 1, Ref(0, 3), 0, -1),
        (K.MaxRows, 1, Ref(0, 3), 0, -1),
        (K.SpreadRows, 0, Ref(1, 3), 1, -1),
        (K.GatherRows, 0, Ref(0, 3), 0, 0),
        (K.ScatterRows, 0, Ref(0, 3), 0, 0),
        (K.GatherRows, 0, Ref(8, 3), 0, 0),
    ]
    phases = [
        Phase(kind, space, d=Ref(2 + k, 5), width=WIDTH, from_=from_, source=source, ints=ints)
        for k, (kind, space, from_, source, ints) in enumerate(kinds)
    ]
    code = Code(tuple(bases), (0, 1), (0, 0), tuple(phases))
    unit = TiledUnit(("rows", "one"), (), code, code, None)
    context = RowContext(len(COUNTS), {"rows": COUNTS, "one": 1})
    x = random.normal(size=(COUNTS.sum(), wide))
    x[3, 40] = np.nan
    inputs = [x, random.normal(size=(len(COUNTS), wide))]
    within = random.integers(0, np.repeat(COUNTS, COUNTS))
    ints = [within, random.integers(0, 6, COUNTS.sum())]
    return Case(
        "moves", unit, [ParamSpec("E", (6, wide))], context, inputs, ints, [random.normal(size=(6, wide))]
    )


def windows(shape: tuple[int, ...]) -> Case:
    """The windows of images, and windows added up to images."""
    height, width, channels, tall, wide, stride, padding = shape
    down = (height + 2 * padding - tall) // stride + 1
    across = (width + 2 * padding - wide) // stride + 1
    image, window = height * width * channels, tall * wide * channels
    bases = [Base(Place.Operand, 0, image, 0), Base(Place.Operand, 1, window, 1)]
    bases += [Base(Place.Output, 0, window, 1), Base(Place.Output, 1, image, 0)]
    phases = (
        Phase(K.Patches, 1, d=Ref(2), width=window, from_=Ref(0), source=0, windows=shape),
        Phase(K.Unpatch, 0, d=Ref(3), width=image, from_=Ref(1), source=1, windows=shape),
    )
    code = Code(tuple(bases), (), (), phases)
    unit = TiledUnit(("rows", "windows"), (), code, code, None)
    context = RowContext(2, {"rows": np.array([1, 2]), "windows": np.array([1, 2]) * down * across})
    random = np.random.default_rng(4)
    inputs = [random.normal(size=(3, image)), random.normal(size=(3 * down * across, window))]
    name = "windows_" + "_".join(map(str, shape))
    return Case(name, unit, [], context, inputs, [], [])


SHAPES = ((6, 5, 3, 3, 2, 2, 1), (4, 4, 20, 2, 2, 2, 0), (3, 4, 2, 1, 1, 1, 0), (2, 2, 1, 2, 2, 1, 1))


@pytest.mark.parametrize("form", daily(["cpu", "gpu"], ["single", "lanes of vectors"]))
def test_moves(form: str) -> None:
    check([moves(), *(windows(shape) for shape in SHAPES)], FORMS[form])
