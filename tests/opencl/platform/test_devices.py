"""The numbers by which the tests name PoCL's devices stand for what they say."""

from __future__ import annotations

from amphw.opencl.platform.platforms import choose
from tests.opencl.devices import BASIC, PTHREAD, PTHREADS


def test_numbers_of_devices() -> None:
    names = [device.name.partition("-")[0] for each in (PTHREAD, PTHREADS, BASIC) for device in choose(each)]
    assert names == ["pthread", "pthread", "pthread", "basic"]
