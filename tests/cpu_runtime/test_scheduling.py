"""Which frame comes next, and how late its gradients are: exactly, on each data plane.

Workers wait until all instances have been submitted; from then on, one worker's run is determined.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice, planes
from amphw.engine.numpy_plane.float32 import FloatParameters
from amphw.engine.parts.driver import PartDriver
from amphw.engine.policy import POLICIES
from amphw.ir.device import DeviceOptions, Mode, Statistics
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from amphw.mixed.device import MixedDevice
from amphw.rtl.fixed.device import FixedDevice
from tests.conftest import PLANES
from tests.cpu_runtime.graphs import mlp, rows
from tests.graphs.cases import CASES

KEYS = 6


@pytest.fixture
def serve(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., tuple[list[Any], Statistics, CpuDevice]]]:
    """Run instances on a plane, all of them submitted before the one worker begins -> (log, statistics)."""
    opened: list[CpuDevice] = []

    def served(
        plane: str, graph: Graph, instances: Sequence[Instance], rule: UpdateRule, **settings: Any
    ) -> tuple[list[Any], Statistics, CpuDevice]:
        monkeypatch.setenv(planes.ENGINE, plane)
        go = threading.Event()
        kind, _ = planes.chosen()
        run = kind.run
        with monkeypatch.context() as patched:
            patched.setattr(
                kind, "run", lambda self, worker, budget: go.wait(0.01) and run(self, worker, budget)
            )
            device = CpuDevice()
            opened.append(device)
            options = DeviceOptions(len(instances), 1, "self", 3, True, {"workers": 1, **settings})
            device.load(graph, {"*": rule}, options)
            for slot, instance in enumerate(instances):
                instance.number = slot
                device.submit(slot, 0, instance, Mode.TRAIN)
            go.set()
            device.drain()
        return list(device.log), device.statistics(), device

    yield served
    for device in opened:
        device.close()


def frames(log: Sequence[Any]) -> list[tuple[Any, ...]]:
    """(node, direction, firings) of each frame, in the order in which they began.

    Within a frame the order of firings is the plane's own.
    """
    return [
        (node, kind, sorted(firings))
        for event, *what in log
        if event == "start"
        for _, node, kind, firings in [what]
    ]


# Where arrival decides among instances, so does the order within a frame, which is not defined: chains alone.
ORDERED = [
    (name, policy)
    for name in ("rnn-hash", "tree-leaves", "message-passing")
    for policy in POLICIES
    if policy != "backward-first" or name == "rnn-hash"
]


@pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
@pytest.mark.parametrize(("name", "policy"), ORDERED)
@pytest.mark.parametrize("caps", [{}, {"frame_cap": 3}, {"frame_rows": 4}, {"frame_rows": 5, "min_rows": 3}])
def test_the_engine_serves_in_the_order_that_the_policy_defines(
    serve: Any, name: str, policy: str, caps: dict[str, int]
) -> None:
    """`amphw.engine.policy.choose` and `Queue`, which the plane in numpy goes by, are the definition."""
    found = []
    for plane in PLANES:
        (case,) = (c for c in CASES if c.name == name)
        instances = case.instances(1)[:KEYS]
        log, _, _ = serve(plane, case.build(), instances, UpdateRule(interval=7), policy=policy, **caps)
        found.append(frames(log))
    assert found[0] == found[1] and len(found[0]) > 10


def recounted(log: Sequence[Any], height: int) -> dict[str, Counter[int]]:
    """Staleness from the log alone: versions between a firing's two frames. height: rows of each firing."""
    versions: Counter[str] = Counter()
    seen: dict[tuple[Any, ...], int] = {}
    found: dict[str, Counter[int]] = {}
    for kind, *what in log:
        if kind == "reduced":
            versions[what[0]] += 1
        elif kind == "start":
            _, node, direction, firings = what
            for firing in firings:
                if direction == "backward":
                    found.setdefault(node, Counter())[versions[node] - seen[node, firing]] += height
                else:
                    seen[node, firing] = versions[node]
    return found


def of_a_part(log: Sequence[Any], node: str, height: int, interval: int) -> Counter[int]:
    """Staleness at a node of a part, which runs frames in the order in which they begin.

    It updates itself behind the frame that completes an interval.
    """
    version = gathered = 0
    seen: dict[Any, int] = {}
    found = Counter[int]()
    for kind, *what in log:
        if kind != "start" or what[1] != node:
            continue
        _, _, direction, keys = what
        for key in keys:
            if direction == "backward":
                found[version - seen[key]] += height
            else:
                seen[key] = version
        gathered += height * len(keys) * (direction == "backward")
        if gathered >= interval:
            version, gathered = version + 1, 0
    return found


