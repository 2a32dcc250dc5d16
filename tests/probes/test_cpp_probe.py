"""Programs, expressions and key spaces compiled by `cpp_probe` agree with the definitions in Python."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from amphw.ir.check import infer
from amphw.ir.derive import differentiate
from amphw.ir.expr import (
    ROW,
    Attr,
    Expr,
    Field,
    evaluate,
    fields_of,
    lift,
    maximum,
    minimum,
    mixed,
    table,
    where,
)
from amphw.ir.functions import concat, linear, lstm, relu, sigmoid, take, tanh
from amphw.ir.instance import Instance
from amphw.ir.primitives import RowContext
from amphw.ir.program import Params, Program, Value, trace
from amphw.ir.state import Columns, KeySpace, StateType, state_field
from tests.graphs.cases import Case, each_case
from tests.probes.cpp_probe import (
    Names,
    address_functions,
    compile_library,
    expression_function,
    program_function,
)

COMPILER = shutil.which("g++")
pytestmark = pytest.mark.skipif(
    COMPILER is None, reason="g++ is not installed; the probe has nothing to compile with"
)

ROWS = 37


def pointers(arrays: Sequence[np.ndarray | None]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * max(1, len(arrays)))(
        *(a.ctypes.data if a is not None else None for a in arrays)
    )


def integer(library: ctypes.CDLL, name: str) -> Callable[..., int]:
    """A compiled function that returns int64 (ctypes assumes int unless it is told)."""
    function = library[name]
    function.restype = ctypes.c_int64
    return function


# --- programs -----------------------------------------------------------------------------------


def _relu_cell(p: Params, x: Value, h: Value) -> Value:
    return relu(linear(concat(x, h), p.W, p.b))


def _lstm_cell(p: Params, x: Value, h: Value, c: Value) -> list[Value]:
    return list(lstm(linear(concat(x, h), p.W, p.b), c))


def _embedded(p: Params, h: Value) -> Value:
    gate = sigmoid(h @ p.U)
    return tanh(take(p.E, table("tokens")(Field("t"), ROW)) * gate) * 0.5 + 1.0


CELLS: dict[str, Program] = {
    "relu": trace(_relu_cell, {"x": 3, "h": 5}, {"W": (8, 5), "b": (5,)}),
    "lstm": trace(_lstm_cell, {"x": 3, "h": 4, "c": 4}, {"W": (7, 16), "b": (16,)}),
    "embedded": trace(_embedded, {"h": 6}, {"U": (6, 2), "E": (9, 2)}),
}


def _run_compiled(
    library: ctypes.CDLL,
    name: str,
    program: Program,
    operands: Sequence[np.ndarray],
    params: dict[str, np.ndarray],
) -> list[np.ndarray]:
    kept = [np.ascontiguousarray(a) for a in operands]
    weights = [np.ascontiguousarray(params[p.name]) for p in program.params]
    outputs = [
        np.full((ROWS, t.width), np.nan, np.float32) if t.kind == "float" else np.full(ROWS, -1, np.int64)
        for t in program.outputs_types
    ]
    getattr(library, name)(ctypes.c_int64(ROWS), pointers(kept), pointers(weights), pointers(outputs))
    return outputs


@pytest.mark.parametrize("cell", CELLS)
def test_a_program_and_its_backward_program_compile(cell: str, tmp_path: Path) -> None:
    derivative = differentiate(CELLS[cell])
    forward, backward = derivative.forward, derivative.backward
    library = compile_library(
        [program_function("forward", forward), program_function("backward", backward)], tmp_path
    )
    rng = np.random.default_rng(0)
    context = RowContext(ROWS, {"rows": 1})

    def columns(program: Program, first: int = 0) -> list[np.ndarray]:
        inputs = program.inputs[first:]
        return [rng.normal(size=(ROWS, t.width)).astype(np.float32) for _, t in inputs]

    params = {p.name: rng.normal(size=p.shape).astype(np.float32) for p in forward.params}
    tokens = [rng.integers(0, 9, ROWS) for _ in forward.ints]
    inputs = columns(forward)
    expected = forward.run(context, inputs, tokens, params)
    got = _run_compiled(library, "forward", forward, [*inputs, *tokens], params)
    _agree(expected, got)

    kept = {"input": inputs, "output": expected, "value": expected[len(CELLS[cell].outputs) :]}
    residuals = [kept[kind][i] for kind, i in derivative.residuals]
    dy = [rng.normal(size=expected[k].shape).astype(np.float32) for k in derivative.float_outputs]
    assert len(dy) + len(residuals) == len(backward.inputs)
    by_expression = dict(zip(forward.ints, tokens, strict=True))
    operands = [by_expression[i] for i in backward.ints]
    expected = backward.run(context, [*dy, *residuals], operands, params)
    got = _run_compiled(library, "backward", backward, [*dy, *residuals, *operands], params)
    _agree(expected, got)


def _agree(expected: Sequence[np.ndarray], got: Sequence[np.ndarray]) -> None:
    assert len(expected) == len(got) > 0
    for e, g in zip(expected, got, strict=True):
        np.testing.assert_allclose(g, e, rtol=2e-5, atol=2e-6)


# --- expressions --------------------------------------------------------------------------------


class Bound:
    """An instance in the form that the compiled functions read."""

    def __init__(self, instance: Instance, attrs: Sequence[str]):
        self.attrs = np.array([instance.attr(a) for a in attrs], dtype=np.int64)
        self.tables = [
            np.concatenate([t.shape, t.ravel()]).astype(np.int64) for t in instance.tables.values()
        ]
        self.pointers = pointers(self.tables)

    def evaluate(self, function: Callable[..., int], states: np.ndarray) -> np.ndarray:
        """function over states int64 [n, fields] -> int64 [n]."""
        attrs = self.attrs.ctypes.data_as(ctypes.c_void_p)
        rows = [np.ascontiguousarray(s) for s in states]
        return np.array([function(s.ctypes.data_as(ctypes.c_void_p), attrs, self.pointers) for s in rows])


def _names(state: Sequence[str], instance: Instance) -> Names:
    fields = {name: f"fields[{d}]" for d, name in enumerate(state)}
    return Names(fields, ["instance", *instance.attrs], {n: t.ndim for n, t in instance.tables.items()})


def test_every_operator_compiles(tmp_path: Path) -> None:
    a, b = Field("a"), Field("b")
    wordy = where(b.ne(0), a // where(b.eq(0), 1, b), a - Attr("size")) % 7
    expressions: list[Expr] = [
        a + b * 3 - Attr("size"),
        a // 3 + (a - 50) // -4,
        (a - 50) % 7 + (a - 50) % -7,
        wordy,
        lift(1) - (a < b) + (a <= b) * 2 + (a > b) * 4 + (a >= b) * 8 + a.eq(b) * 16 + a.ne(b) * 32,
        minimum(a, b * 2) - maximum(a - 9, b),
        mixed(a * 977 + b, 0x1234567),
        mixed(a - 60, 3) % 5,
        table("grid")(a % 4, b % 3) + table("line")(where(a < 5, a, 0)),
    ]
    rng = np.random.default_rng(1)
    instance = Instance({"size": 41}, {"grid": rng.integers(-9, 9, (4, 3)), "line": rng.integers(0, 99, 5)})
    names = _names(("a", "b"), instance)
    library = compile_library(
        [expression_function(f"e{i}", e, names) for i, e in enumerate(expressions)], tmp_path
    )
    states = np.stack([rng.integers(0, 100, 200), rng.integers(0, 20, 200)], axis=1)
    bound = Bound(instance, names.attrs)
    for i, e in enumerate(expressions):
        expected = evaluate(e, Columns(instance, {"a": states[:, 0], "b": states[:, 1]}, len(states)))
        np.testing.assert_array_equal(
            bound.evaluate(integer(library, f"e{i}"), states), expected, err_msg=str(e)
        )


@each_case()
def test_what_the_graphs_compute_on_states_compiles(case: Case, tmp_path: Path) -> None:
    """Guards, new states, counts and row counts of every node, on every state that the instances can hold."""
    instances = case.instances()
    work: list[tuple[StateType, Expr]] = []
    for b in infer(case.build()).behaviours.values():
        found = [e for m in b.emits for _, e in m.state] + [m.guard for m in b.emits if m.guard is not None]
        found += [r.count for r in b.receives if r.count is not None] + [e for _, e in b.spaces]
        work += [(b.state, e) for e in found if fields_of(e) <= set(b.state.names)]
    functions = [
        expression_function(f"e{i}", e, _names(state.names, instances[0]))
        for i, (state, e) in enumerate(work)
    ]
    library = compile_library(functions, tmp_path)
    for instance in instances:
        bound = Bound(instance, _names((), instance).attrs)
        for i, (state, e) in enumerate(work):
            space = KeySpace(state, instance)
            states = (
                np.stack([space.columns[n] for n in state.names], axis=1) if state.names else np.zeros((1, 0))
            )
            got = bound.evaluate(integer(library, f"e{i}"), states.astype(np.int64))
            np.testing.assert_array_equal(got, evaluate(e, space.env()), err_msg=str(e))


# --- addresses ----------------------------------------------------------------------------------


w, c, s = Field("w"), Field("c"), Field("s")
CHARACTERS = state_field("c", table("letters")(w), 9)
SPACES: dict[str, StateType] = {
    "flat": StateType((state_field("w", Attr("words"), 9), state_field("s", 3))),
    "ragged": StateType((state_field("w", Attr("words"), 9), CHARACTERS)),
    "flat_inside_ragged": StateType((state_field("w", Attr("words"), 9), CHARACTERS, state_field("s", 2))),
    "ragged_twice": StateType((state_field("w", Attr("words"), 9), CHARACTERS, state_field("s", c + 1, 9))),
    "outer": StateType((state_field("s", 2), state_field("w", Attr("words"), 9), CHARACTERS)),
    "one": StateType(),
}


def _words(letters: list[int]) -> Instance:
    return Instance({"words": len(letters)}, {"letters": np.array(letters)})


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The functions of every space: no instance's numbers are in them, only the names of its tables."""
    names = _names((), _words([1]))
    functions = [address_functions(name, state, names) for name, state in SPACES.items()]
    return compile_library(functions, tmp_path_factory.mktemp("addresses"))


