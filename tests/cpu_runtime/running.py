"""Pumping the CPU device in tests, and comparing what it has learned."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from amphw.cpu_runtime import CpuDevice
from amphw.ir.device import Mode, Report
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice

Loader = Callable[..., CpuDevice]


def pump(
    device: CpuDevice, instances: Sequence[Instance], keys: int = 8, mode: Mode = Mode.TRAIN
) -> list[Report]:
    """Keep `keys` instances in flight -> their reports."""
    free, waiting, reports = list(range(keys)), list(instances), []
    while waiting or len(free) < keys:
        while waiting and free:
            device.submit(free.pop(), 0, waiting.pop(0), mode)
        found = device.poll(0.05)
        free += [r.slot for r in found]
        reports += found
    return reports + device.drain()


def values(device: CpuDevice | ReferenceDevice) -> dict[str, np.ndarray]:
    return {f"{n}.{k}": v.copy() for n, p in device.parameters().items() for k, v in p.values.items()}


def gradients(device: CpuDevice | ReferenceDevice) -> dict[str, np.ndarray]:
    return {f"{n}.{k}": v.copy() for n, p in device.parameters().items() for k, v in p.gradients.items()}


def assert_equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        np.testing.assert_array_equal(value, b[name], err_msg=name)
