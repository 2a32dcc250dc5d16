"""A log of any executor, repeated on another one, leads to the same parameters: asynchronous training, with
its stale gradients, means on each of them what it means on the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice, planes
from amphw.ir.device import Device, DeviceOptions, Mode
from amphw.ir.errors import ExecutionError
from amphw.ir.reference import ReferenceDevice
from amphw.ir.service_log import ServiceLog
from amphw.rtl.fixed.device import FixedDevice
from tests.conformance.golden import (
    FORMATS,
    GOLDEN,
    HARDWARE,
    RECORDED,
    RULE,
    TOLERANCE,
    assert_close,
    assert_golden,
    golden,
    hardware_run,
    instances_of,
    trained,
)
from tests.conformance.harness import Outcome
from tests.graphs.cases import CASES, RESTING, Case, each_case

each = each_case(CASES)


def recorded(device: Any, case: Case, **settings: Any) -> tuple[Outcome, ServiceLog]:
    found = trained(device, case, log=True, **settings)
    return found, device.log


def exact(log: ServiceLog) -> Device:
    return ReferenceDevice("fifo", np.float64, replay=log)


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    if not planes.built():
        pytest.skip("the C++ data plane is not built")


@each
@pytest.mark.usefixtures("unfolded")
@pytest.mark.parametrize("settings", [{"frame_cap": 5}, {"fuse": False}], ids=["fused", "as written"])
def test_the_engines_log_on_the_reference(case: Case, settings: dict[str, Any]) -> None:
    found, log = recorded(CpuDevice(), case, workers=2, **settings)
    assert_close(found, trained(exact(log), case))


@each
def test_the_numpy_planes_log_on_the_reference(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(planes.ENGINE, "numpy")
    found, log = recorded(CpuDevice(), case, workers=2, frame_cap=5)
    assert_close(found, trained(exact(log), case))


@each
def test_the_references_log_on_itself(case: Case) -> None:
    found, log = recorded(ReferenceDevice("random"), case)
    again = trained(ReferenceDevice("fifo", replay=log), case)
    assert found.losses == again.losses
    for name, value in found.parameters.items():
        np.testing.assert_array_equal(value, again.parameters[name], err_msg=name)


@each_case([case for case in CASES if case.name not in RESTING])
@pytest.mark.usefixtures("unfolded")
def test_the_references_log_on_the_engine(case: Case) -> None:
    found, log = recorded(ReferenceDevice("random", np.float64), case)
    assert_close(trained(CpuDevice(replay=log), case, fuse=False), found)


def test_another_order_leads_elsewhere() -> None:
    """What the tolerance above is worth."""
    (case,) = (c for c in CASES if c.name == "tree-all")
    found, _ = recorded(CpuDevice(), case, workers=2, frame_cap=5)
    wanted = trained(ReferenceDevice("fifo", np.float64), case).parameters
    apart = max(np.abs(value - wanted[name]).max() for name, value in found.parameters.items())
    assert apart > 100 * TOLERANCE


@pytest.mark.parametrize("recorder,plane", [("native", "numpy"), ("numpy", "native")])
def test_planes_that_count_rows_otherwise_refuse_each_others_logs(
    recorder: str, plane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(planes.ENGINE, recorder)
    _, log = recorded(CpuDevice(), CASES[0])
    monkeypatch.setenv(planes.ENGINE, plane)
    with pytest.raises(ExecutionError, match=r"^replay: this log .*count"):
        trained(CpuDevice(replay=log), CASES[0])


@pytest.mark.parametrize("make", [exact, lambda log: CpuDevice(replay=log)], ids=["reference", "cpu"])
def test_updates_that_the_controller_asks_for_are_in_the_log(make: Callable[[ServiceLog], Any]) -> None:
    """At their place among the frames, where the host's own calls are ignored."""
    case = CASES[0]

    def stepwise(device: Any, log: bool) -> dict[str, np.ndarray]:
        settings = {} if isinstance(device, ReferenceDevice) else {"workers": 1}
        device.load(case.build(), {"*": RULE}, DeviceOptions(2, 1, "controller", 3, log, settings))
        for number, instance in enumerate(instances_of(case, 16)):
            device.submit(number % 2, number, instance, Mode.TRAIN)
            if number % 2:
                device.drain()
                device.update()
        found = {f"{n}.{k}": v.copy() for n, p in device.parameters().items() for k, v in p.values.items()}
        device.close()
        return found

    first = CpuDevice()
    wanted = stepwise(first, True)
    assert sum(event[0] == "seal" and event[2] == "update" for event in first.log) >= 8
    again = stepwise(make(first.log), False)
    for name, value in wanted.items():
        np.testing.assert_allclose(again[name], value, rtol=0, atol=TOLERANCE, err_msg=name)


@each
def test_the_golden_log_on_the_reference(case: Case) -> None:
    log = golden(case.name)
    assert log.whole and len(log.reports) == GOLDEN
    assert_golden(case, log, exact(log.events))


@each
def test_the_golden_log_on_the_engine(case: Case) -> None:
    log = golden(case.name)
    assert_golden(case, log, CpuDevice(replay=log.events), **RECORDED)


def test_the_golden_log_of_hardware_on_the_model_of_its_arithmetic() -> None:
    log = golden(f"verilator-{HARDWARE}")
    found = hardware_run(FixedDevice(FORMATS, replay=log.events))
    assert [(r.number, r.mode.value, r.sums) for r in found] == log.reports
    updates = sum(event[0] == "reduced" for event in log.events)
    assert updates >= 4
