"""One server: pushes are updates by the rules, and are answered once their sender may go on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.ir.errors import NonFiniteError
from amphw.ir.program import ParamSpec
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.replicas.ako.flat import Flat
from amphw.replicas.async_servers.message import ANSWER, FINISHED, PUSH, Message, coded, decoded
from amphw.replicas.async_servers.server import Server
from amphw.replicas.collectives import ranges
from amphw.replicas.packed import packed

SHAPES = {"a": (2, 3), "b": (5,)}
SIZE = 11


def parameters(**rule: Any) -> dict[str, NodeParameters]:
    start = {
        node: np.arange(np.prod(shape), dtype=np.float64).reshape(shape) for node, shape in SHAPES.items()
    }
    return {
        node: NodeParameters.of((ParamSpec("W", shape),), UpdateRule(**rule), {"W": start[node]})
        for node, shape in SHAPES.items()
    }


def servers(count: int, workers: int, bound: int, **rule: Any) -> list[Server]:
    found = parameters(**rule)
    flat = Flat.of(found)
    return [Server(flat, part, found, range(workers), bound) for part in ranges(SIZE, count)]


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("reduce", ["mean", "sum"])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_each_push_is_an_update_as_a_node_makes_it(count: int, reduce: str, optimizer: str) -> None:
    rule = {"optimizer": optimizer, "lr": 0.1, "reduce": reduce, "weight_decay": 0.01, "schedule": "cosine"}
    every, expected = servers(count, 2, 9, **rule), parameters(**rule)
    rng = np.random.default_rng(count)
    for worker, number, rows in ((0, 1, (4, 1)), (1, 1, (0, 3)), (0, 2, (2, 0))):
        gradient = rng.normal(size=SIZE)
        gradient[:6] *= rows[0] > 0
        gradient[6:] *= rows[1] > 0
        for server, part in zip(every, ranges(SIZE, count), strict=True):
            server.push(worker, number, np.array(rows), gradient[part], 0.0)
            assert [who for who, *_ in server.answers(0.0)] == [worker]
        for p, n, part in zip(expected.values(), rows, (slice(0, 6), slice(6, 11)), strict=True):
            p.gradients["W"][...] = gradient[part].reshape(p.values["W"].shape)
            p.rows = n
            p.update()
    whole = np.concatenate([p.values["W"].reshape(-1) for p in expected.values()])
    np.testing.assert_array_equal(np.concatenate([server.values for server in every]), whole)
    tensors = {
        f"{node}.{k}": np.zeros_like(v) for node, p in expected.items() for k, v in p.tensors().items()
    }
    for server in every:
        server.into(tensors)
        assert [server.updates[node].version for node in SHAPES] == [p.version for p in expected.values()]
    for node, p in expected.items():
        for name, value in p.tensors().items():
            np.testing.assert_array_equal(tensors[f"{node}.{name}"], value)


@given(bound=st.integers(0, 3), workers=st.integers(1, 4), seed=st.integers(0, 999))
def test_nobody_goes_on_beyond_the_bound_and_somebody_always_does(
    bound: int, workers: int, seed: int
) -> None:
    """So many workers that may push do so in any order, and end after any number of rounds."""
    rng = np.random.default_rng(seed)
    (server,) = servers(1, workers, bound)
    total = dict(enumerate(rng.integers(1, 6, workers).tolist()))
    made, free = dict.fromkeys(total, 0), set(total)
    while total:
        assert free, "the slowest is never held"
        worker = int(rng.choice(sorted(free)))
        others = [made[w] for w in total if w != worker]
        made[worker] += 1
        assert made[worker] - min(others, default=made[worker]) <= bound + 1
        free.discard(worker)
        server.push(worker, made[worker], np.array([1, 0]), np.zeros(SIZE), 0.0)
        if made[worker] == total[worker]:
            server.finish(worker)
            del total[worker]
        answered = server.answers(0.0)
        assert all(number == made[w] for w, number, _ in answered)
        free |= {w for w, *_ in answered if w in total}
    assert server.clocks.tolist() == list(made.values())
    assert not server.answers(0.0)


def test_it_says_for_how_long_the_bound_has_held_a_worker() -> None:
    (server,) = servers(1, 2, 0)
    rows, zeros = np.array([1, 1]), np.zeros(SIZE)
    server.push(0, 1, rows, zeros, 1.0)
    assert server.answers(1.0) == []
    server.push(1, 1, rows, zeros, 4.0)
    assert sorted(server.answers(4.0)) == [(0, 1, 3.0), (1, 1, 0.0)]
    server.push(0, 2, rows, zeros, 5.0)
    server.finish(1)
    assert server.answers(5.5) == [(0, 2, 0.5)]


def test_a_gradient_that_is_no_number_names_its_node() -> None:
    (server,) = servers(1, 1, 0)
    with pytest.raises(NonFiniteError, match="b"):
        server.push(0, 1, np.array([1, 1]), np.array([0.0] * 10 + [np.nan]), 0.0)


@pytest.mark.parametrize("wire", ["full", "bfloat16"])
def test_messages_come_as_they_went(wire: str) -> None:
    values = np.array([1.0, -2.5, 0.0], np.float32)
    for message in (
        Message(PUSH, 3, 0.0, np.array([4, 5]), values),
        Message(PUSH, 3, 0.0, np.array([4, 5]), None),
        Message(ANSWER, 7, 0.25, np.array([7, 6, 8]), values),
        Message(FINISHED),
    ):
        found = decoded(packed(coded(message, wire)), 2, 3, wire, np.dtype(np.float32))
        assert (found.kind, found.round, found.held) == (message.kind, message.round, message.held)
        for there, here in ((found.counts, message.counts), (found.values, message.values)):
            assert (there is None) == (here is None)
            np.testing.assert_array_equal(there, here)
