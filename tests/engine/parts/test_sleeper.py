"""Devices that there are not: what their frames take, and that all else is as in a run that computes.

Times are those that a device's own clock gives its frames; of the wall clock it is asserted only that no less
has passed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice, planes
from amphw.engine.lowering.lower import lower
from amphw.host.devices import make_device
from amphw.ir.device import Device, DeviceOptions, Mode
from amphw.ir.errors import AmphwError, ExecutionError
from amphw.ir.functions import log
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from amphw.mixed.device import MixedDevice
from tests.conformance.harness import Outcome, run
from tests.cpu_runtime.graphs import collision, lopsided, scaled
from tests.graphs.cases import Case, each_case
from tests.host.training import MODEL

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")

GRAPH = MODEL.graph(MODEL.config())
ROWS, WIDTH, HIDDEN, CLASSES = 10, 3, 8, 3
"""Of an instance of the toy model, x [ROWS, WIDTH] - cell - relu - head [HIDDEN, CLASSES]."""
CELL = 2 * WIDTH * HIDDEN
"""Operations of the cell for a row, forward."""
UPDATE = WIDTH * HIDDEN + HIDDEN
"""Of an update of the cell."""
SLOW = CELL * ROWS / 2e-3
"""Operations a second of a device on which a frame of one instance takes the cell 2 ms, and 4 ms backward."""


def instances(count: int) -> list[Instance]:
    made = list(MODEL.training(MODEL.config(), 0, 1))[:count]
    for number, instance in enumerate(made):
        instance.number = number
    return made


@dataclass
class Slice:
    """Of a trace, in seconds."""

    worker: int
    node: str
    kind: str
    began: float
    took: float
    rows: int

    @property
    def ended(self) -> float:
        return self.began + self.took


class Tracer:
    """What a run's `trace` is called with, of frames alone."""

    def __init__(self) -> None:
        self.slices: list[Slice] = []

    def __call__(self, worker: int, node: str, kind: str, began: float, took: float, *more: Any) -> None:
        if kind != "update":
            self.slices.append(Slice(worker, node, kind, began / 1e6, took / 1e6, more[0]))

    def of(self, node: str) -> list[Slice]:
        return sorted((s for s in self.slices if s.node == node), key=lambda s: s.began)


@pytest.fixture
def sleeper() -> Iterator[Device]:
    device = make_device(f"cpu,one=sleep:{SLOW!r}FLOPS")
    yield device
    device.close()


def traced(device: Device, count: int, mode: Mode = Mode.TRAIN, **options: Any) -> tuple[Tracer, Outcome]:
    trace = Tracer()
    place = options.pop("place", "cell=one,head=cpu")
    found = run(device, GRAPH, instances(count), mode=mode, trace=trace, place=place, **options)
    device.close()  # and all slices are there
    return trace, found


# --- the clock ------------------------------------------------------------------------------------


def test_a_frame_takes_the_operations_of_its_products_one_after_another(sleeper: Device) -> None:
    """2 k din dout for k rows forward, twice that backward."""
    before = time.perf_counter()
    trace, _ = traced(sleeper, 6)
    passed = time.perf_counter() - before
    found = trace.of("cell")
    for one in found:
        per_row = CELL / SLOW * (2 if one.kind == "backward" else 1)
        assert one.took == pytest.approx(per_row * one.rows)
    assert {kind: sum(s.rows for s in found if s.kind == kind) for kind in ("forward", "backward")} == {
        "forward": 6 * ROWS,
        "backward": 6 * ROWS,
    }
    for one, after in zip(found, found[1:], strict=False):
        assert after.began >= one.ended - 1e-9
    assert passed >= sum(s.took for s in found) == pytest.approx(6 * 6e-3)
    assert {s.worker for s in found}.isdisjoint(s.worker for s in trace.of("relu"))


def test_the_frame_that_completes_an_interval_takes_an_update_as_well(sleeper: Device) -> None:
    trace, found = traced(sleeper, 4, keys=1, updates="self", rule=UpdateRule(interval=2 * ROWS))
    backward = [s.took for s in trace.of("cell") if s.kind == "backward"]
    alone = 2 * ROWS * CELL / SLOW
    assert backward == pytest.approx([alone, alone + UPDATE / SLOW] * 2)
    assert found.device.parameters()["cell"].version == 2


def test_an_update_that_the_host_asks_for_takes_its_time(sleeper: Device) -> None:
    """Before the frames that come after it; none where there is nothing to apply."""
    trace = Tracer()
    settings = {"place": "cell=one,head=cpu", "trace": trace}
    sleeper.load(GRAPH, {"*": UpdateRule()}, DeviceOptions(1, 0, "off", 3, settings=settings))
    one, other, third = instances(3)
    sleeper.submit(0, 1, one, Mode.TRAIN)
    sleeper.drain()
    before = time.perf_counter()
    sleeper.update(["cell"])
    sleeper.submit(0, 2, other, Mode.TRAIN)
    sleeper.drain()
    assert trace.of("cell")[-2].began >= before + UPDATE / SLOW
    assert sleeper.statistics().updates == 1 and sleeper.parameters()["cell"].version == 1
    sleeper.update()
    sleeper.update()
    assert sleeper.parameters()["cell"].version == 2
    with pytest.raises(AmphwError, match="'tail'"):
        sleeper.update(["tail"])
    sleeper.submit(0, 3, third, Mode.INFER)
    sleeper.drain()
    assert trace.of("cell")[-1].kind == "infer"


