"""Trees and graphs within sequences: how they are stored, and models that go over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.ir.errors import InstanceError
from tests.frontend.running import computed, declared

RNG = np.random.default_rng(6)
TREE = {"x": fe.Floats(3)}
DOCUMENT = fe.Record(said=fe.Sequence(fe.Record(tree=fe.Tree(TREE, most=4), who=fe.Int(4)), most=4, least=0))
GRAPH = fe.Graph({"x": fe.Floats(3)}, {"w": fe.Floats(1)}, {"at": fe.Int(4)}, most_nodes=4, most_edges=6)
FILM = fe.Record(scenes=fe.Sequence(GRAPH, most=4, least=0))


def leaf() -> Any:
    return {"x": RNG.normal(size=3)}


def trees() -> list[Any]:
    return [[leaf(), [leaf(), leaf()]], leaf(), [[leaf(), leaf()], [leaf(), leaf()]]]


def graph(nodes: int, edges: list[tuple[int, int]]) -> Any:
    weights = RNG.normal(size=(len(edges), 1))
    return {"x": RNG.normal(size=(nodes, 3)), "edges": edges, "w": weights, "at": nodes % 4}


SAID = [{"tree": t, "who": k} for k, t in enumerate(trees())]
SCENES = [graph(2, [(1, 0), (0, 1), (0, 0)]), graph(1, []), graph(4, [(3, 1), (0, 1), (2, 3)])]


def folded(tree: Any, carry: Any = 0.0) -> np.ndarray:
    """The root's value where leaves and branches begin with what is carried."""
    if isinstance(tree, dict):
        return tree["x"] + carry
    return np.tanh(folded(tree[0], carry) - 0.5 * folded(tree[1], carry) + carry)


def heard(g: Any, h: np.ndarray) -> np.ndarray:
    sums = np.zeros_like(h)
    for (source, target), weight in zip(g["edges"], g["w"], strict=True):
        sums[target] += h[source] * weight
    return sums


def test_trees_lie_one_behind_the_other_each_with_numbers_of_its_own() -> None:
    e = declared(DOCUMENT).encode({"said": SAID})
    assert e.attrs == {"said_length": 3, "said_tree_all_leaves": 8, "said_tree_all_nodes": 13}
    assert e.tables["said_tree_leaves"].tolist() == [3, 1, 4]
    assert e.tables["said_tree_first_nodes"].tolist() == [0, 5, 6]
    assert e.tables["said_tree_parent"].tolist() == [4, 3, 3, 4, 0, 0, 4, 4, 5, 5, 6, 6, 0]
    assert e.tables["said_tree_child"].tolist() == [[1, 2], [0, 3], [0, 1], [2, 3], [4, 5]]
    assert len(e.data["said_tree_x"]) == 8
    nothing = declared(DOCUMENT).encode({"said": []})
    assert nothing.tables["said_tree_child"].shape == (0, 2) and nothing.data["said_tree_x"].shape == (0, 3)


def test_graphs_lie_one_behind_the_other_each_with_numbers_of_its_own() -> None:
    e = declared(FILM).encode({"scenes": SCENES})
    assert e.tables["scenes_first_edges"].tolist() == [0, 3, 3]
    assert e.tables["scenes_source"].tolist() == [0, 0, 1, 0, 2, 3]
    assert e.tables["scenes_of_type"].tolist() == [[3], [0], [3]]
    assert e.tables["scenes_degree"].tolist() == [[2, 1, 0, 1, 0, 1, 1]]
    np.testing.assert_allclose(e.data["scenes_w"][:3, 0], SCENES[0]["w"][[1, 2, 0], 0], rtol=1e-6)
    assert declared(FILM).encode({"scenes": []}).tables["scenes_of_type"].shape == (0, 1)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_tree_in_the_body_of_a_scan_reads_what_is_carried(reverse: bool) -> None:
    def model(x: Any) -> Any:
        def body(carry: Any, item: Any) -> Any:
            above = lambda a, b: fe.tanh(a - b * 0.5 + carry)  # noqa: E731
            h = fe.fold_tree(lambda leaf: leaf.x + carry, above, item.tree)
            carry = fe.root(h, item.tree) + fe.number(item.who)
            return carry, fe.reduce(h, over=item.tree.nodes)

        end, sums = fe.scan(body, fe.constant(3), x.said, reverse=reverse)
        return fe.concat(end, fe.reduce(sums))

    found, _ = computed(model, DOCUMENT, {"said": SAID})
    carry = np.zeros(3)
    for item in SAID[::-1] if reverse else SAID:
        carry = folded(item["tree"], carry) + item["who"]
    np.testing.assert_allclose(found[0][:3], carry, atol=1e-6)


