"""Kernels compute what the tile interpreter does: random programs, units of models, and each instruction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from amphw.engine.lowering.lower import lower
from amphw.engine.tiles import code as tile_code
from amphw.engine.tiles import operations
from amphw.engine.tiles.code import Base, Code, Instr, PhaseKind, Place, Ref, TiledUnit
from amphw.engine.tiles.operations import Op
from amphw.engine.tiles.tiling import tile
from amphw.ir import rng
from amphw.ir.graph import Graph
from amphw.ir.passes import fuse
from amphw.ir.primitives import RowContext
from amphw.ir.program import ParamSpec, Program
from amphw.models.list_reduction import ListReductionConfig, ListReductionRNN
from amphw.models.tree_lstm import TreeLSTM, TreeLSTMConfig
from amphw.opencl.abi import FAULTS
from amphw.opencl.codegen.forms import CPU_FORM, GPU_FORM, SINGLE_FORM, Form
from amphw.opencl.codegen.generate import generate, program_text
from amphw.opencl.layout import layouts
from tests.daily import daily
from tests.engine.tiles.tile_programs import SPACES, counts, operands, programs
from tests.opencl.frames import Frame, build
from tests.opencl.unit_checks import Case, case, check

FORMS = {
    "cpu": CPU_FORM,
    "gpu": GPU_FORM,
    "single": SINGLE_FORM,
    "lanes of vectors": Form(vector=4, lanes=4, rows_per_item=3),
}
EXAMPLES = 12


@cache
def random_cases(n: int) -> tuple[Case, ...]:
    """The last ones that are drawn, since the first are simple."""
    drawn = []

    @seed(7)
    @settings(
        max_examples=4 * n,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(), counts, st.integers(0, 2**32 - 1))
    def draw(program: Program, rows: list[tuple[int, int]], number: int) -> None:
        drawn.append((program, rows, number))

    draw()
    cases = []
    for k, (program, rows, number) in enumerate(drawn[-n:]):
        frame = operands(program, rows or [(2, 1)], number)
        cases.append(case(f"unit{k}", program, SPACES, frame.context, frame.inputs, frame.ints, frame.params))
    return tuple(cases)


@pytest.mark.parametrize("form", daily(["cpu"], [form for form in FORMS if form != "cpu"]))
def test_random_programs(form: str) -> None:
    check(random_cases(EXAMPLES), FORMS[form])


MODELS = {
    "list-reduction": lambda: ListReductionRNN().graph(ListReductionConfig(hidden=36, embedding=20, batch=5)),
    "list-reduction-gru": lambda: ListReductionRNN().graph(
        ListReductionConfig(hidden=32, cell="gru", batch=5)
    ),
    "tree-lstm": lambda: TreeLSTM().graph(
        TreeLSTMConfig(hidden=21, embedding=18, vocabulary=30, dropout=0.2, sample=True)
    ),
}


def units(graph: Graph) -> list[Case]:
    """The units of a graph, each with a frame of 5 messages of one row."""
    random, cases = np.random.default_rng(3), []
    for unit in lower(fuse(graph)).units:
        program = unit.behaviour.program
        if program is None:
            continue
        tiled = tile(unit)
        context = RowContext(5, dict.fromkeys(tiled.spaces, 1))
        cases.append(
            Case(
                unit.name,
                tiled,
                program.params,
                context,
                [random.normal(size=(5, t.width)) for _, t in program.inputs],
                [np.zeros(5, np.int64) for _ in program.ints],
                [random.normal(size=p.shape) for p in program.params],
            )
        )
    return cases


@pytest.mark.parametrize("form", ["cpu", "gpu"])
@pytest.mark.parametrize("model", daily(["list-reduction"], [m for m in MODELS if m != "list-reduction"]))
def test_units_of_models(model: str, form: str) -> None:
    check(units(MODELS[model]()), FORMS[form])


def test_kernels_are_called_after_their_units() -> None:
    cell = units(MODELS["list-reduction"]())[0]
    names = [generate(name, cell.tiled, cell.specs, CPU_FORM).forward[0].name for name in ("2-é", "2_é")]
    assert names == ["forward_2_2d__e9__0", "forward_2__e9__0"]


def test_what_follows_a_product_is_done_while_it_is_in_registers() -> None:
    by_name = {c.name: c for c in units(MODELS["list-reduction"]())}
    cell = by_name["cell"]
    source = generate("cell", cell.tiled, cell.specs, CPU_FORM)
    assert [k.name for k in source.forward] == ["forward_cell_0"]
    assert source.inference is source.forward
    assert "y0 = Relu(y0)" in source.forward[0].text
    assert "STORE(ROW" not in source.forward[0].text  # the sum before the ReLU


# --- instructions one by one --------------------------------------------------------------------------------

ELEMENTWISE = [Op.Mov, Op.Fill, Op.SpreadCols, *sorted(operations.ELEMENTWISE)]
SPECIAL = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 88.0, -87.0, 104.0, -110.0]


def unit_of(phases: Sequence[tile_code.Phase], bases: Sequence[Base], slots: int = 0) -> TiledUnit:
    """A unit of hand-written code; all integer slots are operands in space 0."""
    code = Code(tuple(bases), tuple(range(slots)), (0,) * slots, tuple(phases))
    return TiledUnit(("rows",), (), code, code, None)


def instructions(widths: Sequence[int]) -> TiledUnit:
    """Each operation on each width: operand k has width number k three times, and each result an output."""
    bases = [Base(Place.Operand, k, 3 * n, 0) for k, n in enumerate(widths)]
    code = []
    for k, n in enumerate(widths):
        for op in (*ELEMENTWISE, Op.SumCols, Op.MaxCols):
            a, b, c = (Ref(k, j * n) for j in range(3))
            count = ref_count(op)
            d = Ref(len(bases))
            i = Instr(op, n, d, a, b if count > 1 else Ref(), c if count > 2 else Ref(), f=0.75)
            bases.append(Base(Place.Output, len(code), i.written, 0))
            code.append(i)
    return unit_of([tile_code.Phase(PhaseKind.Rows, 0, tuple(code))], bases)


def ref_count(op: Op) -> int:
    """Rows that an operation reads."""
    text = operations.text_of(op)
    return 1 if text is None else sum(name != "f" for _, name in text.parameters)


@pytest.mark.parametrize("form", FORMS)
def test_nan_infinities_and_saturation(form: str) -> None:
    widths = (1, 5, 16, 37)
    random = np.random.default_rng(1)
    inputs = [random.choice(SPECIAL, size=(7, 3 * n)) for n in widths]
    unit = instructions(widths)
    check([Case("unit", unit, [], RowContext(7, {"rows": 1}), inputs, [], [])], FORMS[form])


@pytest.mark.parametrize("form", ["cpu", "gpu"])
def test_functions_are_accurate(form: str) -> None:
    width, rows = 500, 20
    ops = {Op.Exp: (-87, 88), Op.Sigmoid: (-80, 80), Op.Tanh: (-12, 12), Op.Log: (1e-6, 50), Op.Sqrt: (0, 9)}
    random = np.random.default_rng(1)
    inputs, exact, code, bases = [], [], [], []
    for k, (op, (low, high)) in enumerate(ops.items()):
        x = random.uniform(low, high, (rows, width)).astype(np.float32).astype(np.float64)
        inputs.append(x)
        with np.errstate(over="ignore"):
            exact.append(1 / (1 + np.exp(-x)) if op == Op.Sigmoid else getattr(np, op.name.lower())(x))
        bases += [Base(Place.Operand, k, width, 0), Base(Place.Output, k, width, 0)]
        code.append(Instr(op, width, Ref(2 * k + 1), Ref(2 * k)))
    unit = unit_of([tile_code.Phase(PhaseKind.Rows, 0, tuple(code))], bases)
    ran = run(unit, inputs, [], [], FORMS[form])
    for k, op in enumerate(ops):
        found = ran.rows[Place.Output, k].astype(np.float64)
        assert np.max(np.abs(found / exact[k] - 1)) < 2.5e-7, op.name


def run(unit: TiledUnit, inputs, ints, params, form: Form):  # type: ignore[no-untyped-def]
    """Run a unit's inference code on a frame of messages of one row."""
    specs = [ParamSpec(f"p{k}", p.shape) for k, p in enumerate(params)]
    source = generate("unit", unit, specs, form)
    n = len(inputs[0])
    context = RowContext(n, dict.fromkeys(unit.spaces, 1))
    frame = Frame(
        unit.spaces, unit.inference, context, {(Place.Operand, k): x for k, x in enumerate(inputs)}, ints
    )
    laid = layouts(unit, specs, form)
    return frame.run(source.inference, build(program_text([source], form)), params, laid, form)


