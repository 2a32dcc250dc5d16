"""How late gradients are, exactly, where OpenCL devices run the frames."""

from __future__ import annotations

import pytest

from amphw.cpu_runtime import planes
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.update import UpdateRule
from amphw.opencl import OpenCLDevice
from tests.cpu_runtime.graphs import mlp, rows
from tests.cpu_runtime.test_scheduling import assert_a_parts_staleness_is_exact, recounted

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")


@pytest.mark.parametrize("policy", ["default", "fifo"])
@pytest.mark.parametrize("interval", [4, 7])
def test_staleness_is_the_versions_between_a_firings_two_frames(interval: int, policy: str) -> None:
    height, device = 4, OpenCLDevice()
    settings = {"policy": policy, "frame_cap": 2}
    rule = UpdateRule(interval=interval, lr=0.01)
    device.load(mlp(), {"*": rule}, DeviceOptions(24, 1, "self", 3, True, settings))
    for slot, instance in enumerate(rows(24, height)):
        device.submit(slot, 0, instance, Mode.TRAIN)
    device.drain()
    found = device.statistics().staleness
    expected = {n: h for n, h in recounted(list(device.log), height).items() if n in found}
    device.close()
    assert {node: dict(h) for node, h in found.items()} == {node: dict(h) for node, h in expected.items()}
    assert len(found) == 3
    assert max(max(h) for h in found.values()) >= 1, "none of this was late"


@pytest.mark.parametrize("interval", [4, 7])
def test_staleness_at_a_part_is_counted_in_the_order_of_its_frames(interval: int) -> None:
    assert_a_parts_staleness_is_exact(OpenCLDevice(), interval, "fifo")
