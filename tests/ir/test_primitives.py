"""Every derivative against central differences in float64, over frames of several messages, some empty."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amphw.ir.derive import accumulate, differentiate
from amphw.ir.errors import ProgramError
from amphw.ir.expr import ROW
from amphw.ir.functions import (
    columns,
    dropout,
    max_rows,
    pick,
    row_param,
    same,
    sigmoid,
    sum_rows,
)
from amphw.ir.primitives import PRIMITIVES, RowContext
from amphw.ir.program import Program, trace
from tests.ir.primitive_cases import (
    COMPOSED,
    CONSTANT,
    DIFFERENTIABLE,
    INDEX,
    WITHOUT_DERIVATIVE,
    Case,
    Frame,
)

STEP = 1e-6

frames = st.builds(
    lambda seed, pairs, width: Frame(
        np.random.default_rng(seed),
        np.array([a for a, _ in pairs], dtype=np.int64),
        np.array([b for _, b in pairs], dtype=np.int64),
        width,
    ),
    st.integers(0, 2**32 - 1),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=4),
    st.integers(1, 4),
)


def int_values(program: Program, case: Case, frame: Frame) -> list[np.ndarray]:
    known = {INDEX: case.ints.get("i"), ROW: frame.context.row_in_message("rows")}
    return [
        np.full(frame.context.total(space), e.value) if e not in known else known[e]  # type: ignore[attr-defined]
        for e, space in program.ints
    ]


def analytic(
    case: Case, frame: Frame, dy: list[np.ndarray]
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Gradients of sum(dy * y) with respect to the inputs and the parameters, from the derived programs."""
    d = differentiate(case.program)
    ints = int_values(case.program, case, frame)
    got = d.forward.run(frame.context, case.inputs, ints, case.params)
    n = len(case.program.outputs)
    kept = {"input": case.inputs, "output": got[:n], "value": got[n:]}
    residuals = [kept[kind][i] for kind, i in d.residuals]
    by_key = dict(zip(case.program.ints, ints, strict=True))
    back = d.backward.run(frame.context, [*dy, *residuals], [by_key[k] for k in d.backward.ints], case.params)
    gradients = {k: np.zeros_like(v) for k, v in case.params.items()}
    for term in d.terms:
        a = None if term.a is None else back[term.a]
        accumulate(term.kind, gradients[term.param], a, back[term.dz])
    return back[: len(d.wrt)], gradients


def numeric(case: Case, frame: Frame, dy: list[np.ndarray], at: np.ndarray) -> np.ndarray:
    """Central differences of the same sum with respect to one of the case's arrays."""
    ints = int_values(case.program, case, frame)
    out = np.zeros_like(at)
    for i in np.ndindex(at.shape):
        kept, sums = at[i], []
        for step in (STEP, -STEP):
            at[i] = kept + step
            ys = case.program.run(frame.context, case.inputs, ints, case.params)
            sums.append(sum(float((d * y).sum()) for d, y in zip(dy, ys, strict=True)))
        at[i] = kept
        out[i] = (sums[0] - sums[1]) / (2 * STEP)
    return out


def output_gradients(case: Case, frame: Frame) -> list[np.ndarray]:
    return [
        frame.rng.normal(size=(frame.context.total(t.space), t.width)) for t in case.program.outputs_types
    ]


