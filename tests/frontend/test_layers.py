"""Layers that are called with constants alone, and shared between those and other uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.ir.graph import Graph
from amphw.ir.serialise import fingerprint
from tests.frontend.running import computed

SPEC = fe.Record(n=fe.Int(3), x=fe.Floats(3))
PLAIN = {"n": 1, "x": [0.5, -1.0, 2.0]}


def test_a_layer_of_constants_gets_no_other_operand() -> None:
    own = fe.Layer(lambda p, a, b: (a + b) @ p.W, lambda a, b: {"W": (a, 2)})
    found, p = computed(lambda x: own(fe.constant(3, 1.0), fe.constant(3, 0.5)), SPEC, PLAIN)
    assert found[0].tolist() == pytest.approx((np.full(3, 1.5) @ p["own"]["W"]).tolist())

    branch = fe.TreeLSTMBranch(2)
    found, p = computed(lambda x: branch(fe.constant(4), fe.constant(4, 1.0))[1], SPEC, PLAIN)
    assert found.shape == (1, 2)


def test_a_layer_is_shared_by_constants_and_values() -> None:
    cell = fe.Linear(3, name="cell")

    def model(x: Any) -> Any:
        start = cell(fe.constant(3, 1.0), fe.constant(3))
        every = fe.fold(lambda h: cell(fe.constant(3, 2.0), h), start, length=2)
        return cell(every, x.x)

    found, p = computed(model, SPEC, PLAIN)
    w, h = p["cell"]["W"], np.zeros(3)
    h = np.concatenate([np.ones(3), h]) @ w
    for _ in range(2):
        h = np.concatenate([np.full(3, 2.0), h]) @ w
    assert found[0].tolist() == pytest.approx((np.concatenate([h, PLAIN["x"]]) @ w).tolist())


def test_an_embedding_starts_at_unit_deviation_and_checkpoints_of_before_still_fit() -> None:
    def graph(**init: str) -> Graph:
        embed = fe.Embedding(2000, 8, name="embed", **init)
        head = fe.Linear(2, name="head")
        spec = fe.Record(i=fe.Int(2000), label=fe.Int(2))
        return fe.compile(lambda x: fe.classify(head(embed(x.i)), x.label), spec, "m").graph

    (start,) = (p for p in graph().nodes["embed"].params if p.name == "E")
    assert start.initial(np.random.default_rng(0)).std() == pytest.approx(1.0, rel=0.05)
    assert fingerprint(graph()) == fingerprint(graph(init="normal:0.1"))
    assert fingerprint(graph()) != fingerprint(graph(init="normal:0.2"))
