"""Layers that are cut into tiles: results stay as they were, and what cannot be cut says why."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from amphw.ir.check import infer
from amphw.ir.errors import GraphError
from amphw.ir.functions import concat, linear, relu, sum_cols, take
from amphw.ir.graph import Graph
from amphw.ir.instance import Schema
from amphw.ir.nodes import PPT, Concat, Loss, Source
from amphw.ir.passes import fuse, join, replicate, split, tile
from amphw.ir.program import Program, trace
from amphw.ir.serialise import fingerprint, graph_from_json, graph_to_json
from amphw.models.list_reduction import ListReductionConfig
from amphw.models.mnist import MnistConfig
from tests.graphs.cases import Case
from tests.ir.pass_checks import (
    ALL,
    DIGITS,
    LISTS,
    SMALL_DIGITS,
    SMALL_LISTS,
    assert_same,
    cases,
    drawn,
    graph_of,
    run,
    seeds,
    some,
)


def tileable(case: Case) -> list[str]:
    out = []
    for name in graph_of(case).parameterised:
        try:
            tile(graph_of(case), 2, [name])
        except GraphError:
            continue
        out.append(name)
    return out


@some
@given(cases, seeds, st.integers(2, 3), st.data())
def test_tile(case: Case, seed: int, n: int, data: st.DataObject) -> None:
    before = graph_of(case)
    names = [
        name
        for name in tileable(case)
        if all(p.shape[-1] >= n for p in before.nodes[name].params) and not before.replicas
    ]
    assume(names)
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    after = tile(before, n, chosen)
    values = drawn(before, seed)
    tiled = split(before, after, values)
    assert_same(join(before, after, tiled), values)
    losses, gradients = run(before, case, values)
    found, theirs = run(after, case, tiled)
    assert found == pytest.approx(losses, rel=1e-10)
    assert_same(join(before, after, theirs), gradients)


def test_there_is_something_to_tile() -> None:
    assert sum(bool(tileable(case)) for case in ALL) >= 15


def test_wide_layers_are_tiled_and_narrow_ones_left() -> None:
    graph = DIGITS.graph(MnistConfig(width=70, batch=2))
    after = tile(graph, 4)
    widths = [after.nodes[f"linear1_{k}"].params[0].shape for k in range(4)]
    assert widths == [(784, 17), (784, 18), (784, 17), (784, 18)]
    assert "linear4" in after.nodes and isinstance(after.nodes["linear3_joined"], Concat)
    infer(after)
    assert fingerprint(graph_from_json(graph_to_json(after))) == fingerprint(after)


def test_a_tile_does_what_follows_column_by_column() -> None:
    graph = tile(fuse(DIGITS.graph(SMALL_DIGITS)), 2, ["linear1"])
    program = graph.nodes["linear1_1"].program  # type: ignore[attr-defined]
    assert [i.op for i in program.instrs] == ["matmul", "row_param", "add", "relu"]


def test_copies_of_a_node_are_tiled_together() -> None:
    graph = replicate(DIGITS.graph(SMALL_DIGITS), "linear2", 2)
    after = tile(graph, 2, ["linear2_0", "linear2_1"])
    assert after.replicas == [("linear2_0_0", "linear2_1_0"), ("linear2_0_1", "linear2_1_1")]
    with pytest.raises(GraphError, match="linear2_1: copies of a node are tiled together"):
        tile(graph, 2, ["linear2_0"])


@pytest.mark.parametrize(
    ("n", "nodes", "message"),
    [
        (1, None, "1 tiles: a layer is cut into 2 or more"),
        (2, ["linear9"], "linear9: there is no such node"),
        (2, ["relu1"], "relu1: only a node that computes one output can be tiled"),
        (11, ["linear4"], "linear4: it has 10 columns, too few for 11 tiles"),
        (2, None, "linear1: it has 6 columns; a layer counts as wide from 64 on"),
    ],
)
def test_what_cannot_be_tiled_says_why(n: int, nodes: list[str] | None, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        tile(DIGITS.graph(SMALL_DIGITS), n, nodes)


def _alone(program: Program) -> Graph:
    """A graph of one such node, `cell`, between a source and a loss."""
    width = program.inputs[0][1].width
    g = Graph("alone", Schema(data={"x": width}))
    g.add(Source("x", width=width, data="x"))
    g.add(PPT("cell", program))
    g.add(Loss("loss", trace(sum_cols, {"y": program.outputs_types[0].width})))
    g.connect("x", "cell", "loss")
    return g


def test_a_program_that_mixes_columns_is_not_tiled() -> None:
    looked_up = trace(
        lambda p, h: relu(linear(concat(take(p.E, 0), h), p.W)), {"h": 4}, {"E": (3, 4), "W": (8, 6)}
    )
    with pytest.raises(GraphError, match="cell: every tile would need all of its parameter E"):
        tile(_alone(looked_up), 2, ["cell"])
    with pytest.raises(GraphError, match="cell: behind its parameters .*|cell: the columns of its parameter"):
        tile(LISTS.graph(SMALL_LISTS["gru"]), 2, ["cell"])


def test_a_layer_that_looks_a_table_up_is_tiled_by_its_rows() -> None:
    """A tile is sent its columns of h alone, and begins with numbers as large as those of the whole."""
    graph = LISTS.graph(ListReductionConfig(hidden=9, embedding=6, batch=1))
    after = tile(graph, 2, ["cell"])
    infer(after)
    shapes = [{p.name: p.shape for p in after.nodes[f"cell_{k}"].params} for k in range(2)]
    assert shapes == [
        {"E": (graph.nodes["cell"].params[0].shape[0], 3), "W": (7, 9), "b": (9,)},
        {"E": (graph.nodes["cell"].params[0].shape[0], 3), "W": (8, 9)},
    ]
    assert [after.nodes[f"cell_{k}"].program.inputs[0][1].width for k in range(2)] == [4, 5]  # type: ignore[attr-defined]
    (whole,) = (p for p in graph.nodes["cell"].params if p.name == "W")
    (part,) = (p for p in after.nodes["cell_1"].params if p.name == "W")
    rng = np.random.default_rng(1)
    limit = np.abs(whole.initial(rng)).max()
    assert 0.9 * limit < np.abs(part.initial(rng)).max() <= np.sqrt(6 / sum(whole.shape))
    with pytest.raises(GraphError, match="cell: every tile would need"):
        tile(graph, 7, ["cell"])  # the table has 6 columns
