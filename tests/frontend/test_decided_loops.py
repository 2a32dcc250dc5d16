"""Loops that the network ends: their bodies go over values from outside, as plain Python does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.cpu_runtime import CpuDevice
from tests.conformance.harness import assert_same, reference, run
from tests.frontend.running import computed

WORDS = fe.Record(words=fe.Sequence(fe.Floats(3), most=5, least=0), start=fe.Floats(3))
RNG = np.random.default_rng(4)
PLAIN = {"words": RNG.normal(size=(4, 3)), "start": RNG.normal(size=3)}


def looked(h: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Attention of one query."""
    powers = np.exp(words @ h / np.sqrt(3))
    return powers @ words / powers.sum()


def turns(step: Any, start: np.ndarray, most: int) -> np.ndarray:
    h = start
    for _ in range(most):
        if not h[0] > -0.5:
            break
        h = step(h)
    return h


def going(h: Any) -> Any:
    return h[:1] + 0.5


@pytest.mark.parametrize("most", [1, 3])
def test_a_body_attends_to_values_from_outside(most: int) -> None:
    def model(x: Any) -> Any:
        values = x.words.item * 1.0

        def hop(h: Any) -> Any:
            return h * 0.5 + fe.attention(h, values, values, over=x.words)

        return fe.while_loop(going, hop, x.start, most=most)

    found, _ = computed(model, WORDS, PLAIN)
    expected = turns(lambda h: h * 0.5 + looked(h, PLAIN["words"]), PLAIN["start"], most)
    np.testing.assert_allclose(found[0], expected, atol=1e-6)
    nothing = {"words": np.zeros((0, 3)), "start": PLAIN["start"]}
    found, _ = computed(model, WORDS, nothing)
    np.testing.assert_allclose(found[0], turns(lambda h: h * 0.5, PLAIN["start"], most), atol=1e-6)


def test_a_condition_too_goes_over_values_and_so_does_a_fold() -> None:
    def model(x: Any) -> Any:
        def reaches(h: Any) -> Any:
            return fe.reduce(fe.sum_columns(x.words * h), "max", over=x.words) * -1.0 + 9.0

        def turn(h: Any) -> Any:
            return fe.fold(lambda c, word: c * 0.9 + fe.relu(word), h * 1.3, x.words)

        return fe.while_loop(reaches, turn, x.start, most=8)

    h = PLAIN["start"]
    count = 0
    while (PLAIN["words"] @ h).max() < 9 and count < 8:
        h, count = h * 1.3, count + 1
        for word in PLAIN["words"]:
            h = h * 0.9 + np.maximum(word, 0)
    assert 1 < count < 8
    found, _ = computed(model, WORDS, PLAIN)
    np.testing.assert_allclose(found[0], h, rtol=1e-6)


def test_in_a_scan_over_the_same_words_every_loop_sees_all_of_them() -> None:
    def model(x: Any) -> Any:
        values = x.words.item * 1.0

        def at(carry: Any, word: Any) -> Any:
            hop = lambda h: h * 0.5 + fe.attention(h, values, values, over=x.words)  # noqa: E731
            h = fe.while_loop(going, hop, word, most=3)
            return carry + h, h

        return fe.scan(at, fe.constant(3), values)[1]

    found, _ = computed(model, WORDS, PLAIN)
    step = lambda h: h * 0.5 + looked(h, PLAIN["words"])  # noqa: E731
    np.testing.assert_allclose(found, [turns(step, w, 3) for w in PLAIN["words"]], atol=1e-6)


def test_a_value_for_each_position_still_makes_a_loop_of_each() -> None:
    def model(x: Any) -> Any:
        return fe.while_loop(going, lambda h: h * 0.5 - x.words, x.start, most=3)

    found, _ = computed(model, WORDS, PLAIN)
    expected = [turns(lambda h, w=w: h * 0.5 - w, PLAIN["start"], 3) for w in PLAIN["words"]]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def going_over(h: Any, x: Any, how: str) -> Any:
    values = x.words.item * 1.0
    if how == "attention":
        return fe.attention(h, values, values, over=x.words)
    if how == "reduce":
        return fe.reduce(values * h, over=x.words)
    return fe.fold(lambda c, word: c + word * h, fe.constant(3), values)


@pytest.mark.parametrize("how", ["attention", "reduce", "fold"])
def test_a_loop_of_each_position_does_not_go_over_all(how: str) -> None:
    def model(x: Any) -> None:
        h = fe.while_loop(going, lambda h: h + going_over(h, x, how), x.words.item * 2.0, most=3)
        fe.loss(fe.sum_columns(h))

    said = "the loop at .*, which the network decides, is one for each of w .* the body of a scan over w"
    with pytest.raises(fe.FrontendError, match=said):
        fe.compile(model, WORDS)


