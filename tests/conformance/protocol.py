"""The device protocol, as every device must follow it: tests over the devices of a table.

A file of tests says on which, with a fixture `kind`, and imports what is here. What a device cannot do is in
the table KINDS alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from amphw.host.devices import make_device
from amphw.ir.device import Device, DeviceOptions, Mode, Report
from amphw.ir.errors import AmphwError, ExecutionError
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from tests.conformance.harness import run
from tests.host.training import MODEL

CONFIG = MODEL.config()
RULE = UpdateRule(interval=20, lr=0.1, optimizer="momentum")


@dataclass(frozen=True)
class Kind:
    """A device, and what it cannot do.

    computes: losses, gradients and values mean something. updates: versions of parameters move. counts:
    messages, one by one. near: how far losses may be from the reference's. alone: it computes in threads of
    its own, so that an instance may retire before anybody polls.
    """

    spec: str
    computes: bool = True
    updates: bool = True
    counts: bool = True
    near: float = 1e-5
    alone: bool = True
    settings: dict[str, Any] = field(default_factory=dict)


SMALL = {"lanes": 4, "payload": 1 << 12, "firings": 1 << 8, "places": 1 << 8, "table": 1 << 9}
KINDS = {
    "reference": Kind("reference", alone=False),
    "cpu": Kind("cpu"),
    "fixed": Kind("fixed:q6.10", near=0.02),
    "null": Kind("null", computes=False, updates=False, counts=False, alone=False),
    "sleep": Kind("sleep:1PFLOPS", computes=False),
    "mixed": Kind("cpu,a=fixed:q6.10", near=0.02, settings={"place": "cell=a,relu=cpu,head=cpu"}),
    "process": Kind("cpu,a=process:fixed:q6.10", near=0.02, settings={"place": "cell=cpu,head=a"}),
    "another package's": Kind("theirs", alone=False),
    "another package's part": Kind("cpu,a=theirs", settings={"place": "cell=a,head=cpu"}),
    "opencl": Kind("opencl:pthread"),
    "verilator": Kind("verilator:q6.10", near=0.02, alone=False, settings=SMALL),
    "a part of simulated hardware": Kind(
        "cpu,a=verilator:q6.10", near=0.02, settings={"place": "cell=a,head=cpu", **SMALL}
    ),
}


@pytest.fixture
def device(kind: Kind) -> Iterator[Device]:
    made = make_device(kind.spec)
    yield made
    made.close()


def instances(count: int = 6) -> list[Instance]:
    drawn = MODEL.training(CONFIG, 0, 1)
    made = [drawn[k] for k in range(count)]
    for number, instance in enumerate(made):
        instance.number = 100 + number
    return made


def load(device: Device, kind: Kind, updates: str = "off", keys: int = 3) -> None:
    options = DeviceOptions(keys, 2, updates, 3, False, kind.settings)
    device.load(MODEL.graph(CONFIG), {"*": RULE}, options)


def values(device: Device) -> dict[str, np.ndarray]:
    found = device.parameters()
    return {f"{node}.{name}": v.copy() for node, p in found.items() for name, v in p.values.items()}


def train(device: Device, given: list[Instance], keys: int = 3) -> list[Report]:
    """Waves of `keys` instances."""
    reports: list[Report] = []
    for first in range(0, len(given), keys):
        for slot, instance in enumerate(given[first : first + keys]):
            device.submit(slot, 1 + first, instance, Mode.TRAIN)
        reports += device.drain()
    return reports


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(value, other[name]) for name, value in one.items())


def test_every_instance_retires_once_and_every_message_comes_back(kind: Kind, device: Device) -> None:
    found = run(device, MODEL.graph(CONFIG), instances(), keys=3, rule=RULE, **kind.settings)
    assert found.forward == found.backward >= len(instances())
    if kind.counts:
        assert found.forward % len(instances()) == 0 and found.forward >= 2 * len(instances())
    if kind.computes:
        expected = run(ReferenceDevice("fifo", np.float64), MODEL.graph(CONFIG), instances(), rule=RULE)
        assert found.losses == pytest.approx(expected.losses, rel=kind.near, abs=kind.near)
        for name, gradient in expected.gradients.items():
            assert np.allclose(found.gradients[name], gradient, atol=30 * kind.near, rtol=kind.near), name


@pytest.mark.parametrize("mode", [Mode.INFER, Mode.PREDICT])
def test_inference_sends_nothing_back_and_gathers_nothing(kind: Kind, device: Device, mode: Mode) -> None:
    load(device, kind)
    before = values(device)
    given = instances(2)
    for slot, instance in enumerate(given, start=3):  # the slots behind those for training
        device.submit(slot, 9, instance, mode)
    reports = sorted(device.drain(), key=lambda r: r.slot)
    assert [(r.slot, r.generation, r.number, r.mode) for r in reports] == [
        (3, 9, 100, mode),
        (4, 9, 101, mode),
    ]
    counted = device.statistics()
    assert counted.forward == counted.backward == 0
    assert same(before, values(device)) and all(p.rows == 0 for p in device.parameters().values())
    if kind.computes:
        reference = ReferenceDevice("fifo", np.float64)
        load(reference, Kind("reference", alone=False))
        for slot, instance in enumerate(given):
            reference.submit(slot, 1, instance, mode)
        expected = sorted(reference.drain(), key=lambda r: r.slot)
        for found, right in zip(reports, expected, strict=True):
            assert found.rows == right.rows
            assert found.sums["loss"]["loss"] == pytest.approx(right.sums["loss"]["loss"], abs=10 * kind.near)
            assert found.outputs.keys() == right.outputs.keys()
            for name, output in right.outputs.get("loss", {}).items():
                assert found.outputs["loss"][name].shape == output.shape


def test_a_slot_is_free_once_its_report_was_polled(kind: Kind, device: Device) -> None:
    load(device, kind)
    one, other = instances(2)
    device.submit(1, 255, one, Mode.TRAIN)
    try:
        device.submit(1, 0, other, Mode.TRAIN)
        refused = False
    except ExecutionError as error:
        refused = "slot 1 still holds instance 100" in str(error)
        assert refused
    assert refused or kind.alone
    reports = device.drain()
    if refused:
        device.submit(1, 0, other, Mode.TRAIN)
        reports += device.drain()
    assert [(r.slot, r.generation, r.number) for r in reports] == [(1, 255, 100), (1, 0, 101)]
    assert device.drain() == [] == device.poll()


def test_nodes_only_add_up_without_updates(kind: Kind, device: Device) -> None:
    load(device, kind, "off")
    before = values(device)
    train(device, instances())
    found = device.parameters()
    assert all(p.version == 0 for p in found.values()) and same(before, values(device))
    if kind.updates and kind.computes:
        assert {node: p.rows for node, p in found.items()} == {"cell": 60, "head": 60}
    assert device.statistics().updates == 0


def test_nodes_wait_for_the_controller(kind: Kind, device: Device) -> None:
    load(device, kind, "controller")
    before = values(device)
    train(device, instances())
    assert same(before, values(device))
    device.update(["cell"])
    device.drain()
    versions = {node: p.version for node, p in device.parameters().items()}
    assert versions == ({"cell": 1, "head": 0} if kind.updates else {"cell": 0, "head": 0})
    device.update()
    device.drain()
    if kind.updates:
        assert device.parameters()["head"].version == 1
        assert all(p.rows == 0 for p in device.parameters().values())
    if kind.computes:
        assert not same(before, values(device))


def test_nodes_update_themselves_at_their_interval(kind: Kind, device: Device) -> None:
    load(device, kind, "self")
    train(device, instances())  # 60 rows, at an interval of 20
    counted = device.statistics()
    versions = {node: p.version for node, p in device.parameters().items()}
    if kind.updates:
        assert all(1 <= version <= 3 for version in versions.values())
        assert counted.updates == sum(versions.values())
    assert device.statistics().updates == 0  # since the last call


def test_who_has_no_parameters_cannot_update(kind: Kind, device: Device) -> None:
    load(device, kind, "controller")
    with pytest.raises(AmphwError, match="nobody"):
        device.update(["nobody"])


def test_what_is_written_into_the_parameters_takes_effect(kind: Kind, device: Device) -> None:
    load(device, kind, "self")
    train(device, instances(3))
    for p in device.parameters().values():
        p.values = {name: np.full_like(value, 0.25) for name, value in p.values.items()}
    (instance,) = instances(1)
    device.submit(3, 1, instance, Mode.INFER)
    (report,) = device.drain()
    assert all(np.all(value == 0.25) for value in values(device).values())
    if kind.computes:  # every class gets the same
        rows = report.rows["loss"]
        assert report.sums["loss"]["loss"] / rows == pytest.approx(np.log(3), rel=10 * kind.near)


def test_a_closed_device_says_so_and_shows_its_parameters(kind: Kind, device: Device) -> None:
    load(device, kind, "self")
    train(device, instances())
    before = values(device)
    device.close()
    device.close()
    assert same(before, values(device))
    with pytest.raises(ExecutionError, match="the device is closed; load a graph first"):
        device.submit(0, 1, instances(1)[0], Mode.TRAIN)


def test_loading_begins_anew(kind: Kind, device: Device) -> None:
    load(device, kind, "self")
    before = values(device)
    train(device, instances())
    device.close()
    load(device, kind, "self")
    assert same(before, values(device)) and all(p.version == 0 for p in device.parameters().values())
    counted = device.statistics()
    assert (counted.forward, counted.backward, counted.updates) == (0, 0, 0)
    assert len(train(device, instances(3))) == 3
    load(device, kind, "self")  # also one that is open
    assert same(before, values(device))


def test_its_capabilities_name_it(kind: Kind, device: Device) -> None:
    about = device.capabilities()
    assert about.name and about.kind and about.workers >= 1 and "momentum" in about.optimizers
