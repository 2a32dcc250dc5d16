"""Links with a stated rate: who may have one, and what a sleeping part does with it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import planes
from amphw.engine.lowering.lower import lower
from amphw.engine.parts.part import PartFrame
from amphw.engine.parts.stand_in import SleepPart
from amphw.engine.policy import BACKWARD, FORWARD
from amphw.host.devices import make_device
from amphw.host.session import Session
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import Capabilities, DeviceOptions, LinkRate
from amphw.ir.errors import AmphwError
from amphw.ir.update import UpdateRule
from amphw.mixed.device import MixedDevice
from tests.conformance.harness import run
from tests.host.training import MODEL, settings

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")


def ran(spec: str, links: str) -> tuple[MixedDevice, Any]:
    device = make_device(spec)
    assert isinstance(device, MixedDevice)
    instances = list(MODEL.training(MODEL.config(), 0, 1))
    place = {"place": "cell=one,head=cpu"} if "one=" in spec else {}
    found = run(device, MODEL.graph(MODEL.config()), instances, links=links, **place)
    device.close()
    return device, found


@pytest.mark.parametrize("spec", ["cpu,one=sleep:1PFLOPS", "cpu,one=process:sleep:1PFLOPS"])
def test_a_sleeping_part_counts_and_waits(spec: str) -> None:
    device, found = ran(spec, "one=1Mb/s+1ms")
    assert found.forward == found.backward > 0
    (use,) = json.loads(device.findings().files["links.json"]).values()
    # 120 rows of 3 numbers there and of 8 back; backward the same with 8 there. And 8 bytes a firing.
    assert use["bytes_to"] == 120 * (3 + 8) * 4 + 2 * 12 * 8
    assert 0 < use["bytes_back"] <= 120 * (3 + 8) * 4 + 2 * 12 * 8
    assert use["seconds"] >= 8 * use["bytes_to"] / 1e6  # it cannot have taken less
    assert use["share_to"] == pytest.approx(8 * use["bytes_to"] / 1e6 / use["seconds"])
    assert 0 < use["share_idle"] <= 1
    ((label, rate, *_),) = device.findings().rows
    assert (label, rate) == ("one", "1Mb/s+1ms")
    assert device.parts["one"].capabilities().link == LinkRate(1e6, 1e-3)


def test_a_device_alone_that_sleeps_has_a_link() -> None:
    device, _ = ran("sleep:1PFLOPS", "sleep=1Gb/s")
    assert len(device.findings().rows) == 1


def test_without_a_rate_nothing_is_found() -> None:
    device, _ = ran("cpu,one=sleep:1PFLOPS", "")
    found = device.findings()
    assert not found.rows and list(found.files) == ["messages.json"]
    (remark,) = found.remarks
    assert remark.startswith("one: ") and "also what its nodes send each other" in remark


class Clock:
    """`time.perf_counter` of a test."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_transfers_queue_in_each_direction_and_overlap_with_computing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    clock = Clock()
    monkeypatch.setattr("amphw.engine.parts.stand_in.time", clock)
    graph = MODEL.graph(MODEL.config())
    lowered = lower(graph)
    unit = lowered.units[lowered.by_name["cell"]]
    rows = 10
    part = SleepPart(Capabilities("sleep", "sleep"), 2 * rows * 3 * 8 / 4.0)  # 4 s for a frame
    size_to, size_back = 8 + rows * 3 * 4, 8 + rows * 8 * 4
    part.state_link(LinkRate(8.0 * size_to, 1.0))  # 1 s there, and so much back:
    back = size_back / size_to
    part.load(graph, lowered, [unit], {"*": UpdateRule()}, DeviceOptions())
    one = np.zeros(1, np.int32)
    spaces = {name: np.array([rows], np.int32) for name, _ in unit.behaviour.spaces}
    for number in range(3):
        array = np.zeros((rows, 3), np.float32)
        part.start(PartFrame(number, unit.index, FORWARD, one, one, spaces, [array], []))
    seen = []
    while len(seen) < 3:
        seen += [(result.number, clock.now) for result in part.finished(100.0)]
    # The first is there after 2 s, and its 4 s of work go on while the others arrive.
    wanted = [(k, 2.0 + 4.0 * (k + 1) + back + 1.0) for k in range(3)]
    assert [n for n, _ in seen] == [n for n, _ in wanted]
    assert [t for _, t in seen] == pytest.approx([t for _, t in wanted])
    use = part.link_use()
    assert (use.sent, use.came) == (3 * size_to, 3 * size_back)
    assert (use.busy_to, use.busy_back, use.idle) == pytest.approx((3.0, 3 * back, 2.0))


