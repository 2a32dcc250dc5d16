"""OpenCL devices against the reference: every graph, on PoCL's kinds of devices, one and two at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amphw.ir.device import Device, DeviceOptions, Mode
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from amphw.opencl import OpenCLDevice
from amphw.opencl.forms import Form, ProductForm
from tests.conformance.harness import Outcome, assert_same, reference, run
from tests.conformance.test_cpu import problem
from tests.graphs.cases import CASES, Case
from tests.opencl.devices import BASIC, PTHREAD, PTHREADS

INSTANCES = 60
each = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)

# As for a GPU: work-groups that share rows, products through local memory, and a memory of the device's own.
GROUPS = Form(vector=1, lanes=8, rows_per_item=1, product=ProductForm(rows=2, vectors=2, local=True, group=4))

RUNS: list[tuple[str, dict[str, Any]]] = [
    (PTHREAD, {"frame_cap": 64}),
    (PTHREAD, {"frame_cap": 3, "zero_copy": False, "depth": 1}),
    (BASIC, {"frame_cap": 16, "policy": "fifo"}),
    (PTHREADS, {"frame_cap": 64}),
    (PTHREADS, {"frame_cap": 16, "zero_copy": False, "fuse": False}),
    (PTHREAD, {"frame_cap": 16, "zero_copy": False, "form": GROUPS}),
]


def on(argument: str, case: Case, count: int = INSTANCES, **options: Any) -> Outcome:
    graph, instances, _ = problem(case)
    device = OpenCLDevice(argument)
    try:
        return run(device, graph, instances[:count], **options)
    finally:
        device.close()


def expected(case: Case, count: int = INSTANCES, **options: Any) -> Outcome:
    graph, instances, _ = problem(case)
    return reference(graph, instances[:count], **options)


@each
@pytest.mark.parametrize("argument,settings", RUNS)
def test_gradients_summed_over_instances(case: Case, argument: str, settings: dict[str, Any]) -> None:
    found = on(argument, case, keys=16, **settings)
    assert found.forward == found.backward > 0
    assert_same(found, expected(case))


@each
def test_one_key_at_a_time_gives_the_same_sums(case: Case) -> None:
    assert_same(on(PTHREAD, case, 20, keys=1), expected(case, 20))


@each
@pytest.mark.parametrize("argument", [PTHREAD, PTHREADS])
def test_inference_gives_the_reference_losses_and_returns_nothing(case: Case, argument: str) -> None:
    found = on(argument, case, 40, mode=Mode.INFER)
    assert found.forward == found.backward == 0
    assert found.losses == pytest.approx(expected(case, 40, mode=Mode.INFER).losses, rel=1e-5, abs=1e-6)
    assert all(not g.any() for g in found.gradients.values())


@each
@pytest.mark.parametrize("argument,keys", [(PTHREAD, 1), (PTHREAD, 8), (PTHREADS, 16)])
def test_a_replayed_log_gives_the_same_bits(case: Case, argument: str, keys: int) -> None:
    graph, instances, _ = problem(case)
    options = {
        "keys": keys,
        "updates": "self",
        "rule": UpdateRule(interval=7, optimizer="adam", lr=0.01),
        "frame_cap": 5,
    }
    first = on(argument, case, log=True, **options)
    again = OpenCLDevice(argument, replay=first.device.log)  # type: ignore[attr-defined]
    second = run(again, graph, instances[:INSTANCES], **options)
    again.close()
    assert first.losses == second.losses
    for name, value in first.parameters.items():
        np.testing.assert_array_equal(value, second.parameters[name], err_msg=name)


def stepwise(device: Device, case: Case, rule: UpdateRule) -> dict[str, np.ndarray]:
    """Parameters after an update behind each of some instances."""
    graph, instances, _ = problem(case)
    device.load(graph, {"*": rule}, DeviceOptions(1, 1, "controller", 3))
    try:
        for generation, instance in enumerate(instances[:12]):
            device.submit(0, generation, instance, Mode.TRAIN)
            device.drain()
            device.update()
        return {f"{n}.{k}": v.copy() for n, p in device.parameters().items() for k, v in p.values.items()}
    finally:
        device.close()


@each
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_updates_lead_where_the_reference_goes(case: Case, optimizer: str) -> None:
    rule = UpdateRule(optimizer=optimizer, lr=0.01, clip=0.5)
    wanted = stepwise(ReferenceDevice("fifo", np.float64), case, rule)
    for name, value in stepwise(OpenCLDevice(PTHREAD), case, rule).items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-3, atol=1e-4, err_msg=name)
