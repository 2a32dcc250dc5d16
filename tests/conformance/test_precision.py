"""The CPU device with products of bfloat16 against the reference with them, at the tolerances of float32.

A number near the middle between two of bfloat16 is rounded up by one executor and down by the other, where
their float32 sums differ in the last place: both are right, and 2^-8 apart. So instances are compared in
which no number comes that near, as the reference in float64 sees; there is nothing in them to be right about
in two ways.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice, planes
from amphw.engine.tiles.gemm_choice import PORTABLE
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.precision import rounded
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from tests.conformance.harness import Outcome, assert_same, reference, run
from tests.cpu_runtime.running import gradients
from tests.daily import daily
from tests.graphs.cases import Case, each_case

WANTED = 40
"""Instances of every graph."""
NEAR = 2.0**-20
"""How near the middle is too near, relative to the largest number of its array."""

each = each_case()
pytestmark = pytest.mark.usefixtures("plane")


class Watched(ReferenceDevice):
    """The reference in float64, which notes whether two executors may round a factor to different numbers."""

    def __init__(self) -> None:
        super().__init__("fifo", np.float64)
        self.near = False

    def open(self, *args: Any) -> None:
        super().open(*args)
        product = self.product

        def watched(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            self.near = self.near or _near(a) or _near(b)
            return product(a, b)

        self.product = watched


def _near(a: np.ndarray) -> bool:
    """Whether a number is near the middle of two, and so large that it matters which is taken. Numbers that
    float32 has, such as parameters, data and what is looked up, are the same ones everywhere."""
    if a.size == 0:
        return False
    largest = np.abs(a).max()
    apart = np.abs(a - rounded(a))
    _, exponent = np.frexp(a)
    half = np.ldexp(0.5, exponent - 8)
    open_ = (a != a.astype(np.float32)) & (half > 4 * NEAR * largest)
    return bool((open_ & (half - apart < NEAR * largest)).any())


@cache
def problem(case: Case) -> tuple[Graph, list[Instance], Outcome]:
    graph, instances, watched = case.build(), [], Watched()
    watched.load(graph, {"*": UpdateRule()}, DeviceOptions(1, 0, "off", 3, settings={"precision": "bf16"}))
    for seed in range(40):
        for instance in case.instances(seed):
            watched.near, instance.number = False, len(instances)  # what is drawn at random hangs on it
            watched.submit(0, 0, instance, Mode.TRAIN)
            watched.drain()
            if not watched.near:
                instances.append(instance)
        if len(instances) >= WANTED:
            break
    assert len(instances) >= WANTED // 4, "too many have a number that may be rounded up or down: lower NEAR"
    return graph, instances, reference(graph, instances, precision="bf16")


@pytest.fixture(autouse=True)
def portable(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the instruction where the processor has it, else without."""
    if planes.built():
        from amphw.engine._native import kernels

        if not kernels.has_bf16():
            monkeypatch.setenv(PORTABLE, "portable")


CONFIGURATIONS = [
    {"workers": 3, "frame_cap": 16},
    {"workers": 1, "frame_cap": 1},
    {"workers": 2, "frame_cap": 64, "min_rows": 32},
    {"workers": 2, "frame_cap": 4, "fuse": False},
]


def _name(value: object) -> str:
    return "-".join(map(str, value.values())) if isinstance(value, dict) else str(value)


@each
@pytest.mark.parametrize("settings", daily(CONFIGURATIONS[:1], CONFIGURATIONS[1:]), ids=_name)
def test_gradients_summed_over_instances(case: Case, settings: dict[str, Any]) -> None:
    graph, instances, expected = problem(case)
    device = CpuDevice()
    try:
        found = run(device, graph, instances, keys=16, precision="bf16", **settings)
    finally:
        device.close()
    assert found.forward == found.backward > 0
    assert_same(found, expected)


@each
def test_inference_gives_the_reference_losses(case: Case) -> None:
    graph, instances, _ = problem(case)
    expected = reference(graph, instances[:20], mode=Mode.INFER, precision="bf16")
    device = CpuDevice()
    try:
        found = run(device, graph, instances[:20], mode=Mode.INFER, workers=2, precision="bf16")
    finally:
        device.close()
    assert found.losses == pytest.approx(expected.losses, rel=1e-5, abs=1e-6)


@each
def test_what_is_rounded_is_not_what_float32_has(case: Case) -> None:
    """So that the comparisons above cannot be of float32 on both sides."""
    graph, instances, expected = problem(case)
    plain = reference(graph, instances)
    assert any(
        np.linalg.norm(plain.gradients[name] - g) > 1e-4 * np.linalg.norm(g)
        for name, g in expected.gradients.items()
    )


@each
def test_a_replayed_log_gives_the_same_bits(case: Case) -> None:
    graph, instances, _ = problem(case)
    rule = UpdateRule(interval=7, optimizer="adam", lr=0.01)
    options: dict[str, Any] = {
        "keys": 8,
        "updates": "self",
        "rule": rule,
        "frame_cap": 5,
        "precision": "bf16",
    }
    device = CpuDevice()
    try:
        first = run(device, graph, instances, log=True, workers=2, **options)
    finally:
        device.close()
    again = CpuDevice(replay=device.log)
    second = run(again, graph, instances, **options)
    again.close()
    assert first.losses == second.losses
    for name, value in first.parameters.items():
        np.testing.assert_array_equal(value, second.parameters[name], err_msg=name)


@each
def test_every_version_is_multiplied_by_as_it_is(case: Case) -> None:
    """After updates of its own a device computes what one does that is given the same parameters: what
    products read of a version was made of that version, in either direction, in each of the buffers."""
    graph, instances, _ = problem(case)
    rule = UpdateRule(interval=5, optimizer="momentum", lr=0.05)
    options = DeviceOptions(4, 0, "controller", 3, settings={"precision": "bf16", "workers": 1})
    trained, fresh = CpuDevice(), CpuDevice()
    try:
        for device in (trained, fresh):
            device.load(graph, {"*": rule}, options)
        for instance in instances[:8]:
            trained.submit(0, 0, instance, Mode.TRAIN)
            trained.drain()
            trained.update()
            there, here = trained.parameters(), fresh.parameters()
            for node, p in there.items():
                here[node].values = {name: value.copy() for name, value in p.values.items()}
                for name, g in here[node].gradients.items():
                    g[...] = p.gradients[name]
                here[node].rows = p.rows
            found = []
            for device in (trained, fresh):
                device.submit(0, 0, instances[-1], Mode.TRAIN)
                device.drain()
                found.append(gradients(device))
            for key, g in found[0].items():
                np.testing.assert_array_equal(g, found[1][key], err_msg=key)
    finally:
        trained.close()
        fresh.close()
