"""Devices that compute nothing, beside the CPU: every message still goes out and comes back."""

from __future__ import annotations

import pytest

from amphw.cpu_runtime import planes
from amphw.host.devices import make_device
from amphw.ir.device import Device, Mode
from amphw.ir.update import UpdateRule
from amphw.mixed.device import MixedDevice
from tests.conformance.harness import run
from tests.conformance.test_mixed import alternately
from tests.graphs.cases import Case, each_case

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")


@pytest.mark.parametrize("spec", ["sleep:1TFLOPS", "cpu,one=null,two=sleep:1TFLOPS"])
@each_case()
def test_every_message_comes_back(case: Case, spec: str) -> None:
    graph, instances = case.build(), case.instances()
    device: Device = make_device(spec)
    place = {"place": alternately(graph, 1)} if type(device) is MixedDevice else {}
    rule = UpdateRule(interval=2)
    found = run(device, graph, instances, updates="self", rule=rule, **place)
    device.close()
    assert found.forward == found.backward > 0
    inferred = run(device, graph, instances, mode=Mode.INFER, **place)
    device.close()
    assert inferred.losses.keys() == found.losses.keys()
