"""Kernels of attention compute what the tile interpreter does."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from amphw.engine.tiles.code import Base, Code, Phase, PhaseKind, Place, Ref, Segment, TiledUnit
from amphw.ir.primitives import PRIMITIVES, RowContext
from amphw.ir.program import ParamSpec
from amphw.opencl.codegen.liveness import Liveness, Region
from tests.daily import daily
from tests.opencl.codegen.test_generate import FORMS
from tests.opencl.unit_checks import Case, check, rounded

K = PhaseKind
# Messages without queries, without keys, with neither; and with more of both than there are lanes.
QUERIES = np.array([3, 0, 2, 0, 1, 37, 18, 1])
KEYS = np.array([2, 3, 0, 0, 1, 21, 39, 6])
SHAPES = ((40, 22, 2), (7, 5, 1), (3, 3, 3), (32, 32, 2), (40, 66, 2), (16, 1, 1), (51, 34, 17))
"""Columns of queries and keys, columns of values, heads."""


def attention(width: int, value: int, heads: int, limited: bool) -> Case:
    """All three phases, out of columns and into columns in the middle of a row.

    Operands: q, k, v, d, numbers; then the outputs.
    """
    random = np.random.default_rng(width + limited)
    widths, spaces = (width, width, value, value, 2 * heads), (0, 1, 1, 0, 0)
    bases = [Base(Place.Operand, k, n + 7, s) for k, (n, s) in enumerate(zip(widths, spaces, strict=True))]
    results = (
        (K.Attend, 0, 3, value + heads),
        (K.AttendQueries, 0, 5, width),
        (K.AttendKeys, 1, 5, width + value),
    )
    bases += [Base(Place.Output, k, n + 9, space) for k, (_, space, _, n) in enumerate(results)]
    operands = [Segment(Ref(k, 3), n) for k, n in enumerate(widths)]
    phases = tuple(
        Phase(
            kind,
            space,
            a=tuple(operands[:n]),
            d=Ref(5 + k, 5),
            width=columns,
            source=1 - space,
            ints=0 if limited else -1,
            heads=heads,
        )
        for k, (kind, space, n, columns) in enumerate(results)
    )
    code = Code(tuple(bases), (0,) if limited else (), (0,) if limited else (), phases, factors=())
    context = RowContext(len(QUERIES), {"queries": QUERIES, "keys": KEYS})
    inputs = [
        random.normal(size=(context.total(("queries", "keys")[s]), n + 7))
        for n, s in zip(widths, spaces, strict=True)
    ]
    inputs[0] *= 3  # such that weights differ much
    # As many as there are, fewer, none, less than none, and more than there are.
    seen = [random.integers(-2, np.repeat(KEYS, QUERIES) + 4)] if limited else []
    if limited:
        seen[0][:3] = -1, 2**40, -(2**40)
    # Weights as they are in a backward direction: of numbers that the forward one has made.
    attrs = {"space": "queries", "source": "keys", "heads": heads}
    rows = [rounded(x)[:, 3 : 3 + n] for x, n in zip(inputs, widths, strict=True)]
    out = PRIMITIVES["attend"].evaluate(context, attrs, {}, [*rows[:3], *seen])
    inputs[4][:, 3 : 3 + heads] = out[:, value:]
    unit = TiledUnit(("queries", "keys"), (), code, code, None)
    return Case(f"attention_{width}_{value}_{heads}_{limited:d}", unit, [], context, inputs, seen, [])


def of_parameters() -> Case:
    """Every operand may be a row of a table, a parameter, or constant."""
    random = np.random.default_rng(6)
    bases = [
        Base(Place.ParamRow, 0, 8, 0, ints=0),
        Base(Place.ParamRow, 0, 8, 1, ints=1),
        Base(Place.Param, 1, 4, 1),
        Base(Place.Constant, 1, 4, 1),
        Base(Place.Output, 0, 6, 0),
        Base(Place.Output, 1, 6, 0),
    ]
    phases = tuple(
        Phase(K.Attend, 0, a=(Segment(Ref(0), 8), Segment(Ref(1), 8), Segment(Ref(2 + n), 4)),
              d=Ref(4 + n), width=6, source=1, heads=2)
        for n in range(2)
    )  # fmt: skip
    code = Code(tuple(bases), (0, 1), (0, 1), phases, factors=())
    unit = TiledUnit(("queries", "keys"), (), code, code, None)
    context = RowContext(len(QUERIES), {"queries": QUERIES, "keys": KEYS})
    ints = [random.integers(0, 5, QUERIES.sum()), random.integers(0, 5, KEYS.sum())]
    params = [random.normal(size=(5, 8)), random.normal(size=4)]
    specs = [ParamSpec("E", (5, 8)), ParamSpec("v", (4,))]
    return Case("of_parameters", unit, specs, context, [], ints, params)


@pytest.mark.parametrize(
    "form,shape",
    daily(
        product(["cpu", "gpu"], SHAPES[:2]),
        [*product(["cpu", "gpu"], SHAPES[2:]), *product(["single", "lanes of vectors"], SHAPES)],
    ),
)
def test_attention(form: str, shape: tuple[int, int, int]) -> None:
    check([attention(*shape, limited) for limited in (False, True)], FORMS[form])


@pytest.mark.parametrize("form", daily(["gpu"], ["cpu", "single", "lanes of vectors"]))
def test_rows_of_parameters(form: str) -> None:
    check([of_parameters()], FORMS[form])


def extreme() -> Case:
    """Scores whose powers no float holds; in the first message all of them are far below 0."""
    case = attention(4, 4, 1, False)
    q, k = (x[:, 3:7] for x in case.inputs[:2])
    q *= 100
    k *= 100
    q[: QUERIES[0]], k[: KEYS[0]] = -np.abs(q[: QUERIES[0]]), np.abs(k[: KEYS[0]])
    # What numbers say is of other scores.
    code = case.tiled.forward
    only = Code(code.bases[:6], (), (), code.phases[:1], factors=())
    return Case(
        "extreme", TiledUnit(case.tiled.spaces, (), only, only, None), [], case.context, case.inputs, [], []
    )


@pytest.mark.parametrize("form", ["cpu", "gpu"])
def test_scores_may_be_large(form: str) -> None:
    check([extreme()], FORMS[form])


def test_all_operands_are_read() -> None:
    effects = Liveness(attention(8, 4, 2, False).tiled.forward).effects
    read = [Region(0, 3, 11), Region(1, 3, 11), Region(2, 3, 7), Region(3, 3, 7), Region(4, 3, 7)]
    assert [list(e.reads) for e in effects] == [read[:3], read, read]
    assert [e.writes for e in effects] == [
        (Region(5, 5, 11),),
        (Region(6, 5, 13),),
        (Region(7, 5, 17),),
    ]
