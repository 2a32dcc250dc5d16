"""Which tables are sparse, and why others are not."""

from __future__ import annotations

from amphw.ir.expr import table
from amphw.ir.functions import linear, take
from amphw.ir.graph import Graph
from amphw.ir.nodes import PPT
from amphw.ir.program import ParamSpec, trace
from amphw.ir.sparse import dense_tables, sparse_parameters
from tests.ir.graphs import sequence, t


def tied() -> Graph:
    """`sequence`, with an embedding by which what was looked up is multiplied, too."""
    g = sequence()
    g.nodes["embed"] = PPT(
        "embed",
        trace(
            lambda p, x: linear(take(p.E, table("tokens")(t)), p.E),
            {"x": 0},
            {"E": ParamSpec("E", (5, 5), "normal:1")},
        ),
    )
    g.nodes["head"] = PPT("head", trace(lambda p, h: linear(h, p.W), {"h": 5}, {"W": (5, 5)}))
    return g


def test_a_table_that_is_only_looked_up_is_sparse() -> None:
    assert [(p.node, p.name) for p in sparse_parameters(sequence())] == [("embed", "E")]
    assert dense_tables(sequence()) == {}  # weights that are never looked up are no tables


def test_a_tied_table_is_dense_and_says_why() -> None:
    g = tied()
    assert sparse_parameters(g) == []
    assert dense_tables(g) == {"embed.E": "it is looked up, and also used as a whole (matmul)"}
