"""What an instance may lack when the model is to predict it: what figures alone depend on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.ir.errors import InstanceError

embed, head, branch = fe.Embedding(9, 4), fe.Linear(3), fe.Linear(4)


def same(
    compiled: fe.Compiled, bare: Any, whole: Any, *, sink: str = "loss", name: str = "prediction"
) -> None:
    """Without the answers the prediction is the same, and training refuses what lacks them."""
    expected = compiled.outputs(whole)[sink][name]
    np.testing.assert_array_equal(compiled.outputs(bare)[sink][name], expected)
    with pytest.raises(InstanceError, match="is missing|among its keys"):
        compiled.encode(bare)


def of_graph(x: Any) -> None:
    g = x.g
    h = embed(g.kind)
    fe.classify(head(h + fe.receive(fe.send(h, g), g)), g.answer)
    fe.regress(fe.sum_columns(fe.send(h, g)), g.weight, name="edges")
    fe.classify(head(fe.reduce(h)), g.whole, name="whole")


GRAPH = fe.Record(
    g=fe.Graph(
        {"kind": fe.Int(9), "answer": fe.Int(3)},
        {"weight": fe.Floats(1)},
        {"whole": fe.Int(3)},
        most_nodes=5,
        most_edges=9,
    )
)


def test_answers_of_nodes_edges_and_the_whole_of_a_graph() -> None:
    compiled = fe.compile(of_graph, GRAPH)
    given = {"kind": [1, 2, 8], "edges": [(0, 1), (2, 1), (1, 0)]}
    told = {"answer": [0, 2, 1], "weight": [[1.0], [2.0], [3.0]], "whole": 1}
    for sink in ("loss", "edges", "whole"):
        same(compiled, {"g": given}, {"g": given | told}, sink=sink)
    for left in told:
        compiled.outputs({"g": given | {k: v for k, v in told.items() if k != left}})
    with pytest.raises(InstanceError, match="g.kind is missing"):
        compiled.encode({"g": {"edges": [], "answer": [1, 2]}}, answered=False)
    with pytest.raises(InstanceError, match="g.other is not declared"):
        compiled.encode({"g": given | {"other": 1}}, answered=False)


def test_the_number_of_nodes_is_no_answer() -> None:
    def counted(x: Any) -> None:
        one = fe.number(x.g.position)
        fe.classify(head(one), x.g.answer)

    spec = fe.Record(g=fe.Graph({"answer": fe.Int(3)}, most_nodes=4, most_edges=4))
    compiled = fe.compile(counted, spec)
    assert compiled.outputs({"g": {"edges": [], "nodes": 3}})["loss"]["prediction"].shape == (3, 1)
    with pytest.raises(InstanceError, match="g.nodes is missing: the number of nodes"):
        compiled.outputs({"g": {"edges": []}})


def of_tree(x: Any) -> None:
    h = fe.fold_tree(embed(x.t.word), lambda left, right: branch(left, right), x.t)
    fe.classify(head(h), x.t.label)


TREE = fe.Record(t=fe.Tree({"word": fe.Int(9)}, {"label": fe.Int(3)}, most=5))
WHOLE = {
    "label": 1,
    "children": [
        {"label": 0, "word": 3},
        {"label": 2, "children": [{"label": 1, "word": 4}, {"label": 2, "word": 8}]},
    ],
}


@pytest.mark.parametrize(
    "bare",
    [
        {"children": [{"word": 3}, {"children": [{"word": 4}, {"word": 8}]}]},
        [3, [4, 8]],
        [{"word": 3}, [4, 8]],
        {"children": [[1, 2], [0, 3]], "word": [3, 4, 8]},
    ],
)
def test_answers_of_a_tree(bare: Any) -> None:
    same(fe.compile(of_tree, TREE), {"t": bare}, {"t": WHOLE})


def test_a_tree_has_the_answers_of_all_its_nodes_or_of_none() -> None:
    compiled = fe.compile(of_tree, TREE)
    with pytest.raises(InstanceError, match=r"t.children\[1\].label is missing"):
        compiled.encode({"t": {"label": 1, "children": [{"word": 1}, {"word": 2}]}}, answered=False)
    with pytest.raises(InstanceError, match=r"a node with parts is a dict"):
        compiled.encode({"t": [{"label": 1}, {"label": 2}]}, answered=False)


def test_a_leaf_that_is_its_answer_is_read() -> None:
    def model(x: Any) -> None:
        logits = head(embed(x.token))
        fe.classify(logits, x.label)
        fe.loss(fe.cross_entropy(logits, x.t.tag), name="tags")

    spec = fe.Record(t=fe.Tree({"tag": fe.Int(3)}, most=4), token=fe.Int(9), label=fe.Int(3))
    compiled = fe.compile(model, spec)
    assert compiled.answers >= {"t_tag", "label"}
    assert compiled.encode({"t": [1, 2], "token": 1}, answered=False).tables["t_tag"].tolist() == [1, 2]


# --- what is computed on the way to a figure ----------------------------------------------------------

TEXT = fe.Record(text=fe.Sequence(fe.Record(token=fe.Int(3), following=fe.Int(3)), most=6))
BARE, FULL = {"token": [1, 2, 0]}, {"token": [1, 2, 0], "following": [2, 0, 1]}


def outside(x: Any) -> None:
    logits = head(embed(x.text.token))
    losses = fe.cross_entropy(logits, x.text.following)
    right = fe.is_best(logits, x.text.following)
    fe.loss(losses * 0.5, p=fe.softmax(logits), accuracy=right)


def embedded(x: Any) -> None:
    y = embed(x.text.token)
    off = y - fe.Embedding(3, 4, name="wanted")(x.text.following)
    fe.loss(fe.sum_columns(off * off), p=y)


@pytest.mark.parametrize("model", [outside, embedded])
def test_what_is_computed_for_a_figure_alone_may_be_missing(model: Callable[[Any], None]) -> None:
    compiled = fe.compile(model, TEXT)
    assert compiled.answers == {"text_following"}
    same(compiled, {"text": BARE}, {"text": FULL}, name="p")


def hit(x: Any) -> None:
    logits = head(embed(x.text.token))
    fe.loss(fe.cross_entropy(logits, x.text.following), hit=fe.is_best(logits, x.text.following))


def hit_inside(x: Any) -> None:
    def function(y: Any, i: Any) -> list[Any]:
        return [fe.cross_entropy(y, i), fe.is_best(y, i)]

    fe.loss_of(function, head(embed(x.text.token)), x.text.following, reported=("hit",))


def routed(x: Any) -> None:
    logits = head(embed(x.text.token))
    wrong = fe.cond(x.text.following == 1, lambda y: y * 2.0, lambda y: y, logits)
    fe.loss(fe.cross_entropy(wrong, x.text.following), p=logits)


@pytest.mark.parametrize("model", [hit, hit_inside, routed])
def test_what_predictions_or_ways_depend_on_may_not(model: Callable[[Any], None]) -> None:
    compiled = fe.compile(model, TEXT)
    with pytest.raises(InstanceError, match=r"following is missing"):
        compiled.outputs({"text": BARE})