# --- a carry with positions, of all of which the network decides at once ----------------------------------

GRAPH = fe.Record(graph=fe.Graph({"x": fe.Floats(3)}, most_nodes=4, most_edges=6), start=fe.Floats(3))
EDGES = [(0, 1), (1, 2), (2, 0), (0, 2), (3, 3)]
NODES = {"graph": {"x": RNG.uniform(0.05, 0.2, (4, 3)), "edges": EDGES}, "start": RNG.uniform(0, 0.1, 3)}


def heard(h: np.ndarray) -> np.ndarray:
    """What nodes receive of one another."""
    sums = np.zeros_like(h)
    for source, target in EDGES:
        sums[target] += h[source]
    return sums


def settled(most: int, step: Any) -> tuple[np.ndarray, int]:
    h, count = NODES["graph"]["x"], 0
    while h.mean(axis=0)[0] ** 2 < 0.2 and count < most:
        h, count = step(h), count + 1
    return h, count


def restless(h: Any, g: Any) -> Any:
    mean = fe.reduce(h, "mean", over=g.nodes)[:1]
    return mean * mean * -1.0 + 0.2


@pytest.mark.parametrize("form", ["messages", "rows"])
@pytest.mark.parametrize("most", [1, 2, 9])
def test_nodes_send_to_one_another_until_the_graph_has_settled(form: str, most: int) -> None:
    def model(x: Any) -> Any:
        g = x.graph

        def turn(h: Any) -> Any:
            update = lambda h, r: h * 0.4 + r * 0.9 + x.start * 0.1  # noqa: E731
            return fe.message_passing(h, g, lambda h: h, update, steps=1, form=form)

        return fe.while_loop(lambda h: restless(h, g), turn, g.x * 1.0, most=most)

    found, _ = computed(model, GRAPH, NODES)
    expected, count = settled(most, lambda h: h * 0.4 + heard(h) * 0.9 + NODES["start"] * 0.1)
    assert 2 < count < 9 if most == 9 else count == most
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_what_is_carried_may_have_several_positions_and_none() -> None:
    def model(x: Any) -> Any:
        g = x.graph

        def turn(carry: Any) -> Any:
            h, words, count = carry["h"], carry["words"], carry["count"]
            received = fe.receive(fe.send(h, g), g)
            whole = fe.reduce(words, over=x.words)
            return {"h": h * 0.4 + received + whole * 0.1, "words": words * 0.5 + count, "count": count + 1.0}

        start = {"h": g.x, "words": x.words, "count": fe.constant(1)}
        end = fe.while_loop(lambda c: restless(c["h"], g), turn, start, most=9)
        pairs = fe.reduce(end["words"], over=x.words) * end["h"]
        return pairs + end["count"]

    both = fe.Record(**GRAPH.parts, words=WORDS.parts["words"])
    found, _ = computed(model, both, NODES | {"words": PLAIN["words"]})
    words, count, h = PLAIN["words"], 0, NODES["graph"]["x"]
    while h.mean(axis=0)[0] ** 2 < 0.2 and count < 9:
        h, words, count = h * 0.4 + heard(h) + words.sum(axis=0) * 0.1, words * 0.5 + count, count + 1
    assert 1 < count < 9
    np.testing.assert_allclose(found, words.sum(axis=0) * h + count, atol=1e-6)
    without = NODES | {"words": np.zeros((0, 3))}
    count = settled(9, lambda h: h * 0.4 + heard(h))[1]
    np.testing.assert_allclose(computed(model, both, without)[0], np.full((4, 3), count), atol=1e-6)


def test_a_body_may_return_values_from_outside_as_they_are() -> None:
    def model(x: Any) -> Any:
        whole, nodes = x.start * 1.0, x.graph.x * 2.0
        begin = {"h": x.graph.x, "n": x.start * 0.0}
        once = lambda carry: fe.sum_columns(fe.absolute(carry["n"])) * -1.0 + 1e-6  # noqa: E731
        end = fe.while_loop(once, lambda carry: {"h": nodes, "n": whole}, begin, most=5)
        return end["h"] + end["n"]

    found, _ = computed(model, GRAPH, NODES)
    np.testing.assert_allclose(found, NODES["graph"]["x"] * 2 + NODES["start"], atol=1e-6)


