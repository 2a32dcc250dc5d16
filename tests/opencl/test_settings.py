"""Settings of a run that concern OpenCL devices reach them."""

from __future__ import annotations

import pytest

from amphw.engine.parts.arena import MemorySettingError
from amphw.host.session import Session
from amphw.opencl import OpenCLDevice
from amphw.opencl.options import OpenCLOptions
from tests.host.training import MODEL, settings
from tests.opencl.devices import PTHREAD


def test_the_depth_of_the_queue_and_the_memory() -> None:
    device = OpenCLDevice(PTHREAD)
    try:
        Session(MODEL, settings("depth=2", f"memory={64 << 20}"), device)
        assert device.plane is not None
        assert [e.depth for e in device.plane.regions.executors] == [2]
        assert device.plane.arena.size == 64 << 20
        (found,) = device.found
        Session(MODEL, settings(), device)  # the defaults are the device's own
        assert [e.depth for e in device.plane.regions.executors] == [OpenCLOptions().depth]
        most = min(found.largest_allocation, found.memory // 4, 2 << 30)
        assert 0 <= most - device.plane.arena.size < 1 << 12  # whole pages
    finally:
        device.close()


def test_more_memory_than_the_device_has() -> None:
    device = OpenCLDevice(PTHREAD)
    with pytest.raises(
        MemorySettingError, match="^device.memory = .*, the device allocates at most .* bytes in one piece"
    ):
        Session(MODEL, settings(f"memory={1 << 60}"), device)
