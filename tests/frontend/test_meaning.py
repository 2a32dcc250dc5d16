"""What each construct computes, against plain Python. Gradients are tested on the conformance cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amphw import frontend as fe
from tests.frontend.running import Parameters, computed, sigmoid

NUMBERS = fe.Record(xs=fe.Sequence(fe.Floats(1), most=8, least=0), one=fe.Floats(1), n=fe.Int(9))
some_numbers = st.lists(st.integers(-4, 4).map(float), max_size=6)


def numbers(xs: list[float], one: float = 0.5, n: int = 0) -> dict[str, Any]:
    return {"xs": [[x] for x in xs], "one": [one], "n": n}


def value(model: Any, plain: Any, spec: fe.Spec = NUMBERS) -> list[Any]:
    found: list[Any] = np.round(computed(model, spec, plain)[0], 9).squeeze(1).tolist()
    return found


@settings(max_examples=25)
@given(some_numbers, st.booleans())
def test_a_fold_goes_along_a_sequence_or_back(xs: list[float], reverse: bool) -> None:
    def model(x: Any) -> Any:
        return fe.fold(lambda h, item: h * 0.5 + item, x.one, x.xs, reverse=reverse)

    expected = 0.5
    for item in reversed(xs) if reverse else xs:
        expected = expected * 0.5 + item
    assert value(model, numbers(xs)) == [pytest.approx(expected)]


@settings(max_examples=25)
@given(some_numbers.filter(len), st.booleans())
def test_a_scan_gives_what_was_there_at_every_position(xs: list[float], reverse: bool) -> None:
    def model(x: Any) -> Any:
        def step(carry: Any, item: Any) -> Any:
            total, last = carry
            return (total + item, item), total + last * 10.0

        _, ys = fe.scan(step, (fe.constant(1), x.one), x.xs, reverse=reverse)
        return fe.group(ys, x.xs)

    total, last, ys = 0.0, 0.5, []
    for item in reversed(xs) if reverse else xs:
        ys.append(total + last * 10)
        total, last = total + item, item
    assert value(model, numbers(xs)) == pytest.approx(ys[::-1] if reverse else ys)


@settings(max_examples=25)
@given(some_numbers, st.sampled_from(["sum", "mean", "max"]), st.booleans())
def test_reductions_of_rows_and_of_messages_agree(xs: list[float], how: str, apart: bool) -> None:
    def model(x: Any) -> Any:
        values = x.xs.item
        return fe.reduce(fe.ungroup(values) if apart else values, how) + x.one

    expected = {"sum": sum(xs), "mean": sum(xs) / max(len(xs), 1), "max": max(xs, default=0.0)}[how]
    assert value(model, numbers(xs)) == [pytest.approx(expected + 0.5)]


@settings(max_examples=20)
@given(some_numbers, st.integers(0, 8))
def test_a_loop_of_the_network_ends_by_its_condition_or_at_its_bound(xs: list[float], n: int) -> None:
    def model(x: Any) -> Any:
        def below(carry: Any) -> Any:
            return x.one * 4.0 - carry[0]

        turned, count = fe.while_loop(
            below, lambda c: (c[0] + x.one, c[1] + 1.0), (fe.reduce(x.xs), fe.constant(1)), most=5
        )
        return fe.concat(turned, count)

    now, count = sum(xs), 0
    while 2.0 - now > 0 and count < 5:
        now, count = now + 0.5, count + 1
    found, _ = computed(model, NUMBERS, numbers(xs, n=n))
    assert found[0].tolist() == pytest.approx([now, count])


@pytest.mark.parametrize("n", range(4))
def test_a_choice_by_an_integer_takes_its_branch(n: int) -> None:
    def model(x: Any) -> Any:
        branches = [lambda v: v + 1.0, lambda v: v * x.one, lambda v: -v, lambda v: fe.constant(1, 7.0)]
        return fe.switch(fe.minimum(x.n, 3), branches, fe.reduce(x.xs))

    assert value(model, numbers([2.0, 4.0], n=n)) == [[7.0, 3.0, -6.0, 7.0][n]]


@pytest.mark.parametrize("x", [-1.0, 0.0, 0.25, 3.0])
def test_a_choice_of_the_network_takes_its_branch_for_each_position(x: float) -> None:
    def model(i: Any) -> Any:
        return fe.group(fe.cond(i.xs.item, lambda v: v * 2.0 + i.one, lambda v: v - i.one, i.xs.item), i.xs)

    expected = [v * 2 + 0.5 if v > 0 else v - 0.5 for v in (x, -x, 1.0)]
    assert value(model, numbers([x, -x, 1.0])) == pytest.approx(expected)


def test_positions_are_picked_and_rows_taken_and_put() -> None:
    axis = fe.Axis("index", 6)
    spec = fe.Record(xs=fe.Sequence(fe.Floats(1), most=8), where=fe.Along(axis, fe.Int(8)), last=fe.Int(8))
    plain = {"xs": [[1.0], [2.0], [4.0]], "where": [2, 2, 0, 1], "last": 2}
    assert value(lambda x: fe.pick(x.xs.item, x.last), plain, spec) == [4.0]
    assert value(lambda x: fe.pick(fe.ungroup(x.xs.item), x.last), plain, spec) == [4.0]
    assert value(lambda x: fe.take(x.xs.item, x.where.item), plain, spec) == [4.0, 4.0, 1.0, 2.0]

    def put_back(x: Any) -> Any:
        return fe.put(fe.take(x.xs.item, x.where.item), x.where.item, x.xs)

    assert value(put_back, plain, spec) == [1.0, 2.0, 8.0]


def test_nested_sequences_keep_their_own_lengths() -> None:
    spec = fe.Record(words=fe.Sequence(fe.Sequence(fe.Floats(1), most=5), most=5))

    def model(x: Any) -> Any:
        word = fe.fold(lambda h, c: h * 10.0 + c, fe.constant(1), x.words.item)
        return fe.fold(lambda h, w: h * 1000.0 + w, fe.constant(1), word)

    plain = {"words": [[[1.0], [2.0]], [[3.0]], [[4.0], [5.0], [6.0]]]}
    assert value(model, plain, spec) == [12003456.0]


def test_a_loop_over_words_may_loop_over_the_letters_of_each() -> None:
    spec = fe.Record(words=fe.Sequence(fe.Sequence(fe.Floats(1), most=5), most=5))

    def model(x: Any) -> Any:
        def read(h: Any, word: Any) -> Any:
            return fe.fold(lambda s, c: s * 10.0 + c + h, fe.constant(1), word) + h

        return fe.fold(read, fe.constant(1), x.words)

    h = 0.0
    for word in ([1.0, 2.0], [3.0], [4.0, 5.0]):
        s = 0.0
        for c in word:
            s = s * 10 + c + h
        h = s + h
    plain = {"words": [[[1.0], [2.0]], [[3.0]], [[4.0], [5.0]]]}
    assert value(model, plain, spec) == [h]


def test_a_tree_of_any_arity_gives_its_children_in_order() -> None:
    spec = fe.Tree({"x": fe.Floats(1)}, most=8, arity=0)

    def model(t: Any) -> Any:
        def branch(children: Any) -> Any:
            return fe.reduce(children * (fe.number(position(children)) + 1.0))

        def position(children: Any) -> Any:
            return fe.Integer(children.rows.at, (*children.rows.needs, children.rows))

        return fe.root(fe.fold_tree(t.x, branch, t), t)

    # 1 * leaf 2 + 2 * (1 * leaf 3 + 2 * leaf 5) + 3 * (1 * leaf 7)
    assert value(model, [[2.0], [[3.0], [5.0]], [[7.0]]], spec) == [2 + 2 * (3 + 10) + 3 * 7]


@pytest.mark.parametrize(
    "form,how",
    [("messages", "sum"), ("messages", "mean"), ("messages", "max"), ("rows", "sum"), ("rows", "mean")],
)
def test_messages_go_along_the_edges(form: str, how: str) -> None:
    edges, kinds = [(0, 1), (0, 1), (2, 1), (1, 1), (2, 0)], [0, 1, 0, 1, 0]
    spec = fe.Graph({"x": fe.Floats(1)}, most_nodes=5, most_edges=6, types=2)

    def model(g: Any) -> Any:
        messages = [lambda v: v * 2.0, lambda v: v + 10.0]
        h = fe.message_passing(g.x, g, messages, lambda h, m: h + m * 3.0, steps=2, how=how, form=form)
        return fe.group(h, g.nodes)

    h = [1.0, 2.0, 3.0, 4.0]
    for _ in range(2):
        got: list[list[float]] = [[] for _ in h]
        for (a, b), kind in zip(edges, kinds, strict=True):
            got[b].append(h[a] + 10 if kind else h[a] * 2)
        reduce = {"sum": sum, "mean": lambda v: sum(v) / len(v), "max": max}[how]
        h = [x + 3 * (reduce(m) if m else 0.0) for x, m in zip(h, got, strict=True)]
    plain = {"x": [[1.0], [2.0], [3.0], [4.0]], "edges": edges, "type": kinds}
    assert value(model, plain, spec) == pytest.approx(h)


def test_a_layer_in_two_places_has_one_set_of_parameters() -> None:
    twice = fe.Linear(1)
    spec = fe.Record(a=fe.Sequence(fe.Floats(2), most=4), b=fe.Floats(2))

    def model(x: Any) -> Any:
        return fe.reduce(twice(x.a.item)) * twice(x.b)

    found, p = computed(model, spec, {"a": [[1.0, 2.0], [0.0, 3.0]], "b": [4.0, 1.0]})
    w = p["twice"]["W"]
    assert list(p) == ["twice"]
    expected = (np.array([[1.0, 2.0], [0.0, 3.0]]) @ w).sum(0) * (np.array([4.0, 1.0]) @ w)
    assert found[0].tolist() == pytest.approx(expected.tolist())


def _gru(p: Parameters, h: np.ndarray, x: np.ndarray) -> np.ndarray:
    q = p["cell"]
    (ir, iz, i_n), (hr, hz, hn) = (np.split(v, 3) for v in (x @ q["Wi"] + q["bi"], h @ q["Wh"] + q["bh"]))
    r, z = sigmoid(ir + hr), sigmoid(iz + hz)
    return (1 - z) * np.tanh(i_n + r * hn) + z * h


def test_the_recurrent_layers_are_those_of_the_literature() -> None:
    cell, long = fe.GRU(3, name="cell"), fe.LSTM(3, name="long")
    spec = fe.Record(h=fe.Floats(3), c=fe.Floats(3), x=fe.Floats(2))
    plain = {"h": [0.5, -1.0, 0.2], "c": [1.0, -0.3, 0.1], "x": [0.7, -0.4]}
    h, c, x = (np.array(plain[k]) for k in "hcx")
    found, p = computed(lambda i: cell(i.h, i.x), spec, plain)
    assert found[0] == pytest.approx(_gru(p, h, x), rel=1e-6)
    found, p = computed(lambda i: long(fe.concat(i.h, i.c), i.x), spec, plain)
    i, f, o, u = np.split(np.concatenate([x, h]) @ p["long"]["W"] + p["long"]["b"], 4)
    after = sigmoid(i) * np.tanh(u) + sigmoid(f) * c
    assert found[0] == pytest.approx(np.concatenate([sigmoid(o) * np.tanh(after), after]), rel=1e-6)
