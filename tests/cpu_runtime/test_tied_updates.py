"""Parameters that several functions share: how they are updated on either plane, and kept by runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amphw
from amphw import frontend as fe
from amphw.cpu_runtime import CpuDevice
from amphw.ir import functions as f
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.passes import replicate
from amphw.ir.reference import ReferenceDevice
from amphw.ir.start import starting_at
from amphw.ir.update import UpdateRule
from tests.conformance.harness import run
from tests.daily import daily
from tests.graphs.cases import CASES

pytestmark = pytest.mark.usefixtures("plane")
V, W = 9, 4
SPEC = fe.Record(words=fe.Sequence(fe.Int(V), most=5), next=fe.Int(V))


EVERY = [("fe-tied", "adam"), ("fe-ways", "adagrad")]
OTHERS = [
    (name, optimizer)
    for name in ("fe-tied", "fe-functions", "fe-ways")
    for optimizer in ("sgd", "momentum", "adam", "lazy_adam", "adagrad")
    if (name, optimizer) not in EVERY
]


@pytest.mark.parametrize("name,optimizer", daily(EVERY, OTHERS))
def test_updates_are_those_of_the_reference(name: str, optimizer: str) -> None:
    """An update of all nodes after every fourth instance, in which gradients of all functions are one sum."""
    (case,) = (c for c in CASES if c.name == name)
    drawn = [i for seed in range(24) for i in case.instances(seed)][:24]
    for number, instance in enumerate(drawn):
        instance.number = number
    rule = UpdateRule(optimizer=optimizer, lr=0.05, eps=1e-4)
    found, expected = (
        _trained(device, case.build(), drawn, rule)
        for device in (CpuDevice(), ReferenceDevice("fifo", np.float64))
    )
    assert found[1] == expected[1]  # the rows that gradients were counted over
    for key, value in expected[0].items():
        np.testing.assert_allclose(found[0][key], value, rtol=1e-3, atol=2e-5, err_msg=key)


def _trained(
    device: Any, graph: Graph, drawn: list[Instance], rule: UpdateRule
) -> tuple[dict[str, np.ndarray], list[dict[str, int]]]:
    device.load(graph, {"*": rule}, DeviceOptions(1, 0, "controller", 3))
    counted = []
    for start in range(0, len(drawn), 4):
        for instance in drawn[start : start + 4]:
            device.submit(0, 0, instance, Mode.TRAIN)
            assert len(device.drain()) == 1
        counted.append({node: p.rows for node, p in device.parameters().items()})
        device.update()
    values = {f"{n}.{k}": v.copy() for n, p in device.parameters().items() for k, v in p.values.items()}
    if isinstance(device, CpuDevice):
        device.close()
    return values, counted


def test_an_interval_counts_the_rows_of_all_uses() -> None:
    """A row for each word that is looked up, and one for each product."""
    compiled = fe.compile(_reads_and_compares(), SPEC)
    device = CpuDevice()
    device.load(compiled.graph, {"*": UpdateRule()}, DeviceOptions(1, 0, "off", 3))
    device.submit(0, 0, compiled.encode({"words": [1, 2, 3, 1], "next": 5}), Mode.TRAIN)
    device.drain()
    assert device.parameters()["embed"].rows == 4 + 1
    device.close()


def test_a_table_that_functions_look_up_is_updated_row_by_row() -> None:
    table = fe.Layer(
        shapes={"E": (V, W)}, plain=lambda p, i: f.take(p.E, i), scaled=lambda p, x, i: f.take(p.E, i) * x
    )

    def model(x: Any) -> None:
        h = table.scaled(fe.reduce(table.plain(x.words)), x.next)
        fe.loss(fe.sum_columns(h))

    compiled = fe.compile(model, SPEC)
    device = CpuDevice()
    device.load(compiled.graph, {"*": UpdateRule(optimizer="adagrad")}, DeviceOptions(1, 0, "self", 3))
    before = device.parameters()["table"].values["E"].copy()
    device.submit(0, 0, compiled.encode({"words": [1, 4, 1], "next": 2}), Mode.TRAIN)
    device.drain()
    moved = np.flatnonzero((device.parameters()["table"].values["E"] != before).any(axis=1))
    assert moved.tolist() == [1, 2, 4]
    device.close()


def test_replicas_of_a_tied_table_add_up_to_its_gradient() -> None:
    compiled = fe.compile(_reads_and_compares(), SPEC)
    drawn = [compiled.encode({"words": [k, 2, 3, k], "next": k}, k) for k in range(V)]
    start = np.random.default_rng(0).normal(size=(V, W)).astype(np.float32)
    whole, parts = (
        run(CpuDevice(), starting_at(graph, dict.fromkeys(graph.parameterised, {"E": start})), drawn)
        for graph in (compiled.graph, replicate(compiled.graph, "embed", 2, "hash"))
    )
    assert sorted(parts.gradients) == ["embed_0.E", "embed_1.E"]
    np.testing.assert_allclose(
        sum(parts.gradients.values()), whole.gradients["embed.E"], rtol=1e-4, atol=1e-5
    )
    assert parts.losses == pytest.approx(whole.losses, rel=1e-5)


def test_a_run_keeps_a_tied_table_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lists = [rng.integers(0, V, rng.integers(1, 6)) for _ in range(60)]
    data = [{"words": words, "next": int(words[-1])} for words in lists]
    kept = {"epochs": 2, "progress": False, "workers": 1, "out": tmp_path / "run", "valid": None}
    trained = amphw.train(_reads_and_compares(), data, spec=SPEC, **kept)
    assert list(trained.parameters) == ["embed"] and trained.parameters["embed"]["E"].shape == (V, W)
    again = amphw.load(tmp_path / "run")
    np.testing.assert_array_equal(again.parameters["embed"]["E"], trained.parameters["embed"]["E"])
    assert again.predict(data[:3]) == trained.predict(data[:3])


def _reads_and_compares() -> Any:
    embed = fe.Embedding(V, W, init="normal:0.5")

    def model(x: Any) -> None:
        fe.classify(embed.attend(fe.reduce(embed(x.words))), x.next)

    return model
