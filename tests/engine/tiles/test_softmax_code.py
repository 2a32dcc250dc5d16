"""What a loss over many classes goes through: each row as few times as it can."""

from __future__ import annotations

from amphw.ir.expr import Field
from amphw.ir.functions import argmax, concat, cross_entropy, exp, log_softmax, number, pick, softmax
from amphw.ir.program import Value
from tests.engine.tiles.test_tile_code import backward, forward, op_names

TRUE = Field("true")


def test_a_loss_reads_one_column_of_the_differences() -> None:
    """No row of logarithms is made for one of them, and the maximum is where `argmax` finds it."""

    def loss(x: Value) -> Value:
        return concat(cross_entropy(x, TRUE), number(x, argmax(x)))

    assert forward(loss, {"x": 30}) == [
        "rows:",
        "  i0 = Argmax(x0)",
        "  t0[0:1] = Pick(x0, i0)",
        "  t0[16:46] = ExpSubCol(x0, t0[0:1])",
        "  t0[48:49] = SumCols(t0[16:46])",
        "  t0[48:49] = Log(t0[48:49])",
        "  y0[1:2] = ToFloat(i0)",
        "  y0[0:1] = Pick(x0, i1)",
        "  y0[0:1] = Sub(y0[0:1], t0[0:1])",
        "  y0[0:1] = Sub(y0[0:1], t0[48:49])",
        "  y0[0:1] = Scale(y0[0:1], -1)",
    ]


def test_the_gradient_of_a_loss_is_changed_in_the_true_column() -> None:
    lines = backward(lambda x: cross_entropy(x, TRUE), {"x": 30})
    assert op_names(lines) == ["Scale", "Div", "MulCol", "AddAt"]
    assert lines[-1] == "  dx0 = AddAt(dx0, t0[0:1], i0)"


def test_a_softmax_that_is_read_as_a_whole_is_made() -> None:
    def both(x: Value) -> Value:
        y = log_softmax(x)
        return concat(y, pick(y, TRUE))

    assert op_names(forward(both, {"x": 5})).count("SubCol") == 2
    assert op_names(forward(softmax, {"x": 5})) == ["MaxCols", "ExpSubCol", "SumCols", "DivCol"]


def test_a_difference_that_somebody_else_reads_stays() -> None:
    names = op_names(forward(lambda x, y: concat(exp(x - y), x - y), {"x": 3, "y": 3}))
    assert names == ["Sub", "Exp"]
    assert op_names(forward(lambda x, y: exp(x - y), {"x": 3, "y": 3})) == ["ExpSub"]
