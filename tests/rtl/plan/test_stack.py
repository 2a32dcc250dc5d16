from __future__ import annotations

import pytest

from amphw.ir.errors import GraphError
from amphw.ir.expr import Field
from amphw.ir.functions import linear, take
from amphw.ir.primitives import ValueType
from amphw.ir.program import Program, trace
from amphw.rtl.fixed.lowering import lower_program
from amphw.rtl.fixed.program import FixedProgram
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.plan.stack import ParameterPlace, Stack, place

SHAPES = {"W": (3, 6), "b": (6,), "U": (3, 6), "v": (5,), "E": (7, 5)}


def fixed(program: Program) -> FixedProgram:
    return lower_program("n", program, ["value"] * len(program.inputs), Formats())


def test_a_bias_is_a_row_behind_its_matrix() -> None:
    program = trace(
        lambda p, x, y: [linear(x, p.W, p.b), x @ p.U, y + p.v, take(p.E, Field("i"))],
        {"x": 3, "y": 5},
        SHAPES,
    )

    places = place("n", fixed(program), lanes=4, base=100)

    assert places == {
        "W": ParameterPlace(100, 3, 6, 2, bias=True),
        "b": ParameterPlace(106, 0, 6, 2, bias=True),
        "U": ParameterPlace(108, 3, 6, 2, bias=False),
        "v": ParameterPlace(114, 0, 5, 2, bias=True),
        "E": ParameterPlace(116, 7, 5, 2, bias=False),
    }
    assert places["W"].beats == 8 and places["b"].beats == 2 and places["E"].beats == 14


def test_nodes_lie_one_behind_the_other() -> None:
    one = fixed(trace(lambda p, x: linear(x, p.W, p.b), {"x": 3}, {"W": (3, 6), "b": (6,)}))
    none = fixed(trace(lambda x: x, {"x": 3}))

    stack = Stack.of([("a", one), ("empty", none), ("c", one)], lanes=8)

    assert stack.places["a"]["W"].base == 0
    assert stack.places["empty"] == {}
    assert stack.places["c"]["W"].base == 4
    assert stack.beats == 8


def test_a_bias_of_two_matrices_is_refused() -> None:
    program = trace(
        lambda p, x, y: [linear(x, p.W, p.b), linear(y, p.U, p.b)],
        {"x": 3, "y": ValueType("float", "members", 3)},
        {"W": (3, 6), "U": (3, 6), "b": (6,)},
    )

    with pytest.raises(GraphError, match="node 'n': the bias 'b' is added to products with 'W' and 'U'"):
        place("n", fixed(program), 4)


def test_two_biases_of_a_matrix_are_refused() -> None:
    program = trace(
        lambda p, x: [linear(x, p.W, p.b), linear(x * x, p.W, p.c)],
        {"x": 3},
        {"W": (3, 6), "b": (6,), "c": (6,)},
    )

    with pytest.raises(GraphError, match="node 'n': the matrix 'W' is used with the biases 'b' and 'c'"):
        place("n", fixed(program), 4)