def test_trees_that_nothing_is_carried_to_are_folded_at_once() -> None:
    def model(x: Any) -> Any:
        tree = x.said.tree
        h = fe.fold_tree(tree.x, lambda a, b: fe.tanh(a - b * 0.5), tree)
        return fe.root(h, tree) * 1.0

    found, _ = computed(model, DOCUMENT, {"said": SAID})
    np.testing.assert_allclose(found, [folded(item["tree"]) for item in SAID], atol=1e-6)


def test_trees_of_any_arity_in_sequences_of_sequences_and_backwards() -> None:
    spec = fe.Record(pages=fe.Sequence(fe.Sequence(fe.Tree(TREE, most=4, arity=0), 3, 0), most=3))

    def model(x: Any) -> Any:
        def sentence(carry: Any, tree: Any) -> Any:
            above = lambda children: fe.tanh(fe.reduce(children) * 0.5 + carry)  # noqa: E731
            return fe.root(fe.fold_tree(lambda leaf: leaf.x + carry, above, tree), tree)

        page = lambda carry, sentences: fe.fold(sentence, carry, sentences, reverse=True)  # noqa: E731
        return fe.fold(page, fe.constant(3), x.pages, reverse=True)

    def folded(tree: Any, carry: np.ndarray) -> Any:
        if isinstance(tree, dict):
            return tree["x"] + carry
        return np.tanh(sum(folded(child, carry) for child in tree) * 0.5 + carry)

    pages = [[trees()[0], [leaf(), leaf(), leaf()]], [], [[leaf()], leaf(), trees()[2]]]
    found, _ = computed(model, spec, {"pages": pages})
    carry = np.zeros(3)
    for page in pages[::-1]:
        for tree in page[::-1]:
            carry = folded(tree, carry)
    np.testing.assert_allclose(found[0], carry, atol=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("form", ["messages", "rows"])
def test_a_graph_in_the_body_of_a_scan_begins_with_what_is_carried(form: str, reverse: bool) -> None:
    def model(x: Any) -> Any:
        def body(carry: Any, g: Any) -> Any:
            h = fe.message_passing(
                g.x + carry, g, fe.tanh, lambda h, r: fe.tanh(h * 0.5 + r), steps=2, form=form
            )
            h = h + fe.receive(fe.send(h, g) * g.w, g)
            return fe.reduce(h, "mean", over=g.nodes) + fe.number(g.at), None

        return fe.scan(body, fe.constant(3), x.scenes, reverse=reverse)[0]

    found, _ = computed(model, FILM, {"scenes": SCENES})
    carry = np.zeros(3)
    for g in SCENES[::-1] if reverse else SCENES:
        h, plain = g["x"] + carry, g | {"w": np.ones((len(g["edges"]), 1))}
        for _ in range(2):
            h = np.tanh(h * 0.5 + heard(plain, np.tanh(h)))
        carry = (h + heard(g, h)).mean(axis=0) + g["at"]
    np.testing.assert_allclose(found[0], carry, atol=1e-6)


@pytest.mark.parametrize("which", [lambda x: x.scenes, lambda x: x.scenes.item], ids=["all", "item"])
def test_graphs_of_a_sequence_are_passed_over_at_once_by_attention_too(which: Any) -> None:
    def model(x: Any) -> Any:
        g = which(x)
        scores = fe.softmax(fe.sum_columns(fe.send(g.x * 1.0, g)) * g.w, over=g)
        return fe.reduce(fe.receive(fe.send(g.x * 1.0, g) * scores, g), over=g.nodes)

    found, _ = computed(model, FILM, {"scenes": SCENES})
    for g, each in zip(SCENES, found, strict=True):
        expected = np.zeros(3)
        for node in range(len(g["x"])):
            into = [(s, w[0]) for (s, t), w in zip(g["edges"], g["w"], strict=True) if t == node]
            powers = [np.exp(g["x"][s].sum() * w) for s, w in into]
            expected += sum(
                (p / sum(powers) * g["x"][s] for p, (s, _) in zip(powers, into, strict=True)), np.zeros(3)
            )
        np.testing.assert_allclose(each, expected, atol=1e-6)


@pytest.mark.parametrize(
    "spec,value,message",
    [
        (DOCUMENT, {"said": [SAID[0], {"tree": [leaf()], "who": 0}]}, r"said\[1\].tree has 1 children"),
        (
            DOCUMENT,
            {"said": [SAID[0], {"tree": [leaf(), {"x": [1, 2]}], "who": 0}]},
            r"said\[1\].tree\[1\].x",
        ),
        (
            FILM,
            {"scenes": [SCENES[0], SCENES[1] | {"edges": [(0, 3)]}]},
            r"scenes\[1\].edges\[0\] is \(0, 3\)",
        ),
        (
            FILM,
            {"scenes": [*SCENES[:2], SCENES[2] | {"w": [[1.0]]}]},
            r"scenes\[2\].w has 1 values, expected 3",
        ),
        (FILM, {"scenes": [SCENES[0] | {"at": 9}]}, r"scenes\[0\].at is 9"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(spec: fe.Spec, value: Any, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        declared(spec).encode(value)


def test_parts_of_a_tree_or_a_graph_have_no_names_that_sequences_have_themselves() -> None:
    for item in (
        fe.Tree({"length": fe.Int(3)}, most=3),
        fe.Graph(whole={"item": fe.Int(3)}, most_nodes=2, most_edges=2),
    ):
        with pytest.raises(fe.FrontendError, match="need other names"):
            fe.Sequence(item, most=3)


FORGOTTEN: dict[str, tuple[Any, str]] = {
    "the root": (
        lambda c, tree, all_: fe.fold_tree(lambda leaf: leaf.x + c, lambda a, b: a + b, tree),
        "what this loop carries would have a value for each n.* of its item, .* or the root of a tree",
    ),
    "the item": (
        lambda c, tree, all_: fe.root(fe.fold_tree(tree.x * 1.0, lambda a, b: a + b, all_), all_),
        "the tree 'trees' is folded from values of its leaves, .* read a part of this very tree",
    ),
}


@pytest.mark.parametrize("what", FORGOTTEN)
def test_what_is_forgotten_in_a_loop_over_trees_is_told(what: str) -> None:
    body, message = FORGOTTEN[what]

    def model(x: Any) -> None:
        end = fe.fold(lambda c, tree: body(c, tree, x.trees), fe.constant(3), x.trees)
        fe.loss(fe.sum_columns(end))

    with pytest.raises(fe.FrontendError, match=message):
        fe.compile(model, fe.Record(trees=fe.Sequence(fe.Tree(TREE, most=4), most=3)))


def test_a_branch_attends_to_its_children_and_returns_one_value() -> None:
    def model(x: Any) -> Any:
        def mean(children: Any) -> Any:
            return fe.reduce(children * fe.softmax(children[:1], over=children))

        return fe.root(fe.fold_tree(x.x, mean, x), x)

    tree = fe.Tree(TREE, most=4, arity=0)
    leaves = [leaf(), leaf(), leaf()]
    found, _ = computed(model, tree, leaves)
    values = np.array([each["x"] for each in leaves])
    weights = np.exp(values[:, 0])
    np.testing.assert_allclose(found[0], weights @ values / weights.sum(), atol=1e-6)

    def of_each(x: Any) -> None:
        h = fe.fold_tree(x.x, lambda c: fe.attention(c, c, c, over=c), x)
        fe.loss(fe.sum_columns(fe.root(h, x)))

    with pytest.raises(fe.FrontendError, match="what a branch returns depends on more at every node"):
        fe.compile(of_each, tree)


def test_what_is_no_tree_is_refused() -> None:
    for go in (lambda h, x: fe.root(h, x.said), lambda h, x: fe.fold_tree(h, lambda a, b: a + b, x.said)):
        with pytest.raises(fe.FrontendError, match="expected a tree of the instance, or a sequence of trees"):
            fe.compile(lambda x, go=go: fe.loss(go(x.said.tree.x * 1.0, x)), DOCUMENT)


def test_answers_of_graphs_may_be_missing_of_all_but_not_of_some() -> None:
    g = fe.Graph({"x": fe.Floats(3), "y": fe.Int(2)}, most_nodes=4, most_edges=6)
    top = fe.Linear(2)
    compiled = fe.compile(lambda x: fe.classify(top(x.all.x), x.all.y), fe.Record(all=fe.Sequence(g, most=3)))
    without = [{"x": np.ones((n, 3)), "edges": []} for n in (2, 1)]
    found = compiled.encode({"all": without}, answered=False)
    assert not found.answered and found.tables["all_y"].tolist() == [0, 0, 0]
    some = [without[0] | {"y": [1, 1]}, without[1]]
    with pytest.raises(InstanceError, match=r"all\[1\].y is missing"):
        compiled.encode({"all": some}, answered=False)
    assert compiled.encode({"all": [each | {"y": [0] * len(each["x"])} for each in without]}).answered


def test_answers_of_every_tree_may_be_missing() -> None:
    tree = fe.Tree(TREE, {"tag": fe.Int(2)}, most=4)
    top = fe.Linear(2)

    def model(x: Any) -> None:
        h = fe.fold_tree(x.said.x, lambda a, b: fe.tanh(a + b), x.said)
        fe.classify(top(h), x.said.tag)

    compiled = fe.compile(model, fe.Record(said=fe.Sequence(tree, most=3)))
    said = [[leaf(), leaf()], leaf()]
    with pytest.raises(InstanceError, match="'tag' among its keys"):
        compiled.encode({"said": said})
    found = compiled.outputs({"said": said})["loss"]["prediction"]
    assert len(found) == 4
    some = [{"x": said[1]["x"], "tag": 1}, said[1]]
    with pytest.raises(InstanceError, match=r"said\[1\].tag is missing"):
        compiled.encode({"said": some}, answered=False)
