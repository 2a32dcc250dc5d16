"""Updates on the device are those of `NodeParameters`, update by update, with one instance in flight."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.cpu_runtime import CpuDevice
from amphw.engine.lowering.describe import describe_rule
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.expr import ROW, Attr, lift, table
from amphw.ir.functions import cross_entropy, linear, take, tanh
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema, TableType
from amphw.ir.nodes import PPT, Loss, Source
from amphw.ir.optimizers import OPTIMIZERS, SCHEDULES
from amphw.ir.program import ParamSpec, trace
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from tests.cpu_runtime.running import Loader, values

WORDS, WIDTH, CLASSES, BATCH = 30, 5, 3, 4


def words() -> Graph:
    """Words - embed (a table, of which a batch reads few rows) - head - loss."""
    rows = Attr("rows")
    column = TableType((rows,), lift(WORDS))
    g = Graph("words", Schema({"rows": 8}, {"word": column, "label": TableType((rows,), lift(CLASSES))}))
    g.add(Source("start", rows=rows))
    params = {"E": (WORDS, WIDTH)}
    g.add(PPT("embed", trace(lambda p, x: take(p.E, table("word")(ROW)), {"x": 0}, params)))
    head: dict[str, tuple[int, ...] | ParamSpec] = {
        "W": (WIDTH, CLASSES),
        "b": ParamSpec("b", (CLASSES,), "uniform:0.3"),
    }
    g.add(PPT("head", trace(lambda p, x: linear(tanh(x), p.W, p.b), {"x": WIDTH}, head)))
    g.add(Loss("loss", trace(lambda y: cross_entropy(y, table("label")(ROW)), {"y": CLASSES})))
    g.connect("start", "embed", "head", "loss")
    return g


def instances(count: int) -> list[Instance]:
    rng = np.random.default_rng(5)
    return [
        Instance(
            {"rows": BATCH},
            {"word": rng.integers(0, WORDS, BATCH), "label": rng.integers(0, CLASSES, BATCH)},
            {},
            number,
        )
        for number in range(count)
    ]


def tensors(device: Any) -> dict[str, np.ndarray]:
    """Values and the optimiser's slots."""
    return {f"{n}.{k}": v.copy() for n, p in device.parameters().items() for k, v in p.tensors().items()}


def train(device: Any, given: list[Instance]) -> None:
    for instance in given:
        device.submit(0, 0, instance, Mode.TRAIN)
        assert len(device.drain()) == 1


def both(load: Loader, rule: UpdateRule) -> tuple[CpuDevice, ReferenceDevice]:
    reference = ReferenceDevice()
    reference.load(words(), {"*": rule}, DeviceOptions(1, 1, "self", 3))
    return load(words(), rule, updates="self", keys=1, workers=2), reference


def assert_close(device: CpuDevice, reference: ReferenceDevice) -> None:
    found, expected = tensors(device), tensors(reference)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=2e-5, err_msg=name)
    versions = {n: (p.version, p.rows) for n, p in reference.parameters().items()}
    assert {n: (p.version, p.rows) for n, p in device.parameters().items()} == versions


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "several-instances-an-update": {"interval": 3 * BATCH - 1},
    "sum": {"reduce": "sum"},
    "clip": {"clip": 0.05, "reduce": "sum"},
    "decay": {"weight_decay": 0.02},
    "step": {"schedule": "step", "schedule_steps": 4},
    "exponential": {"schedule": "exponential", "schedule_steps": 5, "warmup": 6},
    "cosine": {"schedule": "cosine", "schedule_steps": 20, "warmup": 3, "clip": 0.3, "weight_decay": 0.01},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_many_updates(load: Loader, optimizer: str, variant: str) -> None:
    """Without momentum and decay, a table's rows that no gradient reached are left alone; the reference
    touches them all."""
    rate = {"adam": 0.02, "lazy_adam": 0.02, "nadam": 0.02, "adagrad": 0.1}.get(optimizer, 0.2)
    settings = {"interval": BATCH, "optimizer": optimizer, "lr": rate, "eps": 1e-6, **VARIANTS[variant]}
    device, reference = both(load, UpdateRule(**settings))
    before = values(device)["embed.E"]
    for each in (device, reference):
        train(each, instances(30))
    assert reference.parameters()["head"].version >= 10
    assert not np.allclose(values(device)["embed.E"], before)
    assert_close(device, reference)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam", "lazy_adam", "nadam"])
def test_updates_go_on_from_what_the_host_wrote(load: Loader, optimizer: str) -> None:
    """As when a checkpoint is restored, in the middle of an interval."""
    device, reference = both(load, UpdateRule(interval=2 * BATCH, optimizer=optimizer, lr=0.05, eps=1e-6))
    given = instances(25)
    for each in (device, reference):
        train(each, given[:9])
        rng = np.random.default_rng(1)
        for node in each.parameters().values():
            node.values = {k: rng.normal(size=v.shape).astype(v.dtype) for k, v in node.values.items()}
            for arrays in node.slots.values():
                for a in arrays:
                    a[...] = rng.uniform(0.5, 1.0, a.shape)
            node.version = 100
            node.state = dict.fromkeys(node.state, 0.25)
        train(each, given[9:])
    assert_close(device, reference)


rates = st.floats(1e-6, 10.0)


@given(
    st.sampled_from(list(SCHEDULES)),
    rates,
    st.integers(0, 5000),
    st.floats(0.01, 1.0),
    st.integers(0, 300),
    st.integers(0, 10**6),
)
def test_rates_of_the_schedules(
    schedule: str, lr: float, steps: int, gamma: float, warmup: int, updates: int
) -> None:
    native = pytest.importorskip("amphw.engine._native", reason="the C++ data plane is not built")
    rule = UpdateRule(lr=lr, schedule=schedule, schedule_steps=steps, schedule_gamma=gamma, warmup=warmup)
    assert native.rate(describe_rule(rule), updates) == pytest.approx(rule.rate(updates), rel=1e-12)