@pytest.mark.parametrize("name", sorted({**DIFFERENTIABLE, **COMPOSED}))
@settings(max_examples=15)
@given(frame=frames)
def test_derivative_against_central_differences(name: str, frame: Frame) -> None:
    case = {**DIFFERENTIABLE, **COMPOSED}[name](frame)
    frame.__post_init__()  # a case may have adjusted the counts
    dy = output_gradients(case, frame)
    dx, gradients = analytic(case, frame, dy)
    for got, x in zip(dx, case.inputs, strict=True):
        assert got.shape == x.shape
        np.testing.assert_allclose(got, numeric(case, frame, dy, x), rtol=1e-5, atol=1e-7)
    for key, value in case.params.items():
        np.testing.assert_allclose(gradients[key], numeric(case, frame, dy, value), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", sorted(CONSTANT))
@settings(max_examples=10)
@given(frame=frames)
def test_no_gradient_passes_where_none_is_declared(name: str, frame: Frame) -> None:
    case = CONSTANT[name](frame)
    dx, _ = analytic(case, frame, output_gradients(case, frame))
    for got, x in zip(dx, case.inputs, strict=True):
        assert got.shape == x.shape and not got.any()


def test_every_derivative_is_covered() -> None:
    """Whoever adds a primitive with a derivative adds its case here."""
    with_derivative = set(PRIMITIVES) - WITHOUT_DERIVATIVE
    assert with_derivative == {*DIFFERENTIABLE, *CONSTANT}
    for name, build in {**DIFFERENTIABLE, **CONSTANT}.items():
        frame = Frame(np.random.default_rng(0), np.array([2, 1]), np.array([2, 1]), 2)
        assert name in {i.op for i in build(frame).program.instrs}, f"the case '{name}' does not use it"


def test_gradients_of_attention_have_none() -> None:
    frame = Frame(np.random.default_rng(0), np.array([2, 1]), np.array([2, 1]), 2)
    backward = differentiate(DIFFERENTIABLE["attend"](frame).program).backward
    assert WITHOUT_DERIVATIVE <= {i.op for i in backward.instrs}
    with pytest.raises(ProgramError, match="gradients of attention"):
        differentiate(backward)


def test_equal_maxima_share_the_gradient() -> None:
    frame = Frame(np.random.default_rng(0), np.array([3, 1]), np.array([0, 0]), 1)
    case = DIFFERENTIABLE["max_rows"](frame)
    case.inputs = [np.array([[2.0], [1.0], [2.0], [5.0]])]
    (dx,), _ = analytic(case, frame, [np.array([[1.0], [3.0]])])
    assert dx.tolist() == [[0.5], [0.0], [0.5], [3.0]]


def test_reductions_of_no_rows_give_zero() -> None:
    context = RowContext(3, {"rows": np.array([0, 2, 0]), "one": 1})
    x = np.array([[-1.0], [-3.0]])
    for function, wanted in ((sum_rows, -4.0), (max_rows, -1.0)):
        program = trace(lambda x, f=function: f(x, "one"), {"x": 1}, spaces={"one": 1})
        assert program.run(context, [x], [], {})[0].tolist() == [[0.0], [wanted], [0.0]]


def test_matmul_t_is_the_transpose() -> None:
    w, d = np.arange(6.0).reshape(2, 3), np.ones((4, 3))
    y = PRIMITIVES["matmul_t"].evaluate(RowContext(4, {"rows": 1}), {"param": "W"}, {"W": w}, [d])
    assert np.array_equal(y, d @ w.T)


def test_sigmoid_never_overflows() -> None:
    x = np.array([[-1000.0, 0.0, 1000.0]], np.float32)
    (y,) = trace(sigmoid, {"x": 3}).run(RowContext(1, {"rows": 1}), [x], [], {})
    assert y.dtype == np.float32 and y.tolist() == [[0.0, 0.5, 1.0]]


def test_row_context() -> None:
    context = RowContext(3, {"a": np.array([2, 0, 1]), "b": 2})
    assert (context.total("a"), context.total("b")) == (3, 6)
    assert context.starts("a").tolist() == [0, 2, 2] and context.starts("b").tolist() == [0, 2, 4]
    assert context.message_of_row("a").tolist() == [0, 0, 2]
    assert context.row_in_message("b").tolist() == [0, 1, 0, 1, 0, 1]
    assert RowContext(0, {"a": np.zeros(0, np.int64)}).starts("a").tolist() == []


W23 = {"W": (2, 3)}


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: trace(lambda x, y: x + y, {"x": 2, "y": 3}),
            "operands do not fit: [rows, 2] and [rows, 3] (rows of space, width)",
        ),
        (
            lambda: trace(lambda x: x + x.builder.integer(INDEX), {"x": 1}),
            "an integer operand where a float one is needed; convert it with to_float()",
        ),
        (lambda: trace(lambda x: columns(x, 1, 2), {"x": 2}), "slice 1:3 is outside the operand's width 2"),
        (
            lambda: trace(lambda p, x: x @ p.W, {"x": 4}, W23),
            "matmul: the operand has width 4, parameter 'W' has 2 rows",
        ),
        (
            lambda: trace(lambda p, x: row_param(p.W), {"x": 4}, W23),
            "row_param: parameter 'W' has shape (2, 3), expected 1 dimension(s)",
        ),
        (lambda: trace(lambda p, x: x @ p.V, {"x": 4}, W23), "no parameter 'V' (declared: ['W'])"),
        (lambda: trace(lambda p, x: x, {"x": 4}, W23), "the parameters ['W'] are declared but never used"),
        (lambda: trace(lambda x: pick(x, x), {"x": 4}), "a float operand where an integer one is needed"),
        (lambda: trace(lambda x: same(x, 1), {"x": 1}), "a float operand where an integer one is needed"),
        (
            lambda: trace(lambda x: dropout(x, 1.0, []), {"x": 4}),
            "dropout: the rate must be in [0, 1), got 1.0",
        ),
    ],
)
def test_operands_that_do_not_fit(build: Callable[[], Program], text: str) -> None:
    with pytest.raises(ProgramError) as caught:
        build()
    assert str(caught.value) == text


def test_indices_outside() -> None:
    f = Frame(np.random.default_rng(0), np.array([2]), np.array([1]), 2)
    for name, bad, text in (
        ("pick", [0, 2], "pick: index 2 is outside 0..1"),
        ("take", [0, -1], "take from 'E': index -1 is outside 0..3"),
        ("scatter_rows", [0, 2], "scatter_rows: row 2 is outside the message's 0..1"),
    ):
        case = DIFFERENTIABLE[name](f)
        f.__post_init__()
        case.ints["i"] = np.array(bad)
        with pytest.raises(ProgramError) as caught:
            analytic(case, f, output_gradients(case, f))
        assert str(caught.value) == text


def test_a_product_leaves_what_is_not_finite_to_those_who_look_at_the_values() -> None:
    """Flags of BLAS kernels come from unused lanes, too: warnings (errors here) would name sound products."""
    program = trace(lambda p, x: x @ p.W, {"x": 2}, {"W": (2, 1)})
    x, w = np.array([[3e38, 3e38]], np.float32), np.array([[10.0], [-10.0]], np.float32)
    (y,) = program.run(RowContext(1, {"rows": 1}), [x], [], {"W": w})
    assert np.isnan(y).all()
