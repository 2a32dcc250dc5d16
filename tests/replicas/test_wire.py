"""Values of 16 bits on the wire: how they are rounded, and what becomes of training with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amphw.host.controller import Trainer
from amphw.models import get_model
from amphw.replicas.collectives import all_reduce
from amphw.replicas.run import check_ranks, follow, in_threads, replica
from amphw.replicas.wire import decode, encode
from tests.daily import daily
from tests.host.training import MODEL
from tests.replicas.test_equivalence import Kept, settings
from tests.replicas.training import train_in_threads

NARROW = [("float16", 11), ("bfloat16", 8)]


@pytest.mark.parametrize(("wire", "bits"), NARROW)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_numbers_are_rounded_to_the_nearest(wire: str, bits: int, kind: type) -> None:
    values = np.random.default_rng(1).normal(size=2000).astype(kind)
    coded = encode(values, wire)
    back = decode(coded, wire, values.dtype)
    assert coded.itemsize == 2 and back.dtype == kind
    assert (np.abs(back - values) <= np.abs(values) * 2.0**-bits + 2.0**-24).all()
    np.testing.assert_array_equal(encode(back, wire), coded)  # once only


def test_ties_go_to_even_in_bfloat16() -> None:
    values = np.array([1 + 2**-8, 1 + 3 * 2**-8], np.float32)
    np.testing.assert_array_equal(
        decode(encode(values, "bfloat16"), "bfloat16", values.dtype), [1, 1 + 2**-6]
    )


@pytest.mark.parametrize("wire", [wire for wire, _ in NARROW])
def test_what_is_not_finite_stays_so(wire: str) -> None:
    values = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    values = np.append(values, np.array([0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32))
    np.testing.assert_array_equal(decode(encode(values, wire), wire, values.dtype), values)


def test_float16_saturates() -> None:
    values = np.array([1e6, -1e30, 65519.0])
    found = decode(encode(values, "float16"), "float16", values.dtype)
    np.testing.assert_array_equal(found, [65504, -65504, 65504])


@pytest.mark.parametrize(("wire", "bits"), NARROW)
@pytest.mark.parametrize("ranks", [2, 3])
def test_sums_are_the_same_bits_on_all_ranks(wire: str, bits: int, ranks: int) -> None:
    each = np.random.default_rng(2).normal(size=(ranks, 101)).astype(np.float32)
    found = {}

    def reduce(transport: Any) -> None:
        mine = each[transport.rank].copy()
        all_reduce(transport, mine, wire)
        found[transport.rank] = mine

    with in_threads(ranks, reduce) as transport:
        reduce(transport)
    for rank in range(1, ranks):
        np.testing.assert_array_equal(found[rank], found[0])
    most = np.abs(each).sum(axis=0).max() * ranks * 2.0**-bits
    np.testing.assert_allclose(found[0], each.sum(axis=0), rtol=0, atol=most)


def trained(model: Any, *others: str) -> tuple[list[Kept], Any, Any]:
    """Two ranks' devices, the summary and what was synchronised."""
    devices, cfg = [Kept(), Kept()], settings(model, 1, *others)
    check_ranks(2, cfg)
    with in_threads(2, lambda t: follow(model, cfg, devices[1], t)) as transport:
        mine = replica(transport, cfg)
        summary = Trainer(model, cfg, devices[0], None, replication=mine).run()
        found = mine.synchronised(0.0)
        devices[0].close()
    return devices, summary, found


STRATEGIES = ["allreduce", "hybrid", "servers", "group"]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("wire", daily(["bfloat16"], ["float16"]))
def test_training_goes_the_same_way_with_fewer_bytes(strategy: str, wire: str) -> None:
    """In double precision a number of 16 bits takes a quarter. The model has a table that goes by rows."""
    model = get_model("tree-lstm")
    small = ["sample=true", "hidden=4", "train_instances=4", "valid_instances=2", "epochs=1"]
    rule = ["optimizer=sgd", "lr=0.1", f"replicas.strategy={strategy}", "replicas.every=2"]
    rule = rule if strategy == "group" else rule[:-1]
    _, _, full = trained(model, *small, *rule)
    devices, _, narrow = trained(model, *small, *rule, f"replicas.wire={wire}")
    assert full.steps == narrow.steps
    gradients = [name for name in full.bytes if "#" not in name]
    if strategy != "group":
        for name in gradients:
            for way in ("sent", "received"):
                assert narrow.bytes[name][way] == full.bytes[name][way] / 4 > 0, name
            if name in full.formula:
                assert narrow.formula[name] == full.formula[name] / 4
    else:  # when all meet, they take the mean of parameters in full
        assert all(narrow.bytes[name]["sent"] < full.bytes[name]["sent"] for name in gradients)
    for name, value in devices[0].last.items():
        if name not in full.alpha or strategy in ("allreduce", "group"):  # of a served table ranks have rows
            np.testing.assert_array_equal(devices[1].last[name], value)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_still_learns(strategy: str) -> None:
    rule = ["lr=0.05", f"replicas.strategy={strategy}"]
    _, full, _ = trained(MODEL, *rule)
    _, narrow, _ = trained(MODEL, *rule, "replicas.wire=bfloat16")
    assert narrow.history[-1].train_loss == pytest.approx(full.history[-1].train_loss, rel=0.05)
    assert narrow.history[-1].train_loss < narrow.history[0].train_loss


def rounded(value: np.ndarray) -> np.ndarray:
    return decode(encode(value, "bfloat16"), "bfloat16", value.dtype)


def test_ranks_compute_with_what_is_rounded_and_servers_keep_the_rest() -> None:
    """All ranks, owners too, read the same bits; a learning rate far below them still moves what is owned."""
    read: dict[int, list[dict[str, np.ndarray]]] = {0: [], 1: []}

    class Noted(Kept):
        def submit(self, slot: int, generation: int, instance: Any, mode: Any) -> None:
            if mode.value == "train":
                found = self.parameters().items()
                here = {f"{n}.{k}": v.copy() for n, p in found for k, v in p.values.items()}
                read[devices.index(self)].append(here)
            super().submit(slot, generation, instance, mode)

    devices = [Noted(), Noted()]
    rule = ["optimizer=sgd", "lr=1e-4", "epochs=2", "replicas.strategy=servers", "replicas.wire=bfloat16"]
    train_in_threads(2, MODEL, settings(MODEL, 1, *rule), lambda rank: devices[rank])
    steps = list(zip(read[0], read[1], strict=True))
    assert len(steps) == 12
    for k, (one, other) in enumerate(steps):
        for name, value in one.items():
            np.testing.assert_array_equal(other[name], value)
            if k % 6:  # an epoch begins with what was validated, which is in full
                np.testing.assert_array_equal(rounded(value), value)
    begun, ended = steps[0][0], devices[0].last
    for name, value in ended.items():
        np.testing.assert_array_equal(devices[1].last[name], value)
    moved = np.abs(ended["head.W"] - begun["head.W"]).max()
    assert 0 < moved < np.abs(begun["head.W"]).max() * 2.0**-8
    assert (rounded(ended["head.W"]) != ended["head.W"]).any()
