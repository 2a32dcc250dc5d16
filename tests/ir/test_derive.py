"""What a derivative promises beyond its numbers: residuals, current parameters, subsets, inference."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.ir.derive import FEW_ROWS, accumulate, add_rows, differentiate, inference
from amphw.ir.errors import ProgramError
from amphw.ir.expr import Attr, Field
from amphw.ir.functions import dropout, linear, number, sigmoid, take, tanh
from amphw.ir.primitives import RowContext
from amphw.ir.program import Program, trace

ONE = RowContext(2, {"rows": 1})
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(2, 3)), RNG.normal(size=(2, 3))


def product() -> Program:
    return trace(lambda x, y: tanh(x) * y, {"x": 3, "y": 3})


def run_backward(
    program: Program,
    wrt: list[int] | None,
    inputs: list[np.ndarray],
    dy: list[np.ndarray],
    forward_params: dict[str, np.ndarray] | None = None,
    backward_params: dict[str, np.ndarray] | None = None,
) -> list[np.ndarray]:
    d = differentiate(program, wrt)
    got = d.forward.run(ONE, inputs, [], forward_params or {})
    n = len(program.outputs)
    kept = {"input": inputs, "output": got[:n], "value": got[n:]}
    residuals = [kept[kind][i] for kind, i in d.residuals]
    return d.backward.run(ONE, [*dy, *residuals], [], backward_params or {})


def test_gradients_of_some_inputs_only() -> None:
    dy = np.ones((2, 3))
    both = run_backward(product(), None, [X, Y], [dy])
    assert np.allclose(both[0], Y * (1 - np.tanh(X) ** 2)) and np.allclose(both[1], np.tanh(X))
    for wrt in ([0], [1], [1, 0], []):
        some = run_backward(product(), wrt, [X, Y], [dy])
        assert len(some) == len(wrt)
        assert all(np.array_equal(g, both[i]) for g, i in zip(some, wrt, strict=True))


def test_residuals_that_no_wanted_gradient_reads_are_not_kept() -> None:
    assert differentiate(product(), [0]).residuals == (("input", 1), ("value", 0))
    assert differentiate(product(), [1]).residuals == (("value", 0),)
    assert differentiate(product(), []).residuals == ()


def test_inputs_and_outputs_are_not_kept_twice() -> None:
    d = differentiate(trace(lambda x: sigmoid(x), {"x": 3}))
    assert d.residuals == (("output", 0),) and d.forward.outputs == (1,)
    d = differentiate(trace(lambda x: x * x, {"x": 3}))
    assert d.residuals == (("input", 0),)


def test_an_unused_input_gets_zeros() -> None:
    got = run_backward(trace(lambda x, y: x + 1.0, {"x": 3, "y": 2}), None, [X, Y[:, :2]], [X])
    assert np.array_equal(got[0], X) and got[1].shape == (2, 2) and not got[1].any()


def test_backward_uses_the_parameters_of_its_own_time() -> None:
    """dx through a weight that has been updated since: the new weight, but the old activations."""
    program = trace(lambda p, x: tanh(x @ p.W), {"x": 3}, {"W": (3, 2)})
    old, new = RNG.normal(size=(3, 2)), RNG.normal(size=(3, 2))
    dy = RNG.normal(size=(2, 2))
    got = run_backward(program, None, [X], [dy], {"W": old}, {"W": new})
    dz = dy * (1 - np.tanh(X @ old) ** 2)
    assert np.allclose(got[0], dz @ new.T)
    (term,) = differentiate(program).terms
    assert term.kind == "matmul" and term.a is not None
    assert np.allclose(got[term.a], X) and np.allclose(got[term.dz], dz)


def test_a_parameter_used_twice_has_two_terms() -> None:
    program = trace(lambda p, x: tanh(x @ p.W) @ p.W, {"x": 3}, {"W": (3, 3)})
    assert [t.param for t in differentiate(program).terms] == ["W", "W"]


def test_state_expressions_are_read_again_not_kept() -> None:
    program = trace(lambda p, x: take(p.E, Field("t")) * x, {"x": 3}, {"E": (4, 3)})
    d = differentiate(program)
    assert d.backward.ints == program.ints and all(kind != "int" for kind, _ in d.residuals)


def test_integer_outputs_take_no_gradient() -> None:
    program = trace(lambda x: (x * 2.0, x.builder.emit("argmax", [x])), {"x": 3})
    d = differentiate(program)
    assert d.float_outputs == (0,) and [n for n, _ in d.backward.inputs] == ["dy0"]


def test_a_transposed_product_logs_its_sides_the_other_way_round() -> None:
    program = trace(lambda p, x: x @ p.W.T, {"x": 3}, {"W": (2, 3)})
    d = differentiate(program)
    (term,) = d.terms
    assert term.a is not None and term.kind == "matmul"
    widths = d.backward.outputs_types[term.a].width, d.backward.outputs_types[term.dz].width
    assert widths == program.param("W").shape


def test_inference_drops_dropout() -> None:
    keys = [Attr("instance")]
    program = trace(
        lambda p, x: (
            linear(dropout(tanh(dropout(x, 0.5, keys)), 0.5, keys, seed=1), p.W) + number(x, Field("t"))
        ),
        {"x": 3},
        {"W": (3, 3)},
    )
    quiet = inference(program)
    assert "dropout" not in {i.op for i in quiet.instrs}
    assert len(quiet.instrs) == len(program.instrs) - 2
    # Operands keep their places, so an executor hands both programs the same ones.
    assert (quiet.inputs, quiet.ints, quiet.outputs_types) == (
        program.inputs,
        program.ints,
        program.outputs_types,
    )
    w = RNG.normal(size=(3, 3))
    ints = [np.array([2, 2]) if e == Field("t") else np.array([0, 1]) for e, _ in program.ints]
    (y,) = quiet.run(ONE, [X], ints, {"W": w})
    assert np.allclose(y, np.tanh(X) @ w + 2.0)
    assert len(quiet.types) == len(quiet.inputs) + len(quiet.ints) + len(quiet.instrs)


def test_inference_of_a_program_that_is_nothing_else() -> None:
    quiet = inference(trace(lambda x: dropout(x, 0.5, [Attr("instance")]), {"x": 3}))
    assert quiet.instrs == () and quiet.outputs == (0,)


def test_accumulate_adds_to_what_is_there() -> None:
    dz = np.ones((3, 2))
    g = np.full((4, 2), 1.0)
    accumulate("take", g, np.array([1, 1, 3]), dz)
    assert g.tolist() == [[1, 1], [3, 3], [1, 1], [2, 2]]
    g = np.zeros(2)
    accumulate("sum", g, None, dz)
    assert g.tolist() == [3, 3]
    g = np.zeros((1, 2))
    accumulate("matmul", g, np.array([[1.0], [2.0], [3.0]]), dz)
    assert g.tolist() == [[6, 6]]
    with pytest.raises(ProgramError, match=r"^unknown kind of gradient term 'mean'$"):
        accumulate("mean", g, None, dz)


@pytest.mark.parametrize("size", [1, 7, FEW_ROWS, FEW_ROWS + 1, 1000])
@pytest.mark.parametrize("count", [0, 1, 5, 300])
def test_rows_are_added_like_add_at(size: int, count: int) -> None:
    rng = np.random.default_rng(size + count)
    table = rng.normal(size=(size, 4)).astype(np.float32)
    index, rows = rng.integers(0, size, count), rng.normal(size=(count, 4)).astype(np.float32)
    expected = table.astype(np.float64)
    np.add.at(expected, index, rows)
    add_rows(table, index, rows)
    np.testing.assert_allclose(table, expected, rtol=1e-4, atol=1e-5)