def assert_a_parts_staleness_is_exact(part: Any, interval: int, policy: str) -> None:
    """`head` on a part beside the CPU.

    It begins when every instance waits for it: what comes first has then finished by the policy alone, and
    gradients of the last are some versions behind where forward frames are served in order of arrival.
    """
    count, height, device = 24, 4, MixedDevice({"part": part})
    place = {"layer0": "cpu", "layer1": "cpu", "head": "part"}
    settings = {"workers": 1, "place": place, "policy": policy, "frame_cap": 2}
    rule = UpdateRule(interval=interval, lr=0.01)
    go, hand_out = threading.Event(), PartDriver.hand_out
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PartDriver, "hand_out", lambda self: hand_out(self) if go.is_set() else None)
        device.load(mlp(), {"*": rule}, DeviceOptions(count, 1, "self", 3, True, settings))
        for slot, instance in enumerate(rows(count, height)):
            device.submit(slot, 0, instance, Mode.TRAIN)
        while (
            sum(len(event[4]) for event in device.log if event[0] == "start" and event[2] == "layer1") < count
        ):
            device.poll(0.01)
        go.set()
        device.drain()
    expected = of_a_part(list(device.log), "head", height, interval)
    found = device.statistics().staleness["head"]
    device.close()
    assert dict(found) == dict(expected)
    assert expected.total() == count * height
    assert policy != "fifo" or max(expected) >= 2, "none of this was late"


@pytest.mark.parametrize("policy", ["default", "fifo"])
@pytest.mark.parametrize("interval", [4, 7, 10])
def test_staleness_at_a_part_is_counted_in_the_order_of_its_frames(interval: int, policy: str) -> None:
    part = FixedDevice("q6.10,g=q6.10")
    assert_a_parts_staleness_is_exact(part, interval, policy)


@pytest.mark.parametrize("policy", ["default", "fifo"])
@pytest.mark.parametrize("interval", [4, 7, 10])
def test_staleness_is_the_versions_between_a_firings_two_frames(
    serve: Any, plane: str, policy: str, interval: int
) -> None:
    height = 4
    instances = rows(24, height)
    rule = UpdateRule(interval=interval, lr=0.01)
    log, stats, device = serve(plane, mlp(), instances, rule, policy=policy, frame_cap=2)
    expected = {n: dict(h) for n, h in recounted(log, height).items() if n in stats.staleness}
    assert {node: dict(h) for node, h in stats.staleness.items()} == expected
    assert len(stats.staleness) == 3
    if policy == "fifo":
        assert max(max(h) for h in stats.staleness.values()) >= 2, "none of this was late"


@pytest.fixture
def reduction(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """The first update of 'head' on the plane in numpy: (it has begun, it may go on)."""
    monkeypatch.setenv(planes.ENGINE, "numpy")
    begun, go_on = threading.Event(), threading.Event()
    prepare = FloatParameters.prepare

    def slow(self: FloatParameters) -> dict[str, np.ndarray]:
        if self.node == "head" and not begun.is_set():
            begun.set()
            assert go_on.wait(20)
        return prepare(self)

    monkeypatch.setattr(FloatParameters, "prepare", slow)
    yield begun, go_on
    go_on.set()


def open_device(interval: int) -> CpuDevice:
    """Two workers; 'head' updates itself after so many rows, of which an instance has four."""
    device = CpuDevice()
    rules = {"*": UpdateRule(interval=1 << 30), "head": UpdateRule(interval=interval)}
    device.load(mlp(), rules, DeviceOptions(2, 1, "self", 3, False, {"workers": 2}))
    return device


def test_a_version_that_is_being_made_is_not_yet_one(
    reduction: tuple[threading.Event, threading.Event],
) -> None:
    """While a worker reduces, gradients that another one counts are behind what is published, not more."""
    begun, go_on = reduction
    device = open_device(interval=4)
    first, second = rows(2)
    device.submit(0, 0, first, Mode.TRAIN)
    assert begun.wait(20)
    device.submit(1, 0, second, Mode.TRAIN)
    counted = Counter[int]()
    while counted.total() < 8:
        counted.update(device.statistics().staleness.get("head", {}))
    go_on.set()
    device.drain()
    device.close()
    assert counted == {0: 8}


@pytest.mark.parametrize(("interval", "waits"), [(4, True), (5, False)])
def test_an_instance_that_completes_an_interval_retires_once_the_update_is_published(
    reduction: tuple[threading.Event, threading.Event], interval: int, waits: bool
) -> None:
    """So that with one key in flight the next instance sees it; exactly so many rows complete an interval."""
    begun, go_on = reduction
    device = open_device(interval)
    first, second = rows(2)
    device.submit(0, 0, first, Mode.TRAIN)
    if waits:
        assert begun.wait(20)
        assert not device.poll(0.1)
        go_on.set()
    assert len(device.drain()) == 1
    go_on.set()
    device.submit(0, 1, second, Mode.TRAIN)
    device.drain()
    assert device.statistics().staleness["head"] == {0: 8}
    device.close()
