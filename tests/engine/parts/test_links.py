"""Links with a stated rate: who may have one, and what is told of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from amphw.cpu_runtime import planes
from amphw.host.devices import make_device
from amphw.host.session import Session
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import LinkRate
from amphw.ir.errors import AmphwError
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


def test_a_device_that_sleeps_counts_and_waits() -> None:
    device, found = ran("cpu,one=sleep:1PFLOPS", "one=1Mb/s+1ms")
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
