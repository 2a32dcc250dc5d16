"""Hardware behind links of any speed: the same numbers, later."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("amaranth")

from amphw.host.devices import make_device
from amphw.ir.device import DeviceOptions, Investigates, LinkRate, Mode
from amphw.ir.errors import AmphwError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.mixed.device import MixedDevice
from amphw.rtl.build.boards import assumed
from amphw.rtl.driver.verilator import VerilatorDevice
from sim.replay import SEED, assert_as_model, drive
from tests.conformance.harness import run
from tests.conformance.test_mixed_rtl import PLACES
from tests.daily import daily
from tests.rtl.cases import SMALL, problem, rule

NAME = "tree-leaves"
FORMATS = "q6.10,g=q4.12"


@pytest.mark.parametrize("links", daily(["verilator=10Gb/s"], ["", "verilator=80Mb/s+2us"]))
def test_a_replayed_order_gives_the_same_bits(links: str) -> None:
    """With updates: what the device did is what the model of its arithmetic does in this order."""
    graph, instances = problem(NAME)
    settings = {"watch_writes": True, "links": links, **SMALL}
    device = VerilatorDevice(FORMATS)
    device.load(graph, {"*": rule(NAME)}, DeviceOptions(4, 0, "self", SEED, True, settings))
    reports, _ = drive(device, instances[:6], 4, Mode.TRAIN)
    args = {"*": rule(NAME)}, instances[:6], reports, 4, Mode.TRAIN
    assert assert_as_model(device, graph, *args) > 100
    device.close()


def gradients(graph: Graph, instances: list[Instance], links: str, clock: str = "50MHz") -> tuple[dict, dict]:
    """Sums of gradients of a run without updates, and what links.json says."""
    device = VerilatorDevice(FORMATS)
    found = run(device, graph, instances, links=links, clock=clock, **SMALL)
    device.close()
    assert device.log == []  # nobody has asked for it, and it would grow
    return found.gradients, json.loads(device.findings().files["links.json"])["verilator"]


@pytest.mark.thorough
def test_sums_do_not_depend_on_the_speed_and_the_time_does() -> None:
    graph, instances = problem(NAME)
    fast, slow = (gradients(graph, instances[:4], f"verilator={rate}") for rate in ("10Gb/s", "50Mb/s+5us"))
    for name, value in fast[0].items():
        assert np.array_equal(slow[0][name], value), name
    assert slow[1]["words_to"] == fast[1]["words_to"] > 1000
    assert slow[1]["seconds"] >= 16 * slow[1]["words_to"] / 5e7 > 2 * fast[1]["seconds"]
    assert slow[1]["share_to"] > 0.3 > fast[1]["share_to"]
    assert 0.5 < slow[1]["share_idle"] <= 1.0 and fast[1]["share_idle"] < slow[1]["share_idle"]
    assert slow[1]["idle_cycles"] == pytest.approx(slow[1]["share_idle"] * slow[1]["cycles"], rel=1e-6)
    assert gradients(graph, instances[:4], "verilator=50Mb/s+5us")[1] == slow[1]  # it is no matter of chance


@pytest.mark.thorough
def test_the_clock_is_another_thing_than_the_link() -> None:
    graph, instances = problem(NAME)
    found = [gradients(graph, instances[:2], "verilator=50Mb/s", clock)[1] for clock in ("50MHz", "100MHz")]
    assert found[1]["cycles"] > 1.5 * found[0]["cycles"] and found[1]["clock"] == 1e8
    assert found[1]["seconds"] < found[0]["seconds"]


@pytest.mark.thorough
def test_a_part_of_a_run_in_a_process() -> None:
    graph, instances = problem(NAME)
    place = {"place": ",".join(f"{node}=a" for node in PLACES[NAME]), "links": "a=100Mb/s+1us", **SMALL}
    device = make_device(f"cpu,a=process:verilator:{FORMATS}")
    assert isinstance(device, MixedDevice) and isinstance(device, Investigates)
    found = run(device, graph, instances[:4], **place)
    assert found.forward == found.backward > 0
    assert device.parts["a"].capabilities().link == LinkRate(1e8, 1e-6)
    device.close()
    table = device.findings()
    assert [row[:2] for row in table.rows] == [("a", "100Mb/s+1us")]
    used = json.loads(table.files["links.json"])["a"]
    assert used["words_to"] > 0 < used["words_back"] and used["share_back"] < used["share_to"] <= 1
    assert used["clock"] == assumed().clock_hz


def test_what_is_no_clock() -> None:
    graph, _ = problem(NAME)
    with pytest.raises(AmphwError, match="'50' is no number of cycles a second: write it as 50MHz"):
        settings = {"links": "verilator=1Mb/s", "clock": "50", **SMALL}
        VerilatorDevice(FORMATS).load(graph, {"*": rule(NAME)}, DeviceOptions(4, settings=settings))