def test_positions_reach_one_part_of_a_carry_after_the_other() -> None:
    def model(x: Any) -> Any:
        init = tuple(fe.constant(3, float(k)) for k in range(12))
        rotate = lambda carry: (*carry[1:], x.graph.x + carry[0])  # noqa: E731
        return fe.while_loop(lambda carry: fe.constant(1, 1.0), rotate, init, most=14)[0]

    found, _ = computed(model, GRAPH, NODES)
    carry = [np.full((4, 3), float(k)) for k in range(12)]
    for _ in range(14):
        carry = [*carry[1:], NODES["graph"]["x"] + carry[0]]
    np.testing.assert_allclose(found, carry[0], atol=1e-6)


def test_a_carry_in_rows_may_get_positions_within_each_row() -> None:
    def model(x: Any) -> Any:
        letters = x.words.letters

        def turn(carry: Any) -> Any:
            return carry[0] * 0.5 + fe.number(letters.position) + letters.item, carry[1] + 0.3

        end, _ = fe.while_loop(lambda c: c[1] * -1.0 + 0.5, turn, (x.words.v, fe.constant(1)), most=9)
        return fe.reduce(end)

    word = fe.Record(letters=fe.Sequence(fe.Floats(1), 3, least=0), v=fe.Floats(1))
    words = [
        {"letters": [[1.0], [0.5]], "v": [2.0]},
        {"letters": [], "v": [1.0]},
        {"letters": [[3.0]], "v": [0.5]},
    ]
    found, _ = computed(model, fe.Record(words=fe.Sequence(word, 3)), {"words": words})
    for each, sums in zip(words, found, strict=True):
        letters = np.array(each["letters"]).reshape(-1)
        h = np.full(len(letters), each["v"][0])
        for _ in range(2):
            h = h * 0.5 + np.arange(len(letters)) + letters
        assert sums[0] == pytest.approx(h.sum(), abs=1e-6)


def test_a_condition_reads_positions_that_the_body_gives_the_carry() -> None:
    def model(x: Any) -> Any:
        g = x.graph

        def turn(carry: Any) -> Any:
            h = carry["h"] * 0.4 + fe.receive(fe.send(carry["h"], g), g) * 0.2
            return {"h": h, "moved": fe.sum_columns(fe.absolute(h - carry["h"]))}

        moved = lambda carry: fe.reduce(carry["moved"], "max", over=g.nodes) - 0.05  # noqa: E731
        end = fe.while_loop(moved, turn, {"h": g.x, "moved": fe.constant(1, 1.0)}, most=20)
        return fe.concat(end["h"], end["moved"])

    found, _ = computed(model, GRAPH, NODES)
    h, moved = NODES["graph"]["x"], np.ones(4)
    while moved.max() > 0.05:
        before, h = h, h * 0.4 + heard(h) * 0.2
        moved = np.abs(h - before).sum(axis=1)
    np.testing.assert_allclose(found, np.c_[h, moved], atol=1e-6)


@pytest.mark.parametrize("inside", ["a choice", "a loop"])
def test_a_condition_of_such_positions_may_have_decisions_of_its_own(inside: str) -> None:
    def model(x: Any) -> Any:
        total = fe.sum_columns(x.start * 1.0)

        def going_on(carry: Any) -> Any:
            most = lambda v: fe.reduce(carry, "max", over=x.words) + v  # noqa: E731
            if inside == "a choice":
                found = fe.cond(total + 9.0, most, lambda v: v * 0.0, total)
            else:
                found = fe.while_loop(lambda v: v + 9.0, lambda v: most(v) - 99.0, total, most=3) + 99.0
            return 3.5 - found + total

        def turn(carry: Any) -> Any:
            step = fe.absolute(fe.sum_columns(x.words * 1.0)) + 0.2
            return fe.cond(carry - 1.0, lambda v: v + 1.0, lambda v: v + 0.5, carry) + step

        return fe.while_loop(going_on, turn, fe.constant(1), most=4)

    found, _ = computed(model, WORDS, PLAIN)
    step = np.abs(PLAIN["words"].sum(axis=1)) + 0.2
    carry = np.zeros(4)
    for _ in range(4):
        if not 3.5 - carry.max() > 0:
            break
        carry = np.where(carry > 1, carry + 1.0, carry + 0.5) + step
    np.testing.assert_allclose(found[:, 0], carry, atol=1e-6)


def test_the_error_of_a_condition_is_told_before_that_of_a_body() -> None:
    def model(x: Any) -> None:
        fe.while_loop(lambda c: fe.Linear(2)(c), lambda c: fe.concat(c, c), x.start, most=2)

    with pytest.raises(fe.FrontendError, match="a condition that the network decides is one number a row"):
        fe.compile(model, WORDS)


