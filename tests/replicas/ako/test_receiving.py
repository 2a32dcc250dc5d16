"""What becomes of received ranges: updates of their own, or parts of the next one."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.ir.errors import NonFiniteError
from amphw.ir.exchange import NodeGradient
from amphw.ir.program import ParamSpec
from amphw.ir.received import receive
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.replicas.ako.coding import coded, decoded
from amphw.replicas.ako.flat import Flat
from amphw.replicas.ako.message import Layout, Member, Message
from amphw.replicas.ako.receiving import Joined, ranges
from amphw.replicas.packed import packed

SHAPES = {"a": {"W": (2, 3), "b": (3,)}, "c": {"W": (4,)}}


def parameters(**rule: object) -> dict[str, NodeParameters]:
    return {
        node: NodeParameters.initial(
            node,
            tuple(ParamSpec(name, shape) for name, shape in shapes.items()),
            UpdateRule(**rule),  # type: ignore[arg-type]
            seed=1,
            dtype=np.float64,
        )
        for node, shapes in SHAPES.items()
    }


def message(flat: Flat, partition: int, of: int, values: object, rows: int, updates: int) -> Message:
    layout = Layout(0, 1, of, flat.size)
    part = layout.part(partition)
    full = np.broadcast_to(np.asarray(values, flat.kind), part.stop - part.start).copy()
    counts = np.array([[rows, updates]] * len(flat.nodes), np.int64)
    return Message(Member(1), Member(0), layout, partition, 1, of, counts, full)


def vector(flat: Flat, found: dict[str, NodeParameters], slot: int | None = None) -> np.ndarray:
    return np.concatenate(
        [
            (p.values[piece.name] if slot is None else p.slots[piece.name][slot]).reshape(-1)
            for piece in flat.pieces
            for p in [found[flat.nodes[piece.node]]]
        ]
    )


def test_a_range_is_an_update_by_its_mean_times_its_updates() -> None:
    """Six rows in two updates: the sum 12 has the mean 2, which counts twice."""
    found = parameters(optimizer="sgd", lr=0.5)
    flat = Flat.of(found)
    begun, versions = vector(flat, found), {n: p.version for n, p in found.items()}
    held = found["a"].values["W"]
    kept = held.copy()
    receive(found, list(ranges(flat, [message(flat, 1, 3, 12.0, 6, 2)])))
    moved = vector(flat, found) - begun
    part = Layout(0, 1, 3, flat.size).part(1)
    np.testing.assert_allclose(moved[part], -0.5 * 4.0)
    moved[part] = 0
    assert not moved.any()
    assert {n: p.version for n, p in found.items()} == versions
    np.testing.assert_array_equal(held, kept)  # whoever holds a version keeps it


def test_a_rule_of_sums_takes_the_sum() -> None:
    found = parameters(optimizer="sgd", lr=0.5, reduce="sum")
    flat = Flat.of(found)
    begun = vector(flat, found)
    receive(found, list(ranges(flat, [message(flat, 0, 1, 12.0, 6, 2)])))
    np.testing.assert_allclose(vector(flat, found) - begun, -6.0)


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_the_optimiser_moves_on_in_the_range_alone_and_decay_and_clip_are_not_repeated(
    optimizer: str,
) -> None:
    given = {"optimizer": optimizer, "lr": 0.1, "weight_decay": 0.3, "clip": 1e-3}
    found, plain = parameters(**given), parameters(optimizer=optimizer, lr=0.1)
    flat = Flat.of(found)
    begun = vector(flat, found)
    receive(found, list(ranges(flat, [message(flat, 1, 3, np.arange(1.0, 5), 1, 1)] * 2)))
    part = Layout(0, 1, 3, flat.size).part(1)
    for name, slots in ((n, s) for p in plain.values() for n, s in p.slots.items()):
        assert all(not slot.any() for slot in slots), name
    expected = plain_updates(flat, plain, part, 2)
    np.testing.assert_allclose((vector(flat, found) - begun)[part], expected, rtol=1e-12)
    for slot in range(len(next(iter(found["a"].slots.values())))):
        outside = vector(flat, found, slot)
        assert outside[part].any()
        outside[part] = 0
        assert not outside.any()


def plain_updates(flat: Flat, plain: dict[str, NodeParameters], part: slice, times: int) -> np.ndarray:
    """By whole updates of the same rule without decay and clip, with zeros elsewhere; the number stays."""
    begun = vector(flat, plain)
    gradient = np.zeros(flat.size)
    gradient[part] = np.arange(1.0, 5)
    for _ in range(times):
        for piece in flat.pieces:
            p = plain[flat.nodes[piece.node]]
            p.gradients[piece.name][...] = gradient[piece.at].reshape(p.gradients[piece.name].shape)
        for p in plain.values():
            p.rows = 1
            p.publish(p.prepare())
            p.version = 0
    return (vector(flat, plain) - begun)[part]


def test_rounds_without_rows_change_nothing_and_nans_are_named() -> None:
    found = parameters()
    flat = Flat.of(found)
    begun = vector(flat, found)
    receive(found, list(ranges(flat, [message(flat, 0, 1, 5.0, 0, 0)])))
    np.testing.assert_array_equal(vector(flat, found), begun)
    with pytest.raises(NonFiniteError, match="node 'a'.*gradient of 'W'"):
        receive(found, list(ranges(flat, [message(flat, 0, 1, np.nan, 1, 1)])))


@pytest.mark.parametrize("own", [0, 4])
def test_joined_ranges_make_the_mean_over_all_rows(own: int) -> None:
    """Of half of the numbers two ranges have come, of the others none."""
    found = parameters(optimizer="sgd", lr=1.0)
    flat = Flat.of(found)
    begun = vector(flat, found)
    joined = Joined(flat, {node: p.rule for node, p in found.items()})
    for _ in range(2):
        joined.add(message(flat, 0, 2, 6.0, 3, 1))
    gradients = {
        node: NodeGradient(own, {name: np.full(shape, float(own)) for name, shape in shapes.items()})
        for node, shapes in SHAPES.items()
    }
    assert joined.into(gradients)
    for node, p in found.items():
        for name, array in gradients[node].arrays.items():
            p.gradients[name][...] = array
        p.rows = gradients[node].rows
        p.update()
    moved = begun - vector(flat, found)
    part = Layout(0, 1, 2, flat.size).part(0)
    np.testing.assert_allclose(moved[part], (own + 12) / (own + 6))
    np.testing.assert_allclose(moved[part.stop :], 1.0 if own else 0.0)
    assert not joined.into(gradients)  # they count once


@pytest.mark.parametrize("wire", ["full", "float16", "bfloat16"])
@pytest.mark.parametrize("full", [True, False])
def test_messages_survive_the_wire(wire: str, full: bool) -> None:
    flat = Flat.of(parameters())
    sent = message(flat, 1, 3, [1.5, -2.0, 0.25, 8.0], 7, 2)
    if not full:
        sent = Message(*(getattr(sent, f) for f in list(sent.__dataclass_fields__)[:-1]), None)
    found = decoded(packed(coded(sent, wire)), len(flat.nodes), flat.size, wire, flat.kind)
    assert (found.source, found.to, found.layout) == (sent.source, sent.to, sent.layout)
    assert (found.partition, found.first, found.last) == (1, 1, 3)
    np.testing.assert_array_equal(found.counts, sent.counts)
    if sent.values is None:
        assert found.values is None
    else:
        np.testing.assert_array_equal(found.values, sent.values)
