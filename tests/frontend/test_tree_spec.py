"""Trees as instances have them: how they are numbered, and what is refused, with the path of the node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.ir.errors import InstanceError
from tests.frontend.running import computed, declared

TREE = fe.Tree({"word": fe.Int(9)}, {"label": fe.Int(3)}, most=4)


def node(label: int, *children: Any) -> dict[str, Any]:
    return {"label": label, "children": list(children)}


def leaf(label: int, word: int) -> dict[str, Any]:
    return {"label": label, "word": word}


def test_a_tree_is_numbered_from_its_leaves_in_order_to_its_root() -> None:
    tree = node(2, leaf(0, 5), node(1, leaf(2, 6), leaf(1, 7)))
    nested = declared(TREE).encode(tree)
    columns = {"children": [[1, 2], [0, 3]], "word": [5, 6, 7], "label": [0, 2, 1, 1, 2]}
    flat = declared(TREE).encode(columns)
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
        (node(1, leaf(0, 1), leaf(0, 99)), r"instance 0: children\[1\].word is 99, allowed is 0..8"),
        (node(1, leaf(0, 1), {"label": 1}), r"instance 0: children\[1\].word is missing"),
        ({**node(1, leaf(0, 1), leaf(0, 1)), "word": 3}, "word is not declared for an inner node"),
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
        declared(TREE).encode(value)


def test_a_tree_too_large_is_refused() -> None:
    tree: Any = leaf(0, 1)
    for _ in range(4):
        tree = node(0, tree, leaf(0, 1))
    with pytest.raises(
        InstanceError, match="has more nodes than are allowed, which are 4 leaves and 7 nodes"
    ):
        declared(TREE).encode(tree)
    chain = [[0, 1], [2, 5], [3, 6], [4, 7]]
    with pytest.raises(InstanceError, match="has 5 leaves and 9 nodes, allowed are 4 and 7"):
        declared(TREE).encode({"children": chain, "word": [1] * 5, "label": [0] * 9})


def test_a_single_leaf_is_a_tree_and_a_chain_of_any_arity_too() -> None:
    assert declared(TREE).encode(leaf(1, 2)).attrs == {"leaves": 1, "nodes": 1}
    chain = declared(fe.Tree({"word": fe.Int(9)}, most=4, arity=0)).encode([[[3]]])
    assert chain.attrs == {"leaves": 1, "nodes": 4}


ANY = fe.Tree({"word": fe.Int(9)}, most=4, arity=0)


@pytest.mark.parametrize("arity", (0, 2))
def test_a_subtree_may_occur_twice_as_one_object(arity: int) -> None:
    spec = fe.Tree({"word": fe.Int(9)}, most=4, arity=arity)
    pair, alone = (1, 2), {"word": 3}
    for shared, apart in (
        ([pair, pair], [[1, 2], [1, 2]]),
        ([alone, alone], [3, 3]),
    ):
        one, other = declared(spec).encode(shared), declared(spec).encode(apart)
        assert {k: t.tolist() for k, t in one.tables.items()} == {
            k: t.tolist() for k, t in other.tables.items()
        }


def test_a_tree_that_holds_itself_is_refused() -> None:
    tree: list[Any] = [1]
    tree.append(tree)
    with pytest.raises(
        InstanceError, match="has more nodes than are allowed, which are 4 leaves and 7 nodes"
    ):
        declared(fe.Tree({"word": fe.Int(9)}, most=4)).encode(tree)


@pytest.mark.parametrize(
    "part,value",
    [
        (fe.Floats(2), [0.5, 1.5]),
        (fe.Floats(2), np.array([0.5, 1.5])),
        (fe.Sequence(fe.Int(9), most=3), [7, 8]),
    ],
)
def test_a_leaf_whose_part_is_a_list_is_a_tree(part: fe.Spec, value: Any) -> None:
    found = declared(fe.Tree({"x": part}, most=4)).encode({"x": value})
    assert found.attrs["leaves"] == found.attrs["nodes"] == 1
    assert list({**found.tables, **found.data}["x"].reshape(-1)) == list(value)


def test_a_leaf_alone_may_be_an_array_and_a_list_is_an_inner_node() -> None:
    m = declared(fe.Tree({"x": fe.Floats(2)}, most=4))
    assert m.encode([np.array([1.0, 2.0]), np.array([3.0, 4.0])]).data["x"].tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InstanceError, match=r"instance 0: \[0\]\[0\] has 1 number, expected 2"):
        m.encode([[1.0, 2.0], [3.0, 4.0]])


def test_columns_of_any_arity() -> None:
    columns = {"children": [[0, 1, 2], [3]], "word": [4, 5, 6]}
    one, other = declared(ANY).encode(columns), declared(ANY).encode([[4, 5, 6]])
    assert all(one.tables[k].tolist() == other.tables[k].tolist() for k in other.tables)


@pytest.mark.parametrize(
    "value,message",
    [
        ({"children": 3}, "children is 3, expected a sequence of nodes"),
        ({"children": [[0], 1], "word": [1, 2]}, "word is not declared for an inner node"),
        (
            {"children": np.array([0.5, 1.5]), "word": [1, 2]},
            r"children\[0\] is .*0.5.*, expected a sequence",
        ),
        ({"children": np.array([[0.5, 1.5]]), "word": [1, 2]}, "children is not a list of lists of numbers"),
        ({"children": [[0, 1]], "word": [1, 2, 3]}, "word has 3 values, the tree has 2"),
        ({"children": [[0, 1], []], "word": [1, 2]}, r"children\[1\] has 0 children, expected 1 or more"),
        ({"children": [[0, 1]], "word": [1, 99]}, r"word\[1\] is 99, allowed is 0..8"),
        ([[1, [2, 99]]], r"instance 0: \[0\]\[1\]\[1\] is 99, allowed is 0..8"),
        ([1, {"wort": 2}], r"instance 0: \[1\]\.word is missing"),
    ],
)
def test_a_tree_of_any_arity_that_does_not_fit_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        declared(ANY).encode(value)


def test_columns_of_pairs_are_pairs() -> None:
    columns = {"children": [[0, 1, 2]], "word": [1, 2], "label": [0, 0, 0]}
    with pytest.raises(InstanceError, match="children is not a list of pairs of numbers"):
        declared(TREE).encode(columns)


@pytest.mark.parametrize("arity", (0, 2))
def test_a_part_has_no_name_that_trees_have_themselves(arity: int) -> None:
    schema = declared(fe.Tree(most=3, arity=arity)).graph.schema
    for name in [*schema.tables, *schema.attrs, "leaf", "node", "children"]:
        with pytest.raises(fe.FrontendError, match=rf"\['{name}'\] of a tree's leaves and nodes need other"):
            fe.Tree({name: fe.Int(3)}, most=3, arity=arity)
        with pytest.raises(fe.FrontendError, match="need other names"):
            fe.Tree(node={name: fe.Int(3)}, most=3, arity=arity)


@pytest.mark.parametrize("most", (0, -1, 2.5, "3"))
def test_a_tree_has_leaves(most: Any) -> None:
    with pytest.raises(fe.FrontendError, match="`most`, the number of leaves, is"):
        fe.Tree({"word": fe.Int(3)}, most=most)


def test_parts_of_a_tree_have_names() -> None:
    with pytest.raises(fe.FrontendError, match="the parts of a tree's leaves are a dict"):
        fe.Tree(fe.Int(3), most=3)  # type: ignore[arg-type]


def test_a_shared_subtree_counts_as_often_as_it_occurs() -> None:
    spec = fe.Tree({"word": fe.Int(9)}, most=8)
    pair = [1, 2]

    def model(x: Any) -> Any:
        return fe.root(fe.fold_tree(fe.number(x.word), lambda left, right: left * 2.0 + right, x), x)

    y, _ = computed(model, spec, [pair, pair])
    assert y.item() == 2 * (2 * 1 + 2) + (2 * 1 + 2)