@pytest.mark.parametrize("letters", [[3, 1, 4, 0, 5], [2, 2, 2], [0, 0], [6]], ids=str)
@pytest.mark.parametrize("name", SPACES)
def test_dense_addresses_compile(name: str, letters: list[int], addresses: ctypes.CDLL) -> None:
    instance = _words(letters)
    state = SPACES[name]
    names = _names((), instance)
    space = KeySpace(state, instance)
    outer = [KeySpace(StateType(state.fields[:d]), instance).size for d in range(len(state.fields))]
    sums = [
        np.full(n, -1, np.int64) if fields_of(f.extent) else None
        for n, f in zip(outer, state.fields, strict=True)
    ]
    bound, prefix = Bound(instance, names.attrs), pointers(sums)
    attrs = bound.attrs.ctypes.data_as(ctypes.c_void_p)
    fill, address = integer(addresses, f"{name}_fill"), integer(addresses, name)
    assert fill(attrs, bound.pointers, prefix) == space.size
    for i in range(space.size):
        fields = np.array([space.columns[n][i] for n in state.names], dtype=np.int64)
        at = address(fields.ctypes.data_as(ctypes.c_void_p), attrs, bound.pointers, prefix)
        assert at == i == space.address({n: space.columns[n][i : i + 1] for n in state.names}, 1)[0]