def test_transfers_queue_in_each_direction_while_the_device_computes() -> None:
    """x there, and cell's results back: 4 bytes a number and 8 a firing."""
    device = make_device(f"cpu,one=sleep:{SLOW!r}FLOPS")
    assert isinstance(device, MixedDevice)
    there, latency = 8 + 4 * ROWS * WIDTH, 5e-3
    rate = 8 * there / 1e-3  # 1 ms for an instance
    began = time.perf_counter()
    trace, _ = traced(device, 5, Mode.INFER, frame_cap=1, links=f"one={rate!r}b/s+{latency!r}s")
    passed = time.perf_counter() - began
    found = trace.of("cell")
    assert len(found) == 5
    for k, one in enumerate(found):
        assert one.began >= began + (k + 1) * 1e-3 + latency
    back = (8 + 4 * ROWS * HIDDEN) * 8 / rate
    assert passed >= 1e-3 + latency + 5 * 2e-3 + back + latency
    (use,) = device.findings().rows
    assert use[3:5] == (f"{5 * there} B", "1.64 kB")


# --- all else is real -----------------------------------------------------------------------------


@each_case()
def test_messages_and_updates_are_those_of_a_run_that_computes(case: Case) -> None:
    """Where nothing is decided by values; one instance at a time, so that intervals end at the same rows."""
    graph, made = case.build(), case.instances()
    device, real = make_device("sleep:1PFLOPS"), CpuDevice()
    rule, options = UpdateRule(interval=3), {"keys": 1, "updates": "self", "fuse": False, "workers": 1}
    slept = run(device, graph, made, rule=rule, **options)
    computed = run(real, graph, made, rule=rule, **options)
    versions = {name: p.version for name, p in slept.device.parameters().items()}
    assert slept.forward == slept.backward > 0
    if not any(unit.behaviour.decides for unit in lower(graph).units):
        assert (slept.forward, slept.backward) == (computed.forward, computed.backward)
        assert versions == {name: p.version for name, p in real.parameters().items()}
    device.close()
    real.close()


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.INFER, Mode.PREDICT])
def test_what_sleeps_sends_zeros_and_keeps_its_parameters(mode: Mode) -> None:
    device = make_device("sleep:1PFLOPS")
    found = run(device, GRAPH, instances(4), mode=mode, updates="self", rule=UpdateRule(interval=5))
    fresh = run(make_device("null"), GRAPH, instances(1))
    assert found.losses == pytest.approx(dict.fromkeys(range(4), ROWS * np.log(CLASSES)), rel=1e-6)
    for name, value in fresh.parameters.items():
        assert np.array_equal(found.parameters[name], value), name
    assert all(not gradient.any() for gradient in found.gradients.values())
    device.close()


def test_a_log_of_a_run_that_sleeps_can_be_repeated() -> None:
    device = make_device("cpu,one=sleep:1TFLOPS")
    assert isinstance(device, MixedDevice)
    options = {"updates": "self", "rule": UpdateRule(interval=5), "place": "cell=one,head=cpu"}
    found = run(device, GRAPH, instances(6), log=True, **options)
    device.close()
    again = run(MixedDevice(device.devices, replay=device.log), GRAPH, instances(6), **options)
    assert (again.forward, again.backward) == (found.forward, found.backward)
    assert again.losses == found.losses
    for name, value in found.parameters.items():
        assert np.array_equal(again.parameters[name], value), name


def test_several_workers_and_devices_hand_on_every_message() -> None:
    device = make_device("cpu,one=sleep:1GFLOPS,two=sleep:10GFLOPS")
    options = {"updates": "self", "rule": UpdateRule(interval=7), "place": "cell=one,head=two", "workers": 3}
    found = run(device, GRAPH, instances(12), keys=5, **options)
    assert found.forward == found.backward == 12 * 4
    device.close()


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "node", "complaint"),
    [
        (lopsided(), "ones", "node 'join' waits for 1 more message.* at 'b', instance 6, firing .n=2."),
        (collision(), "number", "instance 6.*tells the two apart"),
        (scaled(log), "scale", "the loss of instance 6"),  # of zeros
    ],
)
def test_an_error_behind_what_sleeps_is_heard(graph: Graph, node: str, complaint: str) -> None:
    device = make_device("cpu,one=sleep:1TFLOPS")
    device.load(graph, {"*": UpdateRule()}, DeviceOptions(1, 0, "off", 3, settings={"place": f"{node}=one"}))
    data = {name: np.ones((1, width), np.float32) for name, width in graph.schema.data.items()}
    device.submit(0, 0, Instance(data=data, number=6), Mode.TRAIN)
    with pytest.raises(AmphwError, match=complaint):
        device.drain()
    device.close()


def test_a_device_that_is_closed_while_its_frames_sleep_says_so() -> None:
    device = make_device(f"sleep:{SLOW / 1e5!r}FLOPS")  # minutes for a frame
    device.load(GRAPH, {"*": UpdateRule()}, DeviceOptions(1, 0, "off", 3))
    device.submit(0, 1, instances(1)[0], Mode.TRAIN)
    assert device.poll(0.01) == []
    device.close()
    with pytest.raises(ExecutionError, match="closed with 1 instance"):
        device.drain()


def test_a_process_of_its_own_is_refused() -> None:
    with pytest.raises(AmphwError, match="sleep:1TFLOPS computes nothing, .* as in cpu,sleep:1TFLOPS"):
        make_device("cpu,one=process:sleep:1TFLOPS")
