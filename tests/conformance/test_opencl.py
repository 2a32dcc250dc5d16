"""OpenCL devices against the reference: every graph, on PoCL's kinds of devices, one and two at a time."""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.ir.device import Device, DeviceOptions, Mode
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from amphw.opencl import OpenCLDevice
from amphw.opencl.codegen.forms import Form, ProductForm
from tests.conformance.golden import assert_close, assert_golden, golden, trained
from tests.conformance.harness import Outcome, assert_same, reference, run
from tests.daily import daily
from tests.graphs.cases import CASES, Case, each_case
from tests.opencl.devices import BASIC, PTHREAD, PTHREADS

INSTANCES = 24
each = each_case()

# Small tiles in one form for all frames: compiling is what takes the time here.
FORM = Form(vector=4, product=ProductForm(rows=2, vectors=1))
# As for a GPU: work-groups that share rows, and products through local memory.
GROUPS = Form(vector=1, lanes=8, rows_per_item=1, product=ProductForm(rows=2, vectors=2, local=True, group=4))
RULE = UpdateRule(interval=7, optimizer="adam", lr=0.01)

RUNS: list[tuple[str, dict[str, Any]]] = [
    (PTHREAD, {"frame_cap": 64}),
    (PTHREAD, {"frame_cap": 3, "zero_copy": False, "depth": 1}),
    (PTHREADS, {"frame_cap": 64}),
    (PTHREADS, {"frame_cap": 16, "zero_copy": False}),
    (BASIC, {"frame_cap": 16, "policy": "fifo"}),
]


@cache
def problem(case: Case) -> tuple[Graph, list[Instance]]:
    graph, instances = case.build(), []
    for seed in count():
        instances += case.instances(seed)
        if len(instances) >= INSTANCES:
            break
    for number, instance in enumerate(instances):
        instance.number = number
    return graph, instances[:INSTANCES]


@cache
def expected(case: Case, mode: Mode = Mode.TRAIN) -> Outcome:
    return reference(*problem(case), mode=mode)


def on(argument: str, case: Case, **options: Any) -> Outcome:
    device = OpenCLDevice(argument)
    try:
        return run(device, *problem(case), **{"form": FORM, "rule": RULE} | options)
    finally:
        device.close()


@each
@pytest.mark.parametrize("argument,settings", daily(RUNS[:1], RUNS[1:]))
def test_gradients_summed_over_instances(case: Case, argument: str, settings: dict[str, Any]) -> None:
    found = on(argument, case, keys=16, **settings)
    assert found.forward == found.backward > 0
    assert_same(found, expected(case))


@each
def test_one_key_at_a_time_gives_the_same_sums(case: Case) -> None:
    assert_same(on(PTHREAD, case, keys=1), expected(case))


@each
def test_inference_gives_the_reference_losses_and_returns_nothing(case: Case) -> None:
    found = on(PTHREADS, case, mode=Mode.INFER)
    assert found.forward == found.backward == 0
    assert found.losses == pytest.approx(expected(case, Mode.INFER).losses, rel=1e-5, abs=1e-6)
    assert all(not g.any() for g in found.gradients.values())


@each
@pytest.mark.parametrize("argument,keys", daily([(PTHREAD, 8)], [(PTHREADS, 16)]))
def test_a_replayed_log_gives_the_same_bits(case: Case, argument: str, keys: int) -> None:
    options = {
        "keys": keys,
        "updates": "self",
        "frame_cap": 5,
    }
    first = on(argument, case, log=True, **options)
    again = OpenCLDevice(argument, replay=first.device.log)  # type: ignore[attr-defined]
    second = run(again, *problem(case), form=FORM, rule=RULE, **options)
    again.close()
    assert first.losses == second.losses
    for name, value in first.parameters.items():
        np.testing.assert_array_equal(value, second.parameters[name], err_msg=name)


@each
@pytest.mark.usefixtures("unfolded")
def test_a_log_of_this_device_or_of_the_cpu_leads_to_the_same_on_the_others(case: Case) -> None:
    """`tests/conformance/test_replay.py` says what this is worth."""
    cpu, opencl = CpuDevice(), OpenCLDevice(PTHREAD)
    ours = {"form": FORM, "frame_cap": 5}
    logged = {
        cpu: trained(cpu, case, log=True, frame_cap=5),
        opencl: trained(opencl, case, log=True, **ours),
    }
    for device, found in logged.items():
        again: list[tuple[Any, dict[str, Any]]] = [(ReferenceDevice("fifo", np.float64, device.log), {})]
        again.append(
            (OpenCLDevice(PTHREAD, device.log), ours) if device is cpu else (CpuDevice(device.log), {})
        )
        for other, settings in again:
            assert_close(trained(other, case, **settings), found)


@each
def test_the_golden_log_of_the_engine(case: Case) -> None:
    """Recorded by `tests/conformance/golden.py`."""
    log = golden(case.name)
    assert_golden(case, log, OpenCLDevice(PTHREAD, replay=log.events), form=FORM, frame_cap=5)


def stepwise(device: Device, case: Case) -> dict[str, np.ndarray]:
    """Parameters after an update behind each of some instances."""
    graph, instances = problem(case)
    device.load(graph, {"*": RULE}, DeviceOptions(1, 1, "controller", 3, settings={"form": FORM}))
    try:
        for generation, instance in enumerate(instances[:8]):
            device.submit(0, generation, instance, Mode.TRAIN)
            device.drain()
            device.update()
        return {f"{n}.{k}": v.copy() for n, p in device.parameters().items() for k, v in p.values.items()}
    finally:
        device.close()


@each
def test_updates_lead_where_the_reference_goes(case: Case) -> None:
    wanted = stepwise(ReferenceDevice("fifo", np.float64), case)
    for name, value in stepwise(OpenCLDevice(PTHREAD), case).items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-3, atol=1e-4, err_msg=name)


@each_case(CASES[::4])
@pytest.mark.parametrize("settings", [{"form": GROUPS, "zero_copy": False}, {"fuse": False}])
def test_other_forms_and_graphs_that_are_not_fused(case: Case, settings: dict[str, Any]) -> None:
    assert_same(on(PTHREAD, case, keys=16, **settings), expected(case))
