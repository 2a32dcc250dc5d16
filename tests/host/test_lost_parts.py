"""A part of a run that is absent, dies, hangs or answers wrongly: the run goes on without it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import planes
from amphw.engine.lowering.lower import Unit
from amphw.engine.numpy_plane.float32 import FLOAT32
from amphw.engine.parts.kernel import KernelPart, KernelSetting
from amphw.engine.parts.part import PartFrame, PartResult
from amphw.host.controller import Trainer
from amphw.host.devices import DeviceError, make_device, split_specs
from amphw.host.progress import Progress
from amphw.ir.device import Capabilities, DeviceOptions, Mode, Report
from amphw.ir.errors import AmphwError, DeviceAbsentError, DeviceLostError, GraphError
from amphw.ir.graph import Graph
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule, initial_parameters
from amphw.mixed.device import MixedDevice
from tests.daily import daily
from tests.host.training import MODEL, settings

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")

SOON = "device.silence=3"
"""A part that says nothing is given up after a while that a test can wait."""

Fault = Callable[["FaultyPart", PartFrame], None]


class FaultyPart(KernelPart):
    """Does something else at its frame number `at`, once for all parts that share `frames`."""

    frames: list[int]
    at: int
    fault: Fault

    def start(self, frame: PartFrame) -> None:
        self.frames[0] += 1
        if self.frames[0] == self.at:
            self.fault(self, frame)
        else:
            super().start(frame)


class FaultyDevice(ReferenceDevice):
    """Offers such a part."""

    def __init__(self, fault: Fault | None = None, at: int = 0):
        super().__init__()
        self.fault, self.at, self.frames = fault, at, [0]

    def part(self) -> KernelPart:
        part = FaultyPart(Capabilities("faulty", "cpu"), chosen)
        part.frames, part.at = self.frames, self.at
        part.fault = self.fault or (lambda part, frame: None)
        return part


def chosen(
    graph: Graph, units: Sequence[Unit], rules: Mapping[str, UpdateRule], options: DeviceOptions
) -> KernelSetting:
    owners = {u.name: graph.nodes[u.name].params for u in units if u.owns}
    return KernelSetting(FLOAT32, initial_parameters(owners, dict(rules), options.seed))


def dies(part: FaultyPart, frame: PartFrame) -> None:
    raise DeviceLostError("the cable is out")


def hangs(part: FaultyPart, frame: PartFrame) -> None:
    threading.Event().wait(60)


def forgets(part: FaultyPart, frame: PartFrame) -> None:
    """The frame is lost on the way."""


def repeats(part: FaultyPart, frame: PartFrame) -> None:
    KernelPart.start(part, frame)
    part._done += part._done


def shortens(part: FaultyPart, frame: PartFrame) -> None:
    KernelPart.start(part, frame)
    (result,) = part._done
    arrays: list[np.ndarray | None] = [None if a is None else a[:-1] for a in result.arrays]
    if not any(a is not None for a in arrays):  # a frame that gives back nothing: then something too much
        arrays.append(np.zeros((1, 1), np.float32))
    part._done = [PartResult(result.number, arrays, result.decided)]


class Notes(Progress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(None, 2, "toy")
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def train(device: MixedDevice, *overrides: str) -> tuple[Any, Trainer, list[str]]:
    wanted = ("max_active_keys=1", "device.place=cell=one,head=two", SOON, *overrides)
    notes = Notes()
    trainer = Trainer(MODEL, settings(*wanted), device, None, notes)
    try:
        return trainer.run(), trainer, notes.notes
    finally:
        device.close()


@pytest.mark.parametrize(
    "fault", daily([dies, hangs], [forgets, repeats, shortens]), ids=lambda f: f.__name__
)
@pytest.mark.parametrize("at", daily([7], [1, 40]))
def test_the_run_goes_on_without_it(fault: Fault, at: int) -> None:
    undisturbed, _, _ = train(MixedDevice({"one": FaultyDevice(), "two": FaultyDevice()}))
    summary, trainer, notes = train(MixedDevice({"one": FaultyDevice(fault, at), "two": FaultyDevice()}))
    assert summary.messages["lost"] == 0 < summary.messages["forward"]
    assert [r.instances for r in summary.history] == [r.instances for r in undisturbed.history]
    for found, expected in zip(summary.history, undisturbed.history, strict=True):
        assert found.valid["loss"] == pytest.approx(expected.valid["loss"], rel=1e-4)
    assert summary.device == "cpu,one,two, then cpu,two"
    (warning,) = [n for n in notes if n.startswith("WARNING: the device")]
    assert warning.startswith("WARNING: the device one was lost in epoch ") and "one: " not in warning
    assert ". The run goes on on the device cpu,two, which" in warning
    assert "placed on two: head" in notes
    assert trainer.device.capabilities().name == "cpu,two"


@pytest.mark.thorough
def test_what_a_silent_part_owes_is_named() -> None:
    _, _, notes = train(MixedDevice({"one": FaultyDevice(hangs, 3), "two": FaultyDevice()}))
    (warning,) = [n for n in notes if n.startswith("WARNING: the device")]
    assert "it owes 1 frame(s):" in warning
    assert "node 'cell'" in warning and "of instance" in warning and "slot 0" in warning


@pytest.mark.thorough
def test_one_after_the_other_may_go() -> None:
    devices = {"one": FaultyDevice(dies, 5), "two": FaultyDevice(forgets, 9)}
    summary, _, _ = train(MixedDevice(devices))
    assert summary.messages["lost"] == 0
    assert summary.device.startswith("cpu,one,two, then cpu,") and summary.device.endswith(", then cpu")


def test_a_device_that_is_not_there_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amphw.rtl.driver.verilator.missing", lambda *purposes: "the program g++")
    device = make_device("cpu,one=verilator:q4.12,two=null")
    assert isinstance(device, MixedDevice)
    _, _, notes = train(device)
    assert any(
        n.startswith("WARNING: one is not there, the cpu takes its place") and "g++" in n for n in notes
    )
    assert "placed on two: head" in notes


class NeverLoaded(FaultyDevice):
    """Its part is lost, or not there, while it is loaded."""

    def __init__(self, error: type[AmphwError] = DeviceLostError):
        super().__init__()
        self.error = error

    def part(self) -> KernelPart:
        part = super().part()

        def load(*arguments: Any) -> None:
            raise self.error("its process has ended")

        part.load = load  # type: ignore[method-assign]
        return part


@pytest.mark.parametrize("error", [DeviceLostError, DeviceAbsentError])
def test_a_device_that_is_lost_while_it_is_loaded_is_replaced(error: type[AmphwError]) -> None:
    summary, trainer, notes = train(MixedDevice({"two": FaultyDevice(), "one": NeverLoaded(error)}))
    assert any(n.startswith("WARNING: one is not there, the cpu takes its place: its process") for n in notes)
    assert trainer.device.capabilities().name == "cpu,two" and "placed on two: head" in notes
    assert summary.messages["lost"] == 0 < summary.messages["forward"]


def test_a_part_that_refuses_to_be_loaded_leaves_no_other_behind() -> None:
    class Refusing(NeverLoaded):
        def __init__(self) -> None:
            super().__init__(AmphwError)

    class Counting(FaultyDevice):
        closed = 0

        def part(self) -> KernelPart:
            part = super().part()
            plain = part.close

            def close() -> None:
                Counting.closed += 1
                plain()

            part.close = close  # type: ignore[method-assign]
            return part

    with pytest.raises(AmphwError, match="its process has ended"):
        train(MixedDevice({"one": Counting(), "two": Refusing()}))
    assert Counting.closed == 1


def breaks(part: FaultyPart, frame: PartFrame) -> None:
    raise ValueError("boom")


def test_a_mistake_of_a_part_is_its_loss() -> None:
    summary, _, notes = train(MixedDevice({"one": FaultyDevice(breaks, 5), "two": FaultyDevice()}))
    assert summary.messages["lost"] == 0 and summary.device == "cpu,one,two, then cpu,two"
    assert any("it failed with ValueError: boom (in breaks, " in n for n in notes)


def test_a_part_that_never_has_room() -> None:
    class Full(FaultyDevice):
        def part(self) -> KernelPart:
            part = super().part()
            part.begin = lambda *arguments: False  # type: ignore[method-assign]
            return part

    summary, _, notes = train(MixedDevice({"one": Full(), "two": FaultyDevice()}))
    assert summary.messages["lost"] == 0 and summary.device == "cpu,one,two, then cpu,two"
    assert any("has had no room for an instance for 3" in n for n in notes)


def test_a_part_lacks_something() -> None:
    class Lacking(FaultyDevice):
        def part(self) -> Any:
            return object()

    with pytest.raises(AmphwError, match=r"what Lacking.part\(\) gives lacks depth, capabilities, refused"):
        MixedDevice({"one": Lacking()})


class GoneLater(FaultyDevice):
    """Offers a part once, and is not there after that."""

    def part(self) -> KernelPart:
        if self.frames[0]:
            raise DeviceAbsentError("it has been unplugged")
        return super().part()


def test_another_device_is_not_there_any_more_when_one_is_lost() -> None:
    summary, _, notes = train(MixedDevice({"one": FaultyDevice(dies, 5), "two": GoneLater()}))
    assert summary.messages["lost"] == 0 and summary.device.endswith(", then cpu")
    assert any("two is not there, the cpu takes its place: it has been unplugged" in n for n in notes)


class Forgetful(FaultyDevice):
    """Its part is lost when somebody asks for its parameters for the time number `at`."""

    def __init__(self, at: int):
        super().__init__()
        self.asked_at, self.asked = at, 0

    def part(self) -> KernelPart:
        part = super().part()
        known = part.parameters

        def parameters() -> Any:
            self.asked += 1
            if self.asked == self.asked_at:
                raise DeviceLostError("its process has ended")
            return known()

        part.parameters = parameters  # type: ignore[method-assign]
        return part


@pytest.mark.parametrize("at", range(1, 8))
def test_a_device_may_be_lost_between_the_epochs(at: int) -> None:
    """Before the first, after each, while the run goes back, and at its end."""
    summary, _, _ = train(MixedDevice({"one": Forgetful(at), "two": Forgetful(2)}), "epochs=3")
    assert summary.messages["lost"] == 0 < summary.messages["forward"]
    assert [record.instances for record in summary.history] == [120, 240, 360]


def test_names_of_devices() -> None:
    assert split_specs("cpu,a=fixed:q7.9,w=q5.11,b=opencl:0,1,null") == [
        ("cpu", "cpu"),
        ("a", "fixed:q7.9,w=q5.11"),
        ("b", "opencl:0,1"),
        ("null", "null"),
    ]


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("cpu,null,null", "two devices are called 'null': give them names, such as a=null,b=null"),
        (
            "fixed:q7.9,fixed:q4.12",
            "two devices are called 'fixed': give them names, such as a=fixed:q7.9,b=fixed:q4.12",
        ),
        ("nul,cpu", "there is no device 'nul'. Did you mean null?"),
        ("cpu,cpu", "the cpu is in a run once, under its own name: it holds the run together"),
        ("cpu,a=cpu", "the cpu is in a run once, under its own name: it holds the run together"),
        ("cpu,fixd:q7.9", "there is no device 'fixd'. Did you mean fixed?"),
        ("cpu,b=fixd:q7.9,a=null", "there is no device 'fixd'. Did you mean fixed?"),
        ("fixd,w=q5.11,cpu", "there is no device 'fixd'. Did you mean fixed?"),
        ("cpu,a=", "'a' has no device behind its '='. Devices: cpu,"),
    ],
)
def test_lists_of_devices_that_cannot_be(spec: str, complaint: str) -> None:
    with pytest.raises(DeviceError) as caught:
        make_device(spec)
    assert str(caught.value).startswith(complaint)


class Choosy(FaultyDevice):
    """Refuses some nodes, as devices do whose reasons are errors about the graph."""

    def part(self) -> KernelPart:
        part = super().part()

        def refused(graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule]) -> str:
            return str(GraphError("it has no lookup", node=unit.name)) if unit.name == "cell" else ""

        part.refused = refused  # type: ignore[method-assign]
        return part


def test_devices_are_named_with_their_formats() -> None:
    device = make_device("cpu,a=verilator:q7.9,w=q5.11,b=fixed:q4.12,null")
    assert device.capabilities().notes == "a: verilator:q7.9,w=q5.11; b: fixed:q4.12; null: null"


def test_a_refusal_names_its_node_once() -> None:
    with pytest.raises(AmphwError, match="^node 'cell' cannot be placed on one: it has no lookup$"):
        train(MixedDevice({"one": Choosy()}), "device.place=cell=one")
    _, _, notes = train(MixedDevice({"one": Choosy()}), "device.place=")
    assert "one refuses cell, which goes to cpu: it has no lookup" in notes


@pytest.mark.parametrize("place", ["", "cell=one", "cell=two", "cell=cpu"])
def test_what_is_said_of_one_node_leaves_the_others_where_they_are(place: str) -> None:
    _, _, notes = train(MixedDevice({"one": FaultyDevice(), "two": FaultyDevice()}), f"device.place={place}")
    assert any(n.startswith("placed on two:") and "head" in n for n in notes), notes


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        ("cell=three", "there is no device 'three' in this run for node 'cell'; there are cpu, one, two"),
        ("sell=one", "there is no node 'sell'; those that compute: cell, "),
        ("loss=one", "node 'loss' has no place of its own"),
        ("cell", "'cell' is not of the form NODE=DEVICE"),
        ("cell=one,cell=two", "says two things of 'cell': one and two"),
    ],
)
def test_places_that_are_none(place: str, complaint: str) -> None:

    with pytest.raises(AmphwError, match=complaint):
        train(MixedDevice({"one": FaultyDevice(), "two": FaultyDevice()}), f"device.place={place}")


def test_parameters_move_with_their_nodes() -> None:
    """A checkpoint knows of no places."""
    one = MixedDevice({"one": FaultyDevice()})
    graph, rules = MODEL.graph(MODEL.config()), {"*": UpdateRule(lr=0.1)}
    one.load(graph, rules, DeviceOptions(settings={"place": "cell=one"}))
    found = one.parameters()
    for p in found.values():
        p.values = {name: np.full_like(v, 0.25) for name, v in p.values.items()}
    one.drain()
    other = MixedDevice({"one": FaultyDevice()})
    other.load(graph, rules, DeviceOptions(settings={"place": "head=one"}))
    for node, p in other.parameters().items():
        p.values = {name: v.copy() for name, v in found[node].values.items()}
    other.submit(0, 1, MODEL.training(MODEL.config(), 0, 1)[0], Mode.INFER)
    other.drain()
    assert all(np.all(v == 0.25) for p in other.parameters().values() for v in p.values.values())
    one.close()
    other.close()


def test_a_spare_device_needs_no_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine itself fails; what is left has none of the labels that the settings name."""
    mixed = MixedDevice({"one": FaultyDevice(), "two": FaultyDevice()})

    def fails(timeout: float = 0.0) -> list[Report]:
        raise DeviceLostError("the engine has stopped.")

    monkeypatch.setattr(mixed, "poll", fails)
    cfg = settings("max_active_keys=1", "device.place=cell=one,head=two")
    notes = Notes()
    summary = Trainer(MODEL, cfg, mixed, None, notes, spare=ReferenceDevice).run()
    assert summary.messages["lost"] == 0 and "then reference" in summary.device
    assert any(
        n.startswith("WARNING: the device cpu,one,two was lost in epoch 1: the engine") for n in notes.notes
    )


def test_the_summary_says_what_ran_where_and_how_fast_the_last_stretch_was() -> None:
    summary, trainer, _ = train(
        MixedDevice({"one": FaultyDevice(dies, 40), "two": FaultyDevice()}), "epochs=3"
    )
    first, second = summary.ran
    assert (
        first
        == "from epoch 1: cpu,one,two; one: faulty; two: faulty; placed on one: cell; "
        + first[first.index("placed on two") :]
    )
    assert "placed on two: head; placed on cpu: " in first
    assert second.startswith("from epoch 2: cpu,two; two: faulty; WARNING: one is not there")
    rest = summary.history[1:]
    seconds = rest[-1].seconds - summary.history[0].seconds
    assert summary.instances_per_s == pytest.approx((rest[-1].instances - 120) / seconds)
    assert summary.last_device == "cpu,two"