def test_an_update_that_the_host_asks_for_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """din x dout operations, before the frames that come after; none where there is nothing to apply."""
    clock = Clock()
    monkeypatch.setattr("amphw.engine.parts.stand_in.time", clock)
    graph = MODEL.graph(MODEL.config())
    lowered = lower(graph)
    unit = lowered.units[lowered.by_name["cell"]]
    numbers = sum(int(np.prod(spec.shape)) for spec in graph.nodes["cell"].params)
    part = SleepPart(Capabilities("sleep", "sleep"), 2 * 3 * 8 / 4.0)  # 4 s for a frame of a row, 8 backward
    part.load(graph, lowered, [unit], {"*": UpdateRule()}, DeviceOptions(updates="none"))
    one = np.zeros(1, np.int32)
    spaces = {name: np.ones(1, np.int32) for name, _ in unit.behaviour.spaces}

    def done(kind: int) -> float:
        part.start(PartFrame(0, unit.index, kind, one, one, spaces, [np.zeros((1, 8), np.float32)], []))
        while not part.finished(100.0):
            pass
        return clock.now

    assert done(BACKWARD) == pytest.approx(8.0)
    part.update(["cell"])
    updated = 8.0 + numbers * 4.0 / (2 * 3 * 8)
    assert done(FORWARD) == pytest.approx(updated + 4.0)
    part.update(["cell"])
    assert done(FORWARD) == pytest.approx(updated + 8.0)
    assert part.statistics().updates == 1


@pytest.mark.parametrize(
    ("spec", "links", "complaint"),
    [
        (
            "cpu,one=fixed:q4.12",
            "one=1Mb/s",
            "device.links: one .fixed:.*: its link is what it is; device.lin",
        ),
        ("cpu,one=process:null", "one=1Mb/s", "device.links: one .null.: its link is what it is"),
        ("cpu,one=sleep", "cpu=1Mb/s", "device.links: cpu: its link is what it is"),
        ("cpu,one=sleep", "two=1Mb/s", "device.links: there is no device 'two' in this run; there are one"),
        ("cpu,one=sleep", "one=1M", "'1M' is no number of bits a second: write it as 10Gb/s"),
        ("cpu,one=sleep", "one=5", "device.links: one=5: '5' is no .*RATE.LATENCY, such as one=100Mb/s.20us"),
        ("cpu,one=sleep", "one=20us", "device.links: one=20us: .*RATE.LATENCY, such as one=100Mb/s.20us"),
        ("cpu,one=sleep", "one", "device.links = 'one': 'one' is not of the form DEVICE=RATE.LATENCY"),
    ],
)
def test_links_that_cannot_be(spec: str, links: str, complaint: str) -> None:
    with pytest.raises(AmphwError, match=complaint):
        ran(spec, links)


@pytest.mark.parametrize("spec", ["cpu", "fixed:q4.12", "reference", "null"])
def test_a_device_alone_whose_link_is_what_it_is(spec: str) -> None:
    device = make_device(spec)
    with pytest.raises(ConfigError, match="device.links: .*: its link is what it is"):
        Session(MODEL, settings("device.links=cpu=1Mb/s"), device)