@pytest.mark.parametrize("form", FORMS)
def test_dropout_is_the_same_to_the_bit(form: str) -> None:
    n, width, rate = 9, 45, 0.3
    random = np.random.default_rng(1)
    keys = [random.integers(-(2**40), 2**40, n) for _ in range(2)]
    bases = [Base(Place.Operand, 0, width, 0), Base(Place.Output, 0, width, 0)]
    instr = Instr(Op.Dropout, width, Ref(1), Ref(0), f=rate, ints=(0, 1), seed=2**33 + 12345)
    unit = unit_of([tile_code.Phase(PhaseKind.Rows, 0, (instr,))], bases, slots=2)
    ran = run(unit, [np.ones((n, width))], keys, [], FORMS[form])
    keep = rng.uniform(keys, instr.seed, n, width) >= rate
    np.testing.assert_array_equal(ran.rows[Place.Output, 0], keep * np.float32(1 / (1 - rate)))


@pytest.mark.parametrize("form", FORMS)
def test_uniform_numbers_are_the_same_to_the_bit(form: str) -> None:
    n, width = 9, 45
    random = np.random.default_rng(1)
    keys = [random.integers(-(2**40), 2**40, n) for _ in range(2)]
    bases = [Base(Place.Operand, 0, width, 0), Base(Place.Output, 0, width, 0)]
    instr = Instr(Op.Uniform, width, Ref(1), ints=(0, 1), seed=2**33 + 12345)
    unit = unit_of([tile_code.Phase(PhaseKind.Rows, 0, (instr,))], bases, slots=2)
    ran = run(unit, [np.ones((n, width))], keys, [], FORMS[form])
    np.testing.assert_array_equal(ran.rows[Place.Output, 0], rng.uniform(keys, instr.seed, n, width))


