"""Which rows of a table an instance may look up, found in two ways; which tables are sparse, and why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amphw.ir.expr import ROW, Attr, Const, Expr, Field, Table, table
from amphw.ir.functions import linear, take
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.nodes import PPT
from amphw.ir.program import ParamSpec, trace
from amphw.ir.sparse import Lookup, dense_tables, rows_read, sparse_parameters
from amphw.ir.state import FieldType, StateType
from amphw.models import get_model
from tests.ir.graphs import sequence, t

WORDS = np.array([7, 3, 7, 9], np.int32)
NONE, BY_WORD = StateType(()), StateType((FieldType("w", Attr("n"), 5),))


def looked_up(lookup: Lookup, n: int) -> Any:
    return lookup.numbers(Instance({"n": n}, {"words": WORDS})).tolist()


@pytest.mark.parametrize("n", [0, 2, 4])
@pytest.mark.parametrize(
    ("state", "rows", "at"), [(NONE, Attr("n"), ROW), (BY_WORD, Const(1), Field("w"))], ids=["rows", "states"]
)
def test_the_beginning_of_a_table_is_what_all_states_look_up(
    state: StateType, rows: Expr, at: Expr, n: int
) -> None:
    """The same index with nothing added takes the long way."""
    short, long = Lookup(Table("words", (at,)), state, rows), Lookup(Table("words", (at + 0,)), state, rows)
    assert looked_up(short, n) == looked_up(long, n) == WORDS[:n].tolist()


def test_states_outside_a_table_look_nothing_up() -> None:
    assert looked_up(Lookup(Table("words", (Field("w"),)), BY_WORD, Const(1)), 5) == WORDS.tolist()


def test_other_indices_are_looked_up_one_by_one() -> None:
    two = StateType((FieldType("w", Attr("n"), 5), FieldType("v", Const(2), 2)))
    assert looked_up(Lookup(Table("words", (Field("v"),)), two, Const(1)), 3) == [7, 3] * 3
    assert looked_up(Lookup(Table("words", (Field("w"),)), BY_WORD, Const(2)), 2) == [7, 7, 3, 3]
    assert looked_up(Lookup(Field("w"), BY_WORD, Const(1)), 3) == [0, 1, 2]


def test_a_language_model_reads_its_words_and_its_candidates() -> None:
    model = get_model("language-model")
    config = model.config(sentences=4, vocabulary=100, samples=8)
    instances = list(model.training(config, 0, 1, 4))
    parameters = sparse_parameters(model.graph(config))
    found = dict(
        zip([f"{p.node}.{p.name}" for p in parameters], rows_read(parameters, instances), strict=True)
    )
    words = {int(w) for each in instances for w in each.tables["words_word"]}
    outputs = {
        int(w) for each in instances for name in ("words_next", "candidates_words") for w in each.tables[name]
    }
    assert set(found["embed.E"].tolist()) == words
    assert set(found["output.W"].tolist()) == set(found["output.b"].tolist()) == outputs


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
