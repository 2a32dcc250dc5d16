"""A gradient out of a circuit and another into it, before its nodes update: as on the model."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.host.gradients import accumulated, give
from amphw.ir.device import Device, DeviceOptions, Mode
from amphw.ir.update import UpdateRule
from amphw.rtl.driver.verilator import VerilatorDevice
from amphw.rtl.fixed.device import FixedDevice
from tests.rtl.cases import SMALL, problem

pytest.importorskip("amaranth")
FORMATS = "q6.10,g=q4.12"


def stepped(device: Device, **sizes: int) -> dict[str, np.ndarray]:
    """Parameters after two updates with twice the sums and rows that six instances gave, one at a time."""
    graph, instances = problem("tree-leaves")
    rules = {"*": UpdateRule(10**6, lr=0.05, optimizer="momentum")}
    device.load(graph, rules, DeviceOptions(1, 0, "controller", 3, settings=dict(sizes)))
    for step in range(2):
        for number in range(6 * step, 6 * step + 6):
            device.submit(0, number, instances[number % len(instances)], Mode.TRAIN)
            device.drain()
        found = accumulated(device, {})
        assert any(np.any(a) for g in found.values() for a in g.arrays.values())
        for gradient in found.values():
            gradient.rows *= 2
            for array in gradient.arrays.values():
                array *= 2
        give(device, found)
        device.update()
        device.drain()
        assert all(g.rows == 0 for g in accumulated(device, {}).values())
    values = {f"{n}.{k}": v.copy() for n, p in device.parameters().items() for k, v in p.values.items()}
    device.close()
    return values


def test_a_circuit_updates_with_what_it_is_given() -> None:
    model, circuit = stepped(FixedDevice(FORMATS)), stepped(VerilatorDevice(FORMATS), **SMALL)
    for name, value in model.items():
        assert np.array_equal(circuit[name], value), name
