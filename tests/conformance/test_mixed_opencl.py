"""OpenCL devices as parts of a run beside the CPU: the same as the reference, whatever is placed where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import planes
from amphw.ir.device import Device, DeviceOptions, Mode
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from amphw.mixed.device import MixedDevice
from amphw.opencl import OpenCLDevice
from amphw.opencl.codegen.forms import GPU_FORM
from tests.conformance.harness import assert_same, run
from tests.conformance.test_mixed import NumpyFloats, alternately
from tests.conformance.test_opencl import FORM, RULE, expected, problem
from tests.daily import daily
from tests.graphs.cases import CASES, EVERYDAY, Case, each_case
from tests.opencl.devices import PTHREAD

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")

SECOND = "2"
"""PoCL's other pool of threads."""


def _marks(case: Case, usual: bool) -> list[pytest.MarkDecorator]:
    if not usual:
        return [pytest.mark.slow]
    return [] if case.name in EVERYDAY else [pytest.mark.thorough]


# Compiling is what takes the time: all three placements of a case only in the long run of the tests.
PLACED = [
    pytest.param(case, first, marks=_marks(case, first == k % 3), id=f"{case.name}-{first}")
    for k, case in enumerate(CASES)
    for first in range(3)
]

SETTINGS: list[dict[str, Any]] = [
    {"zero_copy": False, "frame_cap": 3, "depth": 1},
    {"zero_copy": False, "form": GPU_FORM},
    {"memory": 1 << 18, "frame_cap": 5},
]
"""Memory of the device's own; kernels as for a GPU; so little memory that instances wait for each other."""


def some(first: int, step: int) -> pytest.MarkDecorator:
    return each_case(CASES[first::step])


def mixed(**options: Any) -> MixedDevice:
    return MixedDevice({"one": OpenCLDevice(PTHREAD), "two": OpenCLDevice(SECOND)}, **options)


@pytest.mark.parametrize("case,first", PLACED)
def test_gradients_are_those_of_the_reference(case: Case, first: int) -> None:
    device = mixed()
    found = run(device, *problem(case), form=FORM, place=alternately(case.build(), first))
    device.close()
    assert found.forward == found.backward
    assert_same(found, expected(case))


@pytest.mark.parametrize(
    "settings", daily(SETTINGS[:1], SETTINGS[1:]), ids=["memory of its own", "as a GPU", "little memory"]
)
@some(1, 6)
def test_other_devices_give_the_same(case: Case, settings: dict[str, Any]) -> None:
    device = MixedDevice({"one": OpenCLDevice(PTHREAD), "two": NumpyFloats()})
    place = alternately(case.build(), 2)
    found = run(device, *problem(case), keys=16, **{"form": FORM, "place": place} | settings)
    device.close()
    assert found.forward == found.backward
    assert_same(found, expected(case))


@some(2, 4)
def test_inference_is_that_of_the_reference(case: Case) -> None:
    device = mixed()
    found = run(device, *problem(case), mode=Mode.PREDICT, form=FORM, place=alternately(case.build(), 1))
    device.close()
    assert found.losses == pytest.approx(expected(case, Mode.PREDICT).losses, rel=1e-5, abs=1e-6)


def stepwise(device: Device, case: Case, settings: dict[str, Any]) -> dict[str, np.ndarray]:
    """Parameters after an update behind each of some instances."""
    graph, instances = problem(case)
    device.load(graph, {"*": RULE}, DeviceOptions(1, 1, "controller", 3, settings=settings))
    try:
        for generation, instance in enumerate(instances[:8]):
            device.submit(0, generation, instance, Mode.TRAIN)
            device.drain()
            device.update()
        parameters = device.parameters()
        assert {p.version for p in parameters.values()} <= set(range(1, 9))
        return {f"{n}.{k}": v.copy() for n, p in parameters.items() for k, v in p.values.items()}
    finally:
        device.close()


@some(3, 4)
def test_updates_lead_where_the_reference_goes(case: Case) -> None:
    wanted = stepwise(ReferenceDevice("fifo", np.float64), case, {})
    found = stepwise(mixed(), case, {"form": FORM, "place": alternately(case.build(), 2)})
    assert set(found) == set(wanted)
    for name, value in found.items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-3, atol=1e-4, err_msg=name)


def replayed(case: Case, **settings: Any) -> None:
    """A run that updates parameters, and again by its log."""
    rule = UpdateRule(interval=3, lr=0.05, optimizer="momentum")
    place = alternately(case.build(), 1)
    options = {"keys": 4, "updates": "self", "rule": rule, "place": place, "form": FORM, **settings}
    first = mixed()
    found = run(first, *problem(case), log=True, **options)
    first.close()
    again = mixed(replay=list(first.log))
    repeated = run(again, *problem(case), **options)
    again.close()
    assert repeated.losses == found.losses
    for name, value in found.parameters.items():
        np.testing.assert_array_equal(repeated.parameters[name], value, err_msg=name)


@pytest.mark.parametrize("settings", [{}, {"memory": 1 << 18}], ids=["", "little memory"])
@some(0, 5)
def test_a_replayed_run_is_the_same_to_the_bit(case: Case, settings: dict[str, Any]) -> None:
    replayed(case, **settings)


def test_an_instance_without_room_waits_for_it() -> None:
    """In memory that devices share: none is dropped that others have left no room for."""
    replayed(next(case for case in CASES if case.name == "fe-nested"), memory=1 << 18)


@some(0, 10)
def test_values_that_the_host_writes_are_taken(case: Case) -> None:
    graph, instances = problem(case)
    device = mixed()
    place = alternately(graph, 0)
    run(device, graph, instances[:3], form=FORM, place=place)
    other = ReferenceDevice("fifo", np.float64)
    other.load(graph, {"*": UpdateRule()}, DeviceOptions(8, 0, "off", 3))
    for node, p in device.parameters().items():
        p.values = {k: np.asarray(0.5 * v, np.float32) for k, v in p.values.items()}
        other.parameters()[node].values = {k: np.asarray(v, np.float64) for k, v in p.values.items()}
    found = {}
    for each in (device, other):
        for slot, instance in enumerate(instances[:4]):
            each.submit(slot, 200, instance, Mode.INFER)
        reports = each.drain()
        found[each] = {r.number: sum(s["loss"] for s in r.sums.values()) for r in reports}
        each.close()
    assert found[device] == pytest.approx(found[other], rel=1e-5, abs=1e-6)


@some(0, 10)
def test_updates_and_staleness_are_counted(case: Case) -> None:
    """Of every gradient row how many versions lay between its two directions."""
    device = mixed()
    graph, instances = problem(case)
    place = alternately(graph, 1)
    rule = UpdateRule(interval=2, lr=0.01)
    device.load(graph, {"*": rule}, DeviceOptions(8, 0, "self", 3, settings={"place": place, "form": FORM}))
    for slot, instance in enumerate(instances[:8]):
        device.submit(slot, 0, instance, Mode.TRAIN)
    device.drain()
    statistics, parameters = device.statistics(), device.parameters()
    device.close()
    assert statistics.updates == sum(p.version for p in parameters.values()) > 0
    elsewhere = [n for n, label in device.placing.of.items() if label != "cpu" and n in parameters]
    for node in elsewhere:
        rows = sum(statistics.staleness.get(node, {}).values())
        versions, left = parameters[node].version, parameters[node].rows
        assert rows >= 2 * versions + left
        assert not left or left < 2
    assert elsewhere
