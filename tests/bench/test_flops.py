"""Operations, counted on graphs whose number is known."""

from __future__ import annotations

import numpy as np

from amphw.bench.flops import count_flops
from amphw.ir.behaviour import MEMBER, StateMap
from amphw.ir.expr import Attr, Const, Field
from amphw.ir.functions import linear, sum_rows, take, tanh
from amphw.ir.graph import Graph
from amphw.ir.grouping import Group
from amphw.ir.instance import Instance, Schema
from amphw.ir.nodes import NPT, PPT, Loss, Source
from amphw.ir.primitives import ValueType
from amphw.ir.program import ParamSpec, trace
from amphw.ir.state import StateType, state_field
from amphw.models import get_model


def two_layers() -> Graph:
    """5 -> 7 -> 3, a row a message."""
    g = Graph("two", Schema(data={"x": 5}))
    g.add(Source("x", width=5, data="x"))
    for name, inner, outer in (("first", 5, 7), ("second", 7, 3)):
        params = {"W": (inner, outer), "b": ParamSpec("b", (outer,), "zeros")}
        g.add(PPT(name, trace(lambda p, x: linear(x, p.W, p.b), {"x": inner}, params)))
    g.add(NPT("tanh", trace(tanh, {"x": 7})))
    g.add(Loss("loss", trace(lambda y: sum_cols_squared(y), {"y": 3})))
    g.connect("x", "first", "tanh", "second", "loss")
    return g


def sum_cols_squared(y):
    from amphw.ir.functions import sum_cols

    return sum_cols(y * y)


def test_a_matrix_is_multiplied_three_times_and_the_first_one_twice() -> None:
    """Nobody upstream of the first layer has use for the gradient of its input."""
    one = Instance(data={"x": np.zeros((1, 5), np.float32)})
    flops = count_flops(two_layers(), [one], {"first": 10, "second": 10})
    first, second = 2 * 5 * 7, 2 * 7 * 3
    assert flops.forward == 10 * (first + second)
    assert flops.backward == 10 * (first + 2 * second)
    assert flops.per(10).total == 2 * first + 3 * second


def test_rows_of_other_spaces_are_counted_by_their_expression() -> None:
    """A classifier inside a Group: a message of it has as many rows as there are members."""
    count = Attr("n")
    n = state_field("n", count, 9)
    g = Graph("grouped", Schema(attrs={"n": 9}))
    g.add(Source("numbers", StateType((n,))))
    g.add(PPT("start", trace(lambda p, x: linear(zeros4(x), p.W), {"x": 0}, {"W": (4, 4)})))
    program = trace(
        lambda p, x: sum_rows(tanh(x @ p.W)), {"in": ValueType("float", "members", 4)}, {"W": (4, 6)}
    )
    together = StateMap(drop={"n": Field(MEMBER)})
    g.add(Group("head", together, member=Field("n"), count=count, program=program))
    g.add(Loss("loss", trace(sum_cols_squared, {"y": 6})))
    g.connect("numbers", "start", "head", "loss")
    instances = [Instance({"n": 3}), Instance({"n": 5})]
    flops = count_flops(g, instances, {"start": 8, "head": 2})
    assert flops.forward == 2 * 4 * 4 * 8 + 2 * 4 * 6 * 8
    assert flops.backward == 2 * 4 * 4 * 8 + 2 * 2 * 4 * 6 * 8


def zeros4(x):
    from amphw.ir.functions import zeros

    return zeros(x, 4)


def test_the_perceptron_of_the_papers() -> None:
    model = get_model("mnist")
    graph = model.graph(model.config())
    rows = dict.fromkeys(graph.parameterised, 1.0)
    flops = count_flops(graph, [], rows)
    hidden, last = 784 * 784, 784 * 10
    assert flops.forward == 2 * (3 * hidden + last)
    assert flops.backward == 2 * (5 * hidden + 2 * last)


def test_a_node_that_no_instance_reached_costs_nothing() -> None:
    assert count_flops(two_layers(), [], {}).total == 0


def test_an_embedding_is_no_product() -> None:
    """A row of the table goes into a product of 4 by 6: only that one counts."""
    n = state_field("n", Const(3), 3)
    g = Graph("words", Schema())
    g.add(Source("numbers", StateType((n,))))
    g.add(PPT("embed", trace(lambda p, x: take(p.E, Const(0)), {"x": 0}, {"E": (10, 4)})))
    g.add(PPT("head", trace(lambda p, x: x @ p.W, {"x": 4}, {"W": (4, 6)})))
    g.add(Loss("loss", trace(sum_cols_squared, {"y": 6})))
    g.connect("numbers", "embed", "head", "loss")
    assert count_flops(g, [], {"embed": 5, "head": 0}).total == 0
    flops = count_flops(g, [], {"embed": 5, "head": 5})
    assert (flops.forward, flops.backward) == (5 * 2 * 4 * 6, 2 * 5 * 2 * 4 * 6)


def test_a_folded_embedding_is_no_part_of_the_product() -> None:
    tokens = Instance({"length": 1, "batch": 1}, {"tokens": np.zeros((1, 1), int), "label": np.zeros(1, int)})
    model = get_model("list-reduction")
    graph = model.graph(model.config(hidden=8, embedding=4))
    flops = count_flops(graph, [tokens], {"cell": 1, "head": 0})
    assert (flops.forward, flops.backward) == (2 * 8 * 8, 2 * 2 * 8 * 8)