def faulty(kind: str) -> TiledUnit:
    """A unit that looks up an integer in the way that a fault is called after."""
    bases = [Base(Place.Operand, 0, 4, 0), Base(Place.Output, 0, 1 if kind in ("pick", "to_int") else 4, 0)]
    d, a = Ref(1), Ref(0)
    if kind == "take":
        bases.append(Base(Place.ParamRow, 0, 4, 0, ints=0))
        phase = tile_code.Phase(PhaseKind.Rows, 0, (Instr(Op.Mov, 4, d, Ref(2)),))
    elif kind == "to_int":
        slots = (Instr(Op.ToInt, 1, a=Ref(0, 3), ints=(0,)), Instr(Op.ToFloat, 1, d, ints=(0,)))
        phase = tile_code.Phase(PhaseKind.Rows, 0, slots)
    elif kind in ("pick", "place"):
        op = Op.Pick if kind == "pick" else Op.Place
        phase = tile_code.Phase(PhaseKind.Rows, 0, (Instr(op, 4, d, a, ints=(0,)),))
    else:
        move = PhaseKind.GatherRows if kind == "gather_rows" else PhaseKind.ScatterRows
        phase = tile_code.Phase(move, 0, d=d, width=4, from_=a, source=0, ints=0)
    return unit_of([phase], bases, slots=1)


@pytest.mark.parametrize("form", ["cpu", "gpu"])
@pytest.mark.parametrize("number", sorted(FAULTS))
def test_bad_indices_are_faults(number: int, form: str) -> None:
    x = np.arange(12.0).reshape(3, 4)
    params = [x + 100] if FAULTS[number] == "take" else []
    for bad in (-1, 4, 2**32):
        if FAULTS[number] == "to_int":
            x[1, 3] = {-1: 0.5, 4: np.nan, 2**32: 2.0**32}[bad]
        unit = faulty(FAULTS[number])
        ran = run(unit, [x], [np.array([0, bad, 0])], params, FORMS[form])
        assert ran.fault == (number, 1)
        assert np.isfinite(ran.rows[Place.Output, 0]).all()
    x[1, 3] = 7.0
    assert run(unit, [x], [np.zeros(3, np.int64)], params, FORMS[form]).fault == (0, 0)
