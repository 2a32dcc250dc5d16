"""Large sums of gradients, and updates of large parameters: workers do them together."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import NonFiniteError
from amphw.ir.functions import tanh
from amphw.ir.graph import Graph
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from tests.cpu_runtime.graphs import MAX_BATCH, mlp, rows
from tests.cpu_runtime.running import assert_equal, pump, values

native = pytest.importorskip("amphw.engine._native", reason="the C++ data plane is not built")

HIDDEN, INTERVAL = 330, 6 * MAX_BATCH
RULES = {
    "clipped": UpdateRule(interval=INTERVAL, optimizer="momentum", lr=0.05, clip=0.1),
    "adam": UpdateRule(interval=INTERVAL, optimizer="adam", lr=0.01),
}


def smooth() -> Graph:
    """Without a kink: two sums in another order would differ by a whole row's gradient where a unit is at it,
    and of a million units one or the other is."""
    return mlp(HIDDEN, activation=tanh)


def trained(workers: int, rule: UpdateRule, count: int = 24) -> tuple[CpuDevice, dict[str, np.ndarray]]:
    device = CpuDevice()
    device.load(smooth(), {"*": rule}, DeviceOptions(1, 0, "self", 3, settings={"workers": workers}))
    pump(device, rows(count, MAX_BATCH), keys=1)
    return device, values(device)


@pytest.mark.parametrize("name", RULES)
def test_however_many_workers_take_parts_the_bits_are_the_same(name: str) -> None:
    alone, expected = trained(1, RULES[name])
    unit = alone.lowered.by_name["layer1"]
    parts, products, numbers = alone.plane.engine.reduction_parts()[unit]
    # What this test is about: 16 workers share such sums, and such updates.
    assert parts > 1 and INTERVAL * products >= 1 << 22 and numbers >= 1 << 16
    alone.close()
    for workers in (4, 16):  # four of them leave it to one
        together, found = trained(workers, RULES[name])
        assert_equal(found, expected)
        assert together.parameters()["layer1"].version == 4
        together.close()


@pytest.mark.parametrize("name", RULES)
def test_updates_in_parts_are_the_references(name: str) -> None:
    device, found = trained(16, RULES[name], count=12)
    device.close()
    reference = ReferenceDevice()
    reference.load(smooth(), {"*": RULES[name]}, DeviceOptions(1, 0, "self", 3))
    for instance in rows(12, MAX_BATCH):
        reference.submit(0, 0, instance, Mode.TRAIN)
        reference.drain()
    for key, value in values(reference).items():
        np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("column", [0, HIDDEN // 2, HIDDEN - 1])
def test_a_gradient_that_is_not_finite_is_found_in_every_part(column: int) -> None:
    """Of `layer1`: its inputs are large, and so is what comes back to one of its columns; both are finite."""
    device = CpuDevice()
    device.load(mlp(HIDDEN), {"*": RULES["adam"]}, DeviceOptions(1, 0, "self", 3, settings={"workers": 16}))
    values = {name: p.values for name, p in device.parameters().items()}
    values["layer0"]["b"][:] = np.float32(1e20)
    values["layer1"]["W"][:] = 0.0
    values["layer1"]["b"][:] = np.float32(1e-19)
    values["head"]["W"][:] = 0.0
    values["head"]["W"][column] = np.float32([1e19, -1e19, 1e19, -1e19])
    with pytest.raises(NonFiniteError, match="'layer1'.*the gradient of 'W'"):
        pump(device, rows(6, MAX_BATCH), keys=1)
    device.close()
