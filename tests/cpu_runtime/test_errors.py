"""What goes wrong on the CPU device is heard by the host: where, why, and without a hang."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.ir.behaviour import StateMap
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import AmphwError, ExecutionError, InstanceError, NonFiniteError, StateError
from amphw.ir.expr import Attr, Const, Field
from amphw.ir.functions import log, sqrt
from amphw.ir.graph import Graph
from amphw.ir.grouping import Group
from amphw.ir.instance import Instance, Schema
from amphw.ir.nodes import Loss, Node, Source
from amphw.ir.program import trace
from amphw.ir.reference import ReferenceDevice
from amphw.ir.routing import Cond, Flatmap, Isu
from amphw.ir.state import FieldType, StateType, state_field
from amphw.ir.update import UpdateRule
from tests.cpu_runtime.graphs import collision, lopsided, mlp, reads_if_asked, rows, scaled
from tests.cpu_runtime.running import Loader, assert_equal, pump, values

pytestmark = pytest.mark.usefixtures("plane")


def _fail(*_: object) -> None:
    raise ZeroDivisionError("the trace is full")


@pytest.mark.parametrize("workers", [1, 3])
def test_what_a_worker_raises_surfaces_in_poll_and_drain_and_submit(load: Loader, workers: int) -> None:
    device = load(mlp(), workers=workers, trace=_fail)
    instances = rows(3)
    with suppress(ZeroDivisionError):  # which a worker may raise before this returns
        device.submit(0, 0, instances[0], Mode.TRAIN)
    for attempt in (
        lambda: device.poll(5.0),
        device.drain,
        lambda: device.submit(1, 0, instances[1], Mode.TRAIN),
    ):
        with pytest.raises(ZeroDivisionError, match="^the trace is full$"):
            attempt()
    device.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("amphw-worker")]


def test_a_device_can_be_loaded_again_after_a_failure(load: Loader) -> None:
    device = load(mlp(), trace=_fail)
    with pytest.raises(ZeroDivisionError):
        device.submit(0, 0, rows(1)[0], Mode.TRAIN)
        device.drain()
    device.load(mlp(), {"*": UpdateRule()}, DeviceOptions())
    assert len(pump(device, rows(3))) == 3


def test_a_loss_that_is_not_finite_names_its_node(load: Loader) -> None:
    device = load(scaled(log))
    with pytest.raises(NonFiniteError) as caught:
        device.submit(0, 0, Instance(data={"x": np.array([[-1.0]], np.float32)}, number=4), Mode.TRAIN)
        device.drain()
    assert caught.value.node == "loss" and caught.value.direction == "forward"
    assert "(the loss of instance 4)" in str(caught.value)


@pytest.mark.parametrize("bad", range(4))
def test_every_row_of_a_loss_is_looked_at(load: Loader, bad: int) -> None:
    (instance,) = rows(1)
    instance.data["x"][bad] = np.nan
    device = load(mlp(layers=0))  # a ReLU would make 0 of it
    with pytest.raises(NonFiniteError, match="the loss of instance 0"):
        device.submit(0, 0, instance, Mode.TRAIN)
        device.drain()


def test_what_one_instance_would_read_wrongly_is_nothing_to_the_next(load: Loader) -> None:
    """An entry outside a table is an error only where it is read, and only of the instance that reads it."""
    device = load(reads_if_asked())

    def loss(generation: int, use: int, at: int) -> float:
        instance = Instance({"use": use, "at": at}, {"t": np.array([2, 3])}, number=generation)
        device.submit(0, generation, instance, Mode.TRAIN)
        (report,) = device.drain()
        return report.sums["loss"]["loss"]

    assert [loss(0, 0, 7), loss(1, 1, 0), loss(2, 0, 2), loss(3, 1, 1)] == [1.0, 3.0, 1.0, 4.0]
    with pytest.raises(StateError, match="node 'read', instance 4"):
        loss(4, 1, 2)


def test_a_gradient_that_is_not_finite_names_its_node_and_keeps_the_version(load: Loader) -> None:
    """The root of 0 is finite, its slope is not."""
    device = load(scaled(sqrt), UpdateRule(interval=1), updates="self")
    before = values(device)
    with pytest.raises(NonFiniteError) as caught:
        device.submit(0, 0, Instance(data={"x": np.zeros((1, 1), np.float32)}), Mode.TRAIN)
        device.drain()
    assert caught.value.node == "scale" and caught.value.direction == "backward"
    device.close()
    assert_equal(values(device), before)


def test_an_update_of_gradients_that_are_not_finite_fails_for_good(load: Loader) -> None:
    device = load(mlp(), updates="controller")
    pump(device, rows(1))
    device.parameters()["head"].gradients["W"][0, 0] = np.nan
    before = device.parameters()["head"].values
    for _ in range(2):  # the second time must not wait for the first
        with pytest.raises(NonFiniteError) as caught:
            device.update(["head"])
        assert caught.value.node == "head" and caught.value.direction == "backward"
    assert device.parameters()["head"].values is before


@pytest.mark.parametrize("make", [CpuDevice, ReferenceDevice], ids=["cpu", "reference"])
def test_data_with_too_few_rows_is_refused(make: Callable[[], CpuDevice | ReferenceDevice]) -> None:
    device = make()
    device.load(mlp(), {"*": UpdateRule()}, DeviceOptions(updates="off"))
    (instance,) = rows(1)
    instance.data["x"] = instance.data["x"][:3]
    try:
        with pytest.raises(InstanceError, match="^instance 0: data array 'x' has 3 rows, node 'x' sends 4"):
            device.submit(0, 0, instance, Mode.TRAIN)
    finally:
        device.close()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2**70, f"instance 3: attribute 'n' = {2**70}, allowed is 0..4"),
        (-1, "instance 3: attribute 'n' = -1, allowed is 0..4"),
        (2.5, "instance 3: attribute 'n' = 2.5, expected an integer"),
        ("2", "instance 3: attribute 'n' = '2', expected an integer"),
    ],
)
def test_an_attribute_that_is_none(load: Loader, value: Any, message: str) -> None:
    n = state_field("n", Attr("n"), 4)
    g = Graph("counted", Schema(attrs={"n": 4}))
    g.add(Source("numbers", StateType((n,))))
    g.add(
        Loss("loss", trace(lambda y: y.builder.emit("to_float", [y.builder.integer(Field("n"))]), {"y": 0}))
    )
    g.connect("numbers", "loss")
    device = load(g)
    with pytest.raises(InstanceError) as caught:
        device.submit(0, 0, Instance({"n": value}, number=3), Mode.TRAIN)
    assert str(caught.value) == message
    device.submit(0, 0, Instance({"n": np.int32(2)}), Mode.TRAIN)  # the slot is free, and integers are many
    assert len(device.drain()) == 1


def test_a_used_slot_is_refused(load: Loader, gate: threading.Event) -> None:
    device = load(mlp())
    first, second = rows(2)
    device.submit(1, 0, first, Mode.TRAIN)
    with pytest.raises(ExecutionError) as caught:
        device.submit(1, 1, second, Mode.TRAIN)
    assert str(caught.value) == "slot 1 still holds instance 0"
    gate.set()
    assert [r.number for r in device.drain()] == [0]  # and nothing is lost


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stuck_graph_says_what_it_waits_for(load: Loader, workers: int) -> None:
    device = load(lopsided(), workers=workers)
    device.submit(0, 0, Instance(number=5), Mode.TRAIN)
    with pytest.raises(ExecutionError) as caught:
        device.drain()
    assert str(caught.value) == (
        "nothing moves any more, but 1 instance(s) are in flight: "
        "node 'loss' waits for 1 more message(s) at 'b', instance 5, firing (n=2)"
    )


@pytest.mark.parametrize(
    "make", [CpuDevice, ReferenceDevice, lambda: ReferenceDevice("lifo")], ids=["cpu", "fifo", "lifo"]
)
def test_a_second_value_of_a_stored_field_is_noticed(make: Callable[[], CpuDevice | ReferenceDevice]) -> None:
    device = make()
    device.load(collision(), {"*": UpdateRule()}, DeviceOptions(updates="off"))
    try:
        with pytest.raises(ExecutionError) as caught:
            device.submit(0, 0, Instance(number=6), Mode.TRAIN)
            device.drain()
    finally:
        device.close()
    assert "instance 6" in str(caught.value) and "tells the two apart" in str(caught.value)


def test_a_state_outside_its_domain_is_an_error(load: Loader) -> None:
    n = Field("n")
    g = Graph("over", Schema())
    g.add(Source("three", StateType((state_field("n", 3),))))
    g.add(Isu("next", StateMap(set={"n": n + 1})))
    g.add(Loss("loss", trace(lambda y: y.builder.emit("to_float", [y.builder.integer(n)]), {"y": 0})))
    g.connect("three", "next", "loss")
    device = load(g)
    for attempt in range(2):  # the instance is half pumped: the device says so again instead of waiting
        with pytest.raises(StateError) as caught:
            device.submit(attempt, 0, Instance(), Mode.TRAIN)
        assert str(caught.value) == (
            "node 'three' sends a state outside its domain to 'loss' (instance 0); "
            "check the extents and the guards before it"
        )


def spread(*nodes: Node) -> Graph:
    """Three numbers through nodes whose extents are the attribute k."""
    g = Graph("spread", Schema(attrs={"k": HUGE}))
    g.add(Source("three", StateType((state_field("n", 3),))))
    for node in nodes:
        g.add(node)
    program = trace(lambda y: y.builder.emit("to_float", [y.builder.integer(Field("n"))]), {"y": 0})
    g.add(Loss("loss", program))
    g.connect("three", *(node.name for node in nodes), "loss")
    return g


HUGE, K = 2**62 - 1, Attr("k")
SPREAD = {
    "states": (
        (Flatmap("copies", FieldType("j", K, HUGE)),),
        f"instance 0: there are more than {2**31 - 1} states with a field 'j' of extent k",
    ),
    "copies": (
        (Flatmap("copies", FieldType("j", K, HUGE)), Cond("first?", Field("j"), ("first",), drop=("j",))),
        f"node 'three': instance 0 sends more messages than {2**31 - 1}",
    ),
    "members": (
        (Group("all", member=Const(0), count=K),),
        f"node 'all': instance 0 has more rows than {2**31 - 1}",
    ),
}


@pytest.mark.parametrize("extent", [2**30, 2**31, 2**60, HUGE])
@pytest.mark.parametrize("what", SPREAD)
def test_more_than_can_be_numbered_is_refused(load: Loader, what: str, extent: int) -> None:
    """2**30 each are too many for three; what is larger does not fit into 32 or, added up, into 64 bits."""
    nodes, message = SPREAD[what]
    device = load(spread(*nodes), fuse=False)
    with pytest.raises(StateError) as caught:
        device.submit(0, 0, Instance({"k": extent}), Mode.TRAIN)
    assert str(caught.value) == message


# --- replay -------------------------------------------------------------------------------------


def logged(graph: Graph, instances: Sequence[Instance], **settings: Any) -> list[Any]:
    device = CpuDevice()
    device.load(graph, {"*": UpdateRule(interval=4)}, DeviceOptions(8, 0, "self", 3, True, settings))
    pump(device, instances)
    device.close()
    return device.log


def replayed(log: Sequence[Any], graph: Graph, instances: Sequence[Instance]) -> None:
    device = CpuDevice(replay=log)
    device.load(graph, {"*": UpdateRule(interval=4)}, DeviceOptions(8, 0, "self", 3))
    try:
        for instance in instances:
            device.submit(instance.number, 0, instance, Mode.TRAIN)
        device.drain()
    finally:
        device.close()


NOT_READY = "the {} firing of node 'layer0' for instance 0 at {}, which is not ready"
UNLIKE = "; it belongs to another graph or to other instances$"


@pytest.mark.parametrize("plane", ["native"], indirect=True)
@pytest.mark.parametrize(("layers", "other"), [(1, 3), (3, 1), (2, 3)])
def test_a_log_of_another_graph_is_refused(plane: str, layers: int, other: int) -> None:
    log = logged(mlp(layers=layers), rows(6))
    with pytest.raises(ExecutionError, match="^replay: the log asks for .*" + UNLIKE):
        replayed(log, mlp(layers=other), rows(6))


@pytest.mark.parametrize("plane", ["native"], indirect=True)
@pytest.mark.parametrize(
    ("event", "asks"),
    [
        (("start", 90, "nobody", "forward", ((0, "train", ()),)), "a frame of a node 'nobody'"),
        (("start", 90, "layer0", "upward", ((0, "train", ()),)), "a frame of the kind 'upward'"),
        (("start", 90, "layer0", "backward", ((0, "train", ()),)), NOT_READY.format("backward", "()")),
        (("start", 90, "layer0", "forward", ((0, "train", (5,)),)), NOT_READY.format("forward", "(5,)")),
        (("start", 90, "layer0", "forward", ((0, "train", ()),) * 2), NOT_READY.format("forward", "()")),
        (("start", 90, "layer0", "forward", ()), "a frame without firings, or a second time"),
        (("end", 90), "the end of a frame that has not begun"),
        (("seal", "x", "update"), "an update of a node without parameters"),
        (("reduced", "x"), "an update of a node without parameters"),
        (("reduced", "nobody"), "an update of a node 'nobody'"),
        (("flush", "head", 1, True), "an event 'flush', which this data plane does not log"),
    ],
)
def test_an_event_that_does_not_fit_is_refused(plane: str, event: tuple[Any, ...], asks: str) -> None:
    log = logged(mlp(), rows(1))
    assert log[0][0] == "submit"
    with pytest.raises(ExecutionError, match=f"^replay: the log asks for {re.escape(asks)}" + UNLIKE):
        replayed([log[0], event, *log[1:]], mlp(), rows(1))


@pytest.mark.parametrize(
    "settings,text",
    [
        ({"workers": 0}, "device.workers = 0, allowed is 1 or more"),
        ({"frame_cap": 0}, "device.frame_cap = 0, allowed is 1 or more"),
        ({"frame_rows": -1}, "device.frame_rows = -1, allowed is 1 or more"),
        ({"min_rows": 0}, "device.min_rows = 0, allowed is 1 or more"),
        (
            {"policy": "newest"},
            "device.policy = 'newest', allowed is default, fifo, backward-first, largest-queue",
        ),
        ({"placement": "spread"}, "device.placement = 'spread', allowed is shared, pinned"),
        (
            {"placement": {"layer0": 2}, "workers": 2},
            "placement: node 'layer0' on worker 2, there are 0..1",
        ),
        ({"placement": {"nobody": 0}}, "placement: there is no node 'nobody'"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], text: str) -> None:
    device = CpuDevice()
    with pytest.raises(AmphwError) as caught:
        device.load(mlp(), {"*": UpdateRule()}, DeviceOptions(settings=settings))
    assert str(caught.value) == text
    device.close()


def test_an_update_names_a_node_without_parameters(load: Loader) -> None:
    device = load(mlp(), updates="controller")
    for name in ("loss", "nobody"):
        with pytest.raises(AmphwError) as caught:
            device.update([name])
        assert str(caught.value) == f"node '{name}' owns no parameters to update"
