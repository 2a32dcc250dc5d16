"""An OpenCL device as a part of a run, where something goes wrong; see tests/conformance for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import planes
from amphw.host.controller import Trainer
from amphw.host.devices import make_device
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import AmphwError, DeviceLostError, ExecutionError, NonFiniteError
from amphw.ir.functions import argmax, sqrt, sum_cols, take
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema
from amphw.ir.nodes import PPT, Loss, Source
from amphw.ir.program import trace
from amphw.ir.update import UpdateRule
from amphw.mixed.device import MixedDevice
from tests.cpu_runtime.graphs import mlp, rows, scaled
from tests.host.test_lost_parts import Notes
from tests.host.training import MODEL, settings
from tests.opencl.devices import PTHREAD, PTHREADS
from tests.opencl.platform.test_lost import PLACES, Broken

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")

cl = pytest.importorskip("pyopencl")

from amphw.opencl import OpenCLDevice  # noqa: E402

Load = Callable[..., MixedDevice]


@pytest.fixture
def load() -> Iterator[Load]:
    """A graph loaded with some nodes on an OpenCL device."""
    made = []

    def load(graph: Graph, place: str, updates: str = "off", **options: Any) -> MixedDevice:
        device = MixedDevice({"one": OpenCLDevice(PTHREAD)})
        made.append(device)
        rule = options.pop("rule", UpdateRule(interval=1))
        device.load(graph, {"*": rule}, DeviceOptions(4, 4, updates, settings={"place": place, **options}))
        return device

    yield load
    for device in made:
        device.close()


def test_several_devices_are_parts_of_their_own() -> None:
    with pytest.raises(AmphwError, match=r"opencl:1,2 is several .* as in cpu,a=opencl:1,b=opencl:2"):
        MixedDevice({"one": OpenCLDevice(PTHREADS)})


def test_a_device_that_there_is_none_of_is_replaced() -> None:
    device = make_device("cpu,opencl:77")
    assert isinstance(device, MixedDevice)
    assert "there is no OpenCL device 77" in device.absent["opencl"]


def test_a_gradient_that_is_not_finite_names_its_node_and_keeps_the_values(load: Load) -> None:
    """The root of 0 is finite, its slope is not. As on the device alone, it is noticed at the next look."""
    device = load(scaled(sqrt), "scale=one", "self")
    device.submit(0, 0, Instance(data={"x": np.zeros((1, 1), np.float32)}), Mode.TRAIN)
    with pytest.raises(NonFiniteError) as caught:
        device.drain()
    assert caught.value.node == "scale" and caught.value.direction == "backward"
    assert np.isfinite(device.parameters()["scale"].values["W"]).all()


def test_what_is_predicted_from_a_wrong_index_reaches_nobody(load: Load) -> None:
    g = Graph("look", Schema(data={"x": 4}))
    g.add(Source("x", width=4, data="x"))
    g.add(PPT("look", trace(lambda p, x: take(p.E, argmax(x)), {"x": 4}, {"E": (2, 3)})))
    g.add(Loss("loss", trace(sum_cols, {"y": 3})))
    g.connect("x", "look", "loss")
    device = load(g, "look=one")
    for slot, highest in enumerate((1, 3)):
        device.submit(slot, 0, Instance(data={"x": np.eye(4, dtype=np.float32)[[highest]]}), Mode.PREDICT)
        if highest == 1:
            assert len(device.drain()) == 1
    with pytest.raises(ExecutionError, match="node 'look': take: an index .* outside its range"):
        device.drain()


def test_a_node_without_parameters_is_not_updated(load: Load) -> None:
    device = load(mlp(), "layer0=one,head=one", "controller")
    with pytest.raises(AmphwError, match="'nobody'"):
        device.update(["nobody"])
    device.submit(0, 0, rows(1)[0], Mode.TRAIN)
    device.drain()
    device.update()
    device.update()  # there is nothing new: no further version
    assert {p.version for p in device.parameters().values()} == {1}


def test_an_instance_that_never_fits_names_its_bytes_and_the_setting(load: Load) -> None:
    device = load(mlp(), "layer0=one", memory=1 << 16)
    with pytest.raises(DeviceLostError) as caught:
        device.submit(0, 0, rows(1, size=8)[0], Mode.TRAIN)
        device.drain()
        wide = mlp(hidden=700)
        load(wide, "layer1=one", memory=1 << 16).submit(0, 0, rows(1, size=8)[0], Mode.TRAIN)
    told = str(caught.value)
    assert told.startswith("one: instance 0 does not fit on the device even alone: it takes ")
    assert "of the 65536 that are set aside. Raise device.memory" in told


def test_parameters_can_be_looked_at_in_mid_run(load: Load) -> None:
    """What is shown then is not written back behind later updates."""
    device = load(mlp(), "layer0=one,head=one", "self", rule=UpdateRule(interval=4, lr=0.1))
    for slot, instance in enumerate(rows(4)):
        device.submit(slot, 0, instance, Mode.TRAIN)
        device.parameters()
    reports = device.drain()
    for slot, instance in enumerate(rows(4)):
        device.submit(slot, 1, instance, Mode.TRAIN)
    reports += device.drain()
    assert len(reports) == 8
    parameters = device.parameters()
    assert device.statistics().updates == sum(p.version for p in parameters.values())
    shown = {name: p.values for name, p in parameters.items()}
    device.submit(0, 2, rows(1)[0], Mode.TRAIN)
    device.drain()
    for name, p in device.parameters().items():
        assert not np.array_equal(p.values["W"], shown[name]["W"])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("after", [9, 40])
def test_the_run_goes_on_without_a_lost_device(
    place: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Broken(monkeypatch, *PLACES[place], after)
    device, notes = MixedDevice({"one": OpenCLDevice(PTHREAD)}), Notes()
    wanted = ("max_active_keys=1", "device.place=cell=one", "epochs=3", "hidden=5")
    trainer = Trainer(MODEL, settings(*wanted), device, None, notes)
    summary = trainer.run()
    trainer.device.close()
    assert summary.messages["lost"] == 0
    assert [r.instances for r in summary.history] == [120, 240, 360]
    if fault.raised:
        assert summary.device.startswith("cpu,one, then cpu")
        (warning,) = [n for n in notes.notes if n.startswith("WARNING: the device")]
        assert (
            "the device one was lost" in warning
            and "the OpenCL device failed" in warning
            and "the device does not answer" in warning
        )
