"""Attention and softmax over positions and edges, against plain numpy and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amphw import frontend as fe
from amphw.frontend.source import FrontendError
from amphw.ir.nodes import NPT
from tests.frontend.running import computed

WIDTH = 6
SPEC = fe.Record(
    xs=fe.Sequence(fe.Floats(WIDTH), most=8, least=0),
    ys=fe.Sequence(fe.Floats(WIDTH), most=8),
    q=fe.Floats(WIDTH),
)


def drawn(n: int, m: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    found = {"xs": (n, WIDTH), "ys": (m, WIDTH), "q": (WIDTH,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in found.items()}


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, heads: int = 1, causal: bool = False) -> np.ndarray:
    """As Vaswani et al. write it, head by head."""
    made = []
    for a, b, c in zip(*(np.split(x.astype(float), heads, axis=1) for x in (q, k, v)), strict=True):
        scores = a @ b.T / np.sqrt(b.shape[1])
        if causal:
            scores = np.where(np.tril(np.ones_like(scores)) > 0, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        made.append(weights / weights.sum(axis=1, keepdims=True) @ c)
    return np.concatenate(made, axis=1)


def value(model: Any, plain: Any, spec: fe.Spec = SPEC) -> np.ndarray:
    zero = fe.Linear(1, init=np.zeros((WIDTH, 1), np.float32), name="zero")  # something to learn
    return computed(lambda x: model(x) + zero(x.q), spec, plain)[0]


@settings(max_examples=25)
@given(st.integers(1, 8), st.sampled_from([1, 2, 3]), st.booleans(), st.integers(0, 99))
def test_positions_look_at_one_another(n: int, heads: int, causal: bool, seed: int) -> None:
    plain = drawn(3, n, seed)
    ys = plain["ys"]
    found = value(
        lambda x: fe.attention(x.ys.item, x.ys.item, x.ys.item * 2.0, heads=heads, causal=causal), plain
    )
    np.testing.assert_allclose(found, attended(ys, ys, 2 * ys, heads, causal), 1e-6, 1e-9)


def test_positions_that_look_at_one_another_lie_in_one_message() -> None:
    """A query that hangs on its position through something else has a message of its own."""
    head = fe.Linear(1)

    def alike(x: Any) -> None:
        fe.regress(head(fe.attention(x.ys.place, x.ys.place, x.ys.place)), x.ys.weight)

    def apart(x: Any) -> None:
        fe.regress(head(fe.attention(x.q, x.ys.place, x.ys.place)), x.weight)

    weighed = fe.Record(place=fe.Floats(WIDTH), weight=fe.Floats(1))
    spec = fe.Record(ys=fe.Sequence(weighed, most=8), q=fe.Floats(WIDTH), weight=fe.Floats(1))
    spaces = {}
    for model in (alike, apart):
        programs = [n.program for n in fe.compile(model, spec).graph.nodes.values() if isinstance(n, NPT)]
        (instr,) = [i.attr() for p in programs for i in p.instrs if i.op == "attend"]
        spaces[model] = instr["space"], instr["source"]
    assert spaces == {alike: ("rows", "rows"), apart: ("one", "rows")}


@settings(max_examples=15)
@given(st.integers(0, 8), st.integers(1, 8), st.sampled_from([1, 2]))
def test_positions_look_at_others_and_one_query_at_all(n: int, m: int, heads: int) -> None:
    plain = drawn(n, m)
    xs, ys, q = plain["xs"], plain["ys"], plain["q"]
    found = value(lambda x: fe.attention(x.ys.item, x.xs.item, x.xs.item, over=x.xs, heads=heads), plain)
    np.testing.assert_allclose(found, attended(ys, xs, xs, heads) if n else np.zeros((m, WIDTH)), 1e-6, 1e-9)
    found = value(lambda x: fe.attention(x.q, x.ys.item, x.ys.item), plain)
    np.testing.assert_allclose(found, attended(q[None], ys, ys), 1e-6, 1e-9)


def test_large_scores_do_not_overflow() -> None:
    plain = drawn(1, 5)
    ys = plain["ys"]
    found = value(lambda x: fe.attention(x.ys.item * 300.0, x.ys.item * 300.0, x.ys.item), plain)
    np.testing.assert_allclose(found, attended(300 * ys, 300 * ys, ys), 1e-6, 1e-9)


def test_the_rows_of_a_message_may_look_at_one_another() -> None:
    plain = drawn(1, 5)
    ys = plain["ys"]

    def model(x: Any) -> Any:
        rows = fe.group(x.ys.item)
        return fe.attention(rows, rows, rows)

    np.testing.assert_allclose(value(model, plain), attended(ys, ys, ys), 1e-6, 1e-9)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_that_finite_differences_find(causal: bool) -> None:
    layers = {name: fe.Linear(4, name=name) for name in ("query", "key", "value")}

    def model(x: Any) -> None:
        q, k, v = (layer(x.ys.item) for layer in layers.values())
        y = fe.attention(q, k, v, heads=2, causal=causal)
        fe.loss(fe.sum_columns(y * y))

    compiled, plain = fe.compile(model, SPEC), drawn(1, 4)
    values = compiled.parameters(seed=3)
    found = compiled.gradients(plain, values)
    for name in layers:
        for at in ((0, 1), (5, 3)):
            step = np.zeros((WIDTH, 4))
            step[at] = 1e-3

            def loss(sign: int, name: str = name, step: np.ndarray = step) -> float:
                moved = values | {name: values[name] | {"W": values[name]["W"] + sign * step}}
                return float(compiled.outputs(plain, moved)["loss"]["loss"].sum())

            assert found[name]["W"][at] == pytest.approx((loss(1) - loss(-1)) / 2e-3, rel=1e-3, abs=1e-5)


EDGES = [(0, 1), (2, 1), (2, 1), (1, 0), (3, 3)]
GRAPH = fe.Record(
    g=fe.Graph({"a": fe.Floats(2)}, {"w": fe.Floats(3)}, most_nodes=5, most_edges=9), q=fe.Floats(WIDTH)
)


def test_a_softmax_over_a_graph_adds_up_to_one_at_every_node() -> None:
    rng = np.random.default_rng(1)
    w = (50 * rng.normal(size=(len(EDGES), 3))).astype(np.float32)
    g = {"edges": EDGES, "a": np.ones((5, 2)), "w": w}
    plain = {"g": g, "q": np.zeros(WIDTH)}
    found = value(lambda x: fe.receive(fe.softmax(x.g.w, over=x.g), x.g), plain, GRAPH)
    targets = np.array([b for _, b in EDGES])
    np.testing.assert_allclose(found, [[1.0 * (n in targets)] * 3 for n in range(5)], 1e-6, 1e-9)
    scaled = value(lambda x: fe.receive(fe.softmax(x.g.w, over=x.g) * x.g.w, x.g), plain, GRAPH)
    for n in set(targets):
        of = w[targets == n].astype(float)
        p = np.exp(of - of.max(axis=0))
        np.testing.assert_allclose(scaled[n], (p / p.sum(axis=0) * of).sum(axis=0), 1e-6, 1e-9)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (
            lambda x: fe.attention(x.ys.item, x.ys.item[:3], x.ys.item),
            "of width 6 with keys of width 3",
        ),
        (lambda x: fe.attention(x.ys.item, x.ys.item, x.ys.item, heads=4), "no 4 equal heads"),
        (lambda x: fe.attention(x.q, x.ys.item, x.ys.item, causal=True), "causal attention is of queries"),
        (lambda x: fe.attention(x.q, x.q, x.q), "one value an instance"),
        (lambda x: fe.attention(x.ys.position, x.ys.item, x.ys.item), r"`number\(i\)` makes one"),
        (lambda x: fe.attention(x.q, fe.constant(WIDTH), x.ys.item), "positions of the model's values"),
    ],
)
def test_what_attention_refuses(model: Any, told: str) -> None:
    with pytest.raises(FrontendError, match=told):
        value(model, drawn(1, 2))


def test_norms_and_means_are_those_of_their_formulas() -> None:
    plain = drawn(1, 4, seed=2)
    ys = plain["ys"].astype(float)
    centred = ys - ys.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(
        value(lambda x: fe.LayerNorm(name="norm")(x.ys.item), plain),
        centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5),
        1e-6,
    )
    np.testing.assert_allclose(
        value(lambda x: fe.RMSNorm(name="norm")(x.ys.item), plain),
        ys / np.sqrt((ys**2).mean(axis=1, keepdims=True) + 1e-6),
        1e-6,
    )
    np.testing.assert_allclose(
        value(lambda x: fe.mean_columns(x.ys.item), plain), ys.mean(axis=1, keepdims=True), 1e-6
    )
    np.testing.assert_allclose(
        value(lambda x: fe.leaky_relu(x.ys.item, 0.2), plain), np.where(ys > 0, ys, 0.2 * ys), 1e-6
    )


@pytest.mark.parametrize("cell", [fe.GRU, fe.RNN])
def test_a_step_of_a_cell_is_the_body_of_a_scan(cell: Any) -> None:
    h = cell(WIDTH, name="cell")

    def scanned(x: Any) -> Any:
        return fe.scan(h.step, fe.constant(WIDTH), x.ys.item)[1]

    def folded(x: Any) -> Any:
        return fe.fold(h, fe.constant(WIDTH), x.ys.item)

    plain = drawn(1, 4)
    np.testing.assert_allclose(value(scanned, plain)[-1], value(folded, plain)[0], 1e-9)
