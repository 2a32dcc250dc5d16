"""The null device keeps the protocol while it does nothing."""

from __future__ import annotations

import pytest

from amphw.host.null_device import NullDevice
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import ExecutionError
from amphw.ir.update import UpdateRule
from tests.host.training import MODEL, ToyConfig

INSTANCE = MODEL.training(ToyConfig(), 0, 1)[0]


@pytest.fixture
def device() -> NullDevice:
    device = NullDevice()
    device.load(MODEL.graph(ToyConfig()), {"*": UpdateRule()}, DeviceOptions(seed=5))
    return device


def test_an_instance_retires_at_once_with_an_empty_report(device: NullDevice) -> None:
    device.submit(2, 7, INSTANCE, Mode.TRAIN)
    (report,) = device.poll(timeout=10.0)
    assert (report.slot, report.generation, report.number, report.mode) == (2, 7, 0, Mode.TRAIN)
    assert (report.sums, report.rows, report.outputs) == ({}, {}, {})
    assert device.poll() == [] == device.drain()


def test_counters_balance_and_are_emptied_by_reading(device: NullDevice) -> None:
    device.submit(0, 1, INSTANCE, Mode.TRAIN)
    device.submit(16, 1, INSTANCE, Mode.INFER)
    device.update()
    device.update(["cell"])
    first, second = device.statistics(), device.statistics()
    assert (first.forward, first.backward, first.updates, first.staleness) == (1, 1, 3, {})
    assert (second.forward, second.backward, second.updates) == (0, 0, 0)


def test_a_slot_holds_one_instance(device: NullDevice) -> None:
    device.submit(0, 1, INSTANCE, Mode.TRAIN)
    with pytest.raises(ExecutionError, match="slot 0 still holds instance 0"):
        device.submit(0, 2, INSTANCE, Mode.TRAIN)
    device.close()
    assert device.drain() == []


def test_parameters_are_the_initial_ones(device: NullDevice) -> None:
    device.update()
    p = device.parameters()["cell"]
    assert p.values["W"].shape == (3, 8) and p.version == 0
    assert device.capabilities().name == "null"