def test_a_carry_that_grows_at_every_turn_is_refused() -> None:
    def model(x: Any) -> None:
        def turn(h: Any) -> Any:
            return fe.scan(lambda c, word: (c, word + h), fe.constant(3), x.words)[1]

        fe.loss(
            fe.sum_columns(fe.reduce(fe.while_loop(lambda h: fe.constant(1, 1.0), turn, x.start, most=3)))
        )

    with pytest.raises(fe.FrontendError):
        fe.compile(model, WORDS)


def test_a_loop_of_each_node_does_not_send() -> None:
    def model(x: Any) -> None:
        turn = lambda h: fe.receive(fe.send(h, x.graph), x.graph)  # noqa: E731
        fe.loss(fe.sum_columns(fe.while_loop(going, turn, x.graph.x, most=3)))

    said = "let the condition be one of the whole graph, such as a mean over its nodes"
    with pytest.raises(fe.FrontendError, match=said):
        fe.compile(model, GRAPH)


# --- wherever such a loop may be ------------------------------------------------------------------------

V = 5
SENTENCE = {"words": fe.Sequence(fe.Int(V), most=3), "label": fe.Int(3)}


def until_settled(values: Any, over: Any) -> Any:
    """From a state to the state behind a few turns of attention over the values."""
    mix, ask = fe.Linear(3, name="mix"), fe.Linear(1, name="ask")

    def loop(h: Any) -> Any:
        turn = lambda h: fe.tanh(mix(h) + fe.attention(h, values, values, over=over))  # noqa: E731
        return fe.while_loop(lambda h: ask(h) + 0.3, turn, h, most=3)

    return loop


def _in_a_tree(x: Any, e: Any) -> Any:
    loop = until_settled(e(x.words), x.words)
    return fe.root(fe.fold_tree(e(x.tree.word), lambda a, b: loop(a + b), x.tree), x.tree)


def _in_a_branch(x: Any, e: Any) -> Any:
    start = e(x.label)
    loop = until_settled(e(x.words), x.words)
    return fe.cond(fe.sum_columns(start), loop, lambda h: h, start)


def _over_nodes(x: Any, e: Any) -> Any:
    nodes = fe.message_passing(e(x.graph.kind), x.graph, fe.tanh, lambda h, r: fe.tanh(h + r), steps=2)
    return until_settled(nodes, x.graph.nodes)(e(x.label))


def _over_letters(x: Any, e: Any) -> Any:
    letters = e(x.words.letters)

    def turn(h: Any) -> Any:
        return fe.tanh(fe.reduce(fe.reduce(fe.tanh(letters * h)), "mean", over=x.words))

    return fe.while_loop(lambda h: fe.sum_columns(h) + 0.5, turn, e(x.label), most=3)


NESTED: dict[str, tuple[Any, dict[str, fe.Spec], list[dict[str, Any]]]] = {
    "in a tree": (
        _in_a_tree,
        SENTENCE | {"tree": fe.Tree({"word": fe.Int(V)}, most=4)},
        [{"words": [1, 2], "tree": [0, [1, 2]], "label": 1}, {"words": [3], "tree": [0, 3], "label": 2}],
    ),
    "in a branch that the network chooses": (
        _in_a_branch,
        SENTENCE,
        [{"words": [1, 2, 4], "label": k} for k in range(3)],
    ),
    "over the nodes of a graph": (
        _over_nodes,
        {"graph": fe.Graph({"kind": fe.Int(V)}, most_nodes=4, most_edges=6), "label": fe.Int(3)},
        [{"graph": {"kind": [1, 2, 3], "edges": [(0, 1), (1, 2)]}, "label": k} for k in range(3)],
    ),
    "over letters in words": (
        _over_letters,
        {"words": fe.Sequence(fe.Record(letters=fe.Sequence(fe.Int(V), 3, least=0)), 3), "label": fe.Int(3)},
        [{"words": [{"letters": [1, 2]}, {"letters": []}], "label": k} for k in range(3)],
    ),
}


@pytest.mark.parametrize("name", NESTED)
def test_a_loop_goes_over_values_wherever_it_is(name: str) -> None:
    inside, spec, plain = NESTED[name]
    embed, head = fe.Embedding(V, 3, init="normal:0.7"), fe.Linear(3)
    compiled = fe.compile(lambda x: fe.classify(head(inside(x, embed)), x.label), fe.Record(**spec))
    instances = [compiled.encode(value) for value in plain]
    for number, instance in enumerate(instances):
        instance.number = number
    expected = reference(compiled.graph, instances)
    assert_same(run(CpuDevice(), compiled.graph, instances), expected)
    assert expected.forward == expected.backward
