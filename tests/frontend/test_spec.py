"""Instances: what is encoded, and what is refused, with the path of the part that does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.ir.errors import InstanceError


def compiled(spec: fe.Spec) -> fe.Compiled:
    """The specification with the least model that there is."""
    return fe.compile(lambda x: fe.loss(fe.Linear(1, name="any")(fe.constant(1, 1.0))), spec)


NESTED = fe.Record(
    words=fe.Sequence(fe.Record(word=fe.Int(9), letters=fe.Sequence(fe.Int(26), most=4)), most=3),
    label=fe.Int(2),
)


def words(*letters: list[int]) -> dict[str, Any]:
    return {"words": [{"word": 1, "letters": each} for each in letters], "label": 1}


def test_sequences_of_sequences_become_one_table_with_lengths_and_beginnings() -> None:
    found = compiled(NESTED).encode(words([3, 4], [5], [6, 7, 8]))
    assert found.attrs == {"words_length": 3, "words_letters_total": 6}
    assert {k: t.tolist() for k, t in found.tables.items()} == {
        "words_word": [1, 1, 1],
        "words_letters_length": [2, 1, 3],
        "words_letters_first": [0, 2, 3],
        "words_letters": [3, 4, 5, 6, 7, 8],
        "label": [1],
    }


def test_a_list_of_records_and_a_dict_of_columns_are_the_same() -> None:
    m = compiled(NESTED)
    columns = {"words": {"word": np.array([1, 1]), "letters": [[3, 4], [5]]}, "label": 1}
    one, other = m.encode(words([3, 4], [5])), m.encode(columns)
    assert one.attrs == other.attrs
    assert all((one.tables[k] == other.tables[k]).all() for k in one.tables)


@pytest.mark.parametrize(
    "value,message",
    [
        (words([3], [99]), r"instance 5: words\[1\].letters\[0\] is 99, allowed is 0..25"),
        (words([3, -1]), r"words\[0\].letters\[1\] is -1, allowed is 0..25"),
        (words([3, 1.5]), r"words\[0\].letters\[1\] is 1.5, expected an integer"),
        (words([3], []), r"words\[1\].letters has 0 items, allowed are 1..4"),
        (words([3], [1] * 5), r"words\[1\].letters has 5 items, allowed are 1..4"),
        (words(), r"words has 0 items, allowed are 1..3"),
        (words([1], [1], [1], [1]), r"words has 4 items, allowed are 1..3"),
        ({"words": [{"word": 1, "letters": [1]}]}, r"label is missing"),
        ({**words([1]), "more": 1}, r"more is not declared"),
        ({"words": "abc", "label": 0}, r"words is 'abc', expected a sequence"),
        ({"words": 3, "label": 0}, r"words is 3, expected a sequence"),
        ([1, 2], r"the instance is \[1, 2\], expected a dict"),
        ({"words": [{"word": 1}], "label": 0}, r"words\[0\].letters is missing"),
    ],
)
def test_an_instance_that_does_not_fit_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InstanceError, match=message + r".*\(declared at .*test_spec.py:\d+\)$"):
        compiled(NESTED).encode(value, number=5)


def test_floats_are_checked() -> None:
    m = compiled(fe.Record(xs=fe.Sequence(fe.Floats(2), most=3)))
    assert m.encode({"xs": [[1, 2], [3, 4]]}).data["xs"].tolist() == [[1, 2], [3, 4]]
    for value, message in (
        ([[1, 2], [3]], r"xs\[1\] is \[3\], expected 2 numbers"),
        ([[1, 2], [3, float("nan")]], r"xs\[1\] is .*, expected finite numbers"),
        ([[1, 2, 3]], r"xs\[0\] has 3 numbers, expected 2"),
    ):
        with pytest.raises(InstanceError, match=message):
            m.encode({"xs": value})


def test_parts_along_an_axis_agree() -> None:
    axis = fe.Axis("batch", 4)
    m = compiled(fe.Record(a=fe.Along(axis, fe.Int(3)), b=fe.Along(axis, fe.Int(3))))
    assert m.encode({"a": [0, 1], "b": [2, 2]}).attrs == {"batch": 2}
    with pytest.raises(InstanceError, match="b has 3 items, but 'batch' is 2 elsewhere"):
        m.encode({"a": [0, 1], "b": [2, 2, 0]})


# --- trees ---------------------------------------------------------------------------------------------

TREE = fe.Tree({"word": fe.Int(9)}, {"label": fe.Int(3)}, most=4)


def node(label: int, *children: Any) -> dict[str, Any]:
    return {"label": label, "children": list(children)}


def leaf(label: int, word: int) -> dict[str, Any]:
    return {"label": label, "word": word}


def test_a_tree_is_numbered_from_its_leaves_in_order_to_its_root() -> None:
    tree = node(2, leaf(0, 5), node(1, leaf(2, 6), leaf(1, 7)))
    nested = compiled(TREE).encode(tree)
    columns = {"children": [[1, 2], [0, 3]], "word": [5, 6, 7], "label": [0, 2, 1, 1, 2]}
    flat = compiled(TREE).encode(columns)
    assert nested.attrs == flat.attrs == {"leaves": 3, "nodes": 5}
    for name in nested.tables:
        assert nested.tables[name].tolist() == flat.tables[name].tolist(), name
    assert nested.tables["word"].tolist() == [5, 6, 7]
    assert nested.tables["parent"][:4].tolist() == [4, 3, 3, 4]


@pytest.mark.parametrize(
    "value,message",
    [
        (node(1, leaf(0, 1)), "has 1 children, expected 2"),
        (node(1), "has 0 children, expected 2"),
        (node(1, leaf(0, 1), leaf(0, 1), leaf(0, 1)), "has 3 children, expected 2"),
        (node(7, leaf(0, 1), leaf(0, 1)), "label is 7, allowed is 0..2"),
        (node(1, leaf(0, 1), leaf(0, 99)), r"\.1\.word is 99, allowed is 0..8"),
        (node(1, leaf(0, 1), {"label": 1}), r"\.1\.word is missing"),
        ({**node(1, leaf(0, 1), leaf(0, 1)), "word": 3}, "word is not declared for such a node"),
        ({"children": [[0, 1], [1, 2]], "word": [1, 2, 3], "label": [0] * 5}, "node 1 as a child 2 times"),
        (
            {"children": [[3, 1], [0, 2]], "word": [1, 2, 3], "label": [0] * 5},
            "a parent in front of its child",
        ),
        ({"children": [[0, 9]], "word": [1, 2], "label": [0] * 3}, "a child's number outside 0..2"),
        ({"children": [[0, 1]], "word": [1, 2, 3], "label": [0] * 3}, "word has 3 values, the tree has 2"),
    ],
)
def test_a_tree_that_does_not_fit_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        compiled(TREE).encode(value)


def test_a_tree_too_large_is_refused() -> None:
    tree: Any = leaf(0, 1)
    for _ in range(4):
        tree = node(0, tree, leaf(0, 1))
    with pytest.raises(InstanceError, match="has 5 leaves and 9 nodes, allowed are 4 and 7"):
        compiled(TREE).encode(tree)


def test_a_single_leaf_is_a_tree_and_a_chain_of_any_arity_too() -> None:
    assert compiled(TREE).encode(leaf(1, 2)).attrs == {"leaves": 1, "nodes": 1}
    chain = compiled(fe.Tree({"word": fe.Int(9)}, most=4, arity=0)).encode([[[3]]])
    assert chain.attrs == {"leaves": 1, "nodes": 4}


# --- graphs ---------------------------------------------------------------------------------------------

GRAPH = fe.Graph({"kind": fe.Int(4)}, {"weight": fe.Floats(1)}, most_nodes=4, most_edges=5, types=2)


def graph(edges: Any, kinds: Any = (0, 1, 2), types: Any = None, **more: Any) -> dict[str, Any]:
    count = len(edges)
    types = [0] * count if types is None else types
    return {
        "edges": edges,
        "kind": list(kinds),
        "type": types,
        "weight": [[float(i)] for i in range(count)],
        **more,
    }


def test_edges_are_sorted_by_type_and_source_with_what_belongs_to_them() -> None:
    found = compiled(GRAPH).encode(graph([(2, 0), (0, 1), (0, 1), (1, 1)], types=[0, 1, 0, 0]))
    assert found.tables["source"].tolist() == [0, 1, 2, 0]
    assert found.tables["target"].tolist() == [1, 1, 0, 1]
    assert found.data["weight"][:, 0].tolist() == [2, 3, 0, 1]
    assert found.tables["degree"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert found.tables["in_degree"].tolist() == [1, 3, 0]


@pytest.mark.parametrize(
    "value,message",
    [
        (graph([(0, 3)]), r"edges\[0\] is \(0, 3\), but there are 3 nodes"),
        (graph([(0, 1), (-1, 0)]), r"edges\[1\] is \(-1, 0\)"),
        (graph([[0, 1, 2], [1, 2, 0]]), "edges is no list of pairs"),
        (graph([0, 1]), "edges is no list of pairs"),
        (graph([(0, 1)], types=[2]), r"type\[0\] is 2, allowed is 0..1"),
        (graph([(0, 1)], types=[]), "type has 0 values, there are 1 edges"),
        (graph([], kinds=[]), "has no nodes"),
        (graph([], kinds=[0] * 5), "has 5 nodes, allowed are 4"),
        (graph([(0, 1)] * 6), "has 6 edges, allowed are 5"),
        (graph([(0, 1)], kinds=[0, 9]), r"kind\[1\] is 9, allowed is 0..3"),
        (graph([(0, 1)], colour=3), "colour is not declared"),
        ({"edges": []}, "is missing"),
        (7, "the instance is 7, expected a dict"),
    ],
)
def test_a_graph_that_does_not_fit_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        compiled(GRAPH).encode(value)
