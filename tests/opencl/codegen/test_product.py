"""Generated products against numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from amphw.engine.tiles.code import Base, Code, Phase, PhaseKind, Place, Ref, Segment
from amphw.opencl import abi
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.product import product_kernel
from amphw.opencl.layout import Layout
from tests.daily import daily
from tests.opencl.kernels import LOCAL, PANELS, PLAIN, SCALAR, SINGLE, Arena, Machine, padded

ROWS = (0, 1, 5, 17, 33)
FORMS = {"panels": PANELS, "plain": PLAIN, "local": LOCAL, "single": SINGLE, "scalar": SCALAR}


@dataclass(frozen=True)
class Case:
    """widths: of the segments; offset: of d in its row; start: "", "rows" or "table"."""

    widths: tuple[int, ...]
    width: int
    offset: int = 0
    bias: bool = False
    accumulate: bool = False
    start: str = ""
    transposed: bool = False
    first_row: int = -1


CASES = (
    Case((1,), 1),
    Case((5,), 17, bias=True),
    Case((33,), 5, offset=3, accumulate=True),
    Case((17, 1, 5), 33, bias=True, accumulate=True),
    Case((150,), 150, transposed=True),
    Case((5, 33), 150, offset=7, start="rows"),
    Case((17,), 100, start="table", first_row=5),
    Case((64,), 96, bias=True, first_row=0),
    Case((450, 7, 900), 37, bias=True, accumulate=True),
)
BEHIND = 4  # columns of d's rows behind the result
TABLE_ROWS = 9
OPERANDS, RESULT, START, TABLE = range(4)


def bases(case: Case) -> tuple[Base, ...]:
    return (
        Base(Place.Operand, 0, 2 + sum(case.widths), 0),
        Base(Place.Output, 0, case.offset + case.width + BEHIND, 0),
        Base(Place.Saved, 0, case.width, 0),
        Base(Place.ParamRow, 2, case.width, 0, ints=1),
    )


def lowered(case: Case) -> tuple[Code, Phase]:
    """The segments are columns of one operand, from 2 on, the last segment first."""
    segments, at = [], 2
    for width in reversed(case.widths):
        segments.insert(0, Segment(Ref(0, at), width))
        at += width
    phase = Phase(
        PhaseKind.Gemm,
        param=0,
        bias=1 if case.bias else -1,
        transposed=case.transposed,
        accumulate=case.accumulate,
        start={"": -1, "rows": START, "table": TABLE}[case.start],
        first_row=case.first_row,
        a=tuple(segments),
        d=Ref(RESULT, case.offset),
        width=case.width,
    )
    return Code(bases(case), (0, 1), (0, 0), (phase,)), phase


def laid(case: Case, form: Form) -> dict[int, Layout]:
    """How the parameters lie: the matrix, and the table."""
    rows = max(case.first_row, 0) + sum(case.widths)
    return {0: Layout(rows, case.width, form.panel), 2: Layout(TABLE_ROWS, case.width)}


def columns_of(operand: np.ndarray, case: Case) -> np.ndarray:
    parts, at = [], 2
    for width in reversed(case.widths):
        parts.insert(0, operand[:, at : at + width])
        at += width
    return np.concatenate(parts, axis=1)


@pytest.fixture(scope="module", params=daily(["panels", "local"], ["plain", "single", "scalar"]))
def built(request, machine: Machine):
    form: Form = FORMS[request.param]
    kernels = []
    for number, case in enumerate(CASES):
        code, phase = lowered(case)
        name = f"product{number}"
        kernels.append(product_kernel(name, code, phase, form, None, str(case), laid(case, form)))
    return machine.build(form, kernels), kernels, form.panel


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_product_is_numpys(built, machine: Machine, number: int, rows: int) -> None:
    program, kernels, panel = built
    case, rng = CASES[number], np.random.default_rng(number)
    depth, above = sum(case.widths), max(case.first_row, 0)
    weight = rng.standard_normal((above + depth, case.width)).astype(np.float32)
    bias = rng.standard_normal(case.width).astype(np.float32)
    table = rng.standard_normal((TABLE_ROWS, case.width)).astype(np.float32)
    code, _ = lowered(case)
    arena, values, tables, places = Arena(), [], [], []
    for base in code.bases[:3]:
        values.append(rng.standard_normal((rows, base.width)).astype(np.float32))
        found = arena.rows(values[-1], rng.permutation(rows))
        tables.append(found[0])
        places.append(found[1])
    number_of = rng.integers(0, TABLE_ROWS, max(rows, 1))
    head = np.zeros(64, np.int32)
    head[abi.ROWS] = rows
    head[abi.TABLES : abi.TABLES + 6] = [*tables, 0, 0, arena.put(number_of)]
    frame, before = arena.put(head), arena.words.copy()
    arrays = {
        # The transposed copy of W has W' for its rows, the matrix itself what is above them as well.
        "p0t": padded(weight[above:], panel),
        "p0": padded(weight, panel),
        "p1": padded(bias),
        "p2": padded(table),
    }
    faults = np.zeros(16, np.int32)
    machine.run(program, kernels[number], arena.words, frame, arrays, faults, [rows])

    expected = columns_of(values[0], case).astype(np.float64) @ weight[above:]
    if case.bias:
        expected += bias
    if case.start:
        expected += values[START] if case.start == "rows" else table[number_of[:rows]]
    if case.accumulate:
        expected += values[RESULT][:, case.offset : case.offset + case.width]
    for row, place in enumerate(places[RESULT]):
        at = place + case.offset
        found = arena.words[at : at + case.width]
        np.testing.assert_allclose(found, expected[row], rtol=1e-4, atol=1e-4)
        before[at : at + case.width] = found
    np.testing.assert_array_equal(arena.words.view(np.int32), before.view(np.int32))  # nothing else changed
    assert not faults.any()


@pytest.mark.parametrize("number", [row for row, case in enumerate(CASES) if case.start == "table"])
def test_a_row_outside_the_table_is_a_fault(built, machine: Machine, number: int) -> None:
    program, kernels, panel = built
    case = CASES[number]
    arena, rows = Arena(), 3
    tables = [arena.rows(np.zeros((rows, base.width), np.float32))[0] for base in bases(case)[:3]]
    head = np.zeros(64, np.int32)
    head[abi.ROWS] = rows
    head[abi.TABLES : abi.TABLES + 6] = [*tables, 0, 0, arena.put(np.array([1, TABLE_ROWS, 2]))]
    frame = arena.put(head)
    weight = np.zeros((200, case.width), np.float32)
    arrays = {name: padded(weight, panel * (name == "p0")) for name in ("p0", "p1", "p2")}
    faults = np.zeros(16, np.int32)
    machine.run(program, kernels[number], arena.words, frame, arrays, faults, [rows])
    assert abi.FAULTS[faults[abi.FAULT]] == "take" and faults[abi.FAULT_ROW] == 1


class Relu:
    """d = product; e = relu(product), in the rows of another base."""

    tables = (START,)
    buffers = ()
    stores_result = True

    def __init__(self, vector: int):
        self.vector = vector

    def statements(self, value: str, row: str, column: str, count: str) -> list[str]:
        lanes = [value] if self.vector == 1 else [f"{value}.s{lane:x}" for lane in range(int(count))]
        return [
            f"row_{START}[{column} + {k}] = {lane} > 0.0f ? {lane} : 0.0f;" for k, lane in enumerate(lanes)
        ]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_results_are_finished_in_registers(machine: Machine, form: Form) -> None:
    case, rows, rng = Case((17,), 37), 11, np.random.default_rng(3)
    code, phase = lowered(case)
    kernel = product_kernel("finished", code, phase, form, Relu(form.vector), "its relu", laid(case, form))
    arena = Arena()
    x = rng.standard_normal((rows, bases(case)[0].width)).astype(np.float32)
    weight = rng.standard_normal((17, 37)).astype(np.float32)
    found = [arena.rows(x)] + [arena.rows(np.zeros((rows, b.width), np.float32)) for b in code.bases[1:3]]
    head = np.zeros(64, np.int32)
    head[abi.ROWS] = rows
    head[abi.TABLES : abi.TABLES + 3] = [table for table, _ in found]
    frame = arena.put(head)
    program = machine.build(form, [kernel])
    faults = np.zeros(16, np.int32)
    machine.run(program, kernel, arena.words, frame, {"p0": padded(weight, form.panel)}, faults, [rows])
    expected = columns_of(x, case) @ weight
    for base, wanted in ((RESULT, expected), (START, np.maximum(expected, 0))):
        for row, place in enumerate(found[base][1]):
            np.testing.assert_allclose(arena.words[place : place + 37], wanted[row], rtol=1e-4, atol=1e-4)


def test_nan_stays_nan(built, machine: Machine) -> None:
    program, kernels, panel = built
    case = CASES[1]
    arena = Arena()
    x = np.zeros((2, bases(case)[0].width), np.float32)
    x[1] = np.nan
    found = [arena.rows(x)] + [arena.rows(np.zeros((2, b.width), np.float32)) for b in bases(case)[1:3]]
    head = np.zeros(64, np.int32)
    head[abi.ROWS] = 2
    head[abi.TABLES : abi.TABLES + 3] = [table for table, _ in found]
    frame = arena.put(head)
    arrays = {"p0": padded(np.ones((5, 17), np.float32), panel), "p1": padded(np.zeros(17, np.float32))}
    machine.run(program, kernels[1], arena.words, frame, arrays, np.zeros(16, np.int32), [2])
    first, second = found[RESULT][1]
    assert not np.isnan(arena.words[first : first + 17]).any()
    assert np.isnan(arena.words[second : second + 17]).all()
