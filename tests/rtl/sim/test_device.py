"""A whole device under Verilator, word by word, as a run in this process recorded it."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.ir.device import DeviceOptions, Mode
from amphw.rtl.driver.messages import Messages
from amphw.rtl.driver.verilator import VerilatorDevice
from amphw.rtl.gateware.device import Device
from amphw.rtl.gateware.link.axi_stream import LONGEST, AxiStreamTop
from amphw.rtl.isa.wire import FIELDS, HEADER_WORDS
from amphw.rtl.toolchain.verilog import verilog
from sim.recorder import Recorder
from sim.replay import drive
from sim.runner import run_bench
from sim.second import play
from tests.rtl.cases import SMALL, problem, rule

FORMATS = "q6.10,g=q4.12"


def recorded(tmp_path: Path) -> tuple[Any, Path]:
    """A plan, and the script of a run of its device: what the host sent, and what came back."""
    graph, instances = problem("tree-leaves")
    device = VerilatorDevice(FORMATS)
    rules = {"*": rule("tree-leaves")}
    device.load(graph, rules, DeviceOptions(1, 0, "self", 3, True, {"watch_writes": True, **SMALL}))
    device.link = recorder = Recorder(device.link)
    # One instance at a time: then nothing depends on how fast words come.
    drive(device, instances[:3], 1, Mode.TRAIN)
    plan = device.plan
    device.parameters()
    device.link = None
    recorder.close()
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": recorder.turns, "came": recorder.came}))
    return plan, script


@pytest.mark.hardware
def test_a_device_between_two_axi_streams(tmp_path: Path) -> None:
    plan, script = recorded(tmp_path)
    settings = {"script": str(script)}
    result = run_bench(lambda: AxiStreamTop(plan), "axi_stream_bench", name="axi-stream", settings=settings)
    assert result.tests == 7


@pytest.mark.thorough  # two minutes, nearly all of them in the compiler
@pytest.mark.parametrize("pauses", [False, True])
def test_the_text_for_others_in_a_second_simulator(tmp_path: Path, pauses: bool) -> None:
    """It says the same words, in packets that end where the circuit rests."""
    plan, script = recorded(tmp_path)
    said = json.loads(script.read_text())
    text = verilog(AxiStreamTop(plan), "amphw_device", plain=True)
    packets = play(text, said["turns"], len(said["came"]), pauses=pauses)
    assert [word for packet in packets for word in packet] == said["came"]
    # Each ends with a message, or is as long as one may be; messages that follow each other are in one.
    messages = set(accumulate(map(len, Messages().cut(np.array(said["came"], np.uint16)))))
    ends = zip(packets, accumulate(map(len, packets)), strict=True)
    assert all(end in messages or len(packet) == LONGEST for packet, end in ends)
    assert len(said["turns"]) // 2 < len(packets) < len(messages)


@pytest.mark.hardware
def test_a_device_at_any_pace(tmp_path: Path) -> None:
    plan, script = recorded(tmp_path)
    result = run_bench(
        lambda: Device(plan, True), "device_bench", name="device", settings={"script": str(script)}
    )
    assert result.tests == 16
    never = {f"{path}: {state}" for path, states in result.unseen.items() for state in states}
    # What this graph and these messages cannot reach: inference, decisions, groups, host's updates.
    print("states that were not met:", sorted(never))
    assert not {s for s in never if "receiver" in s or "sender" in s}


def test_words_of_a_header() -> None:
    """The bench reads headers itself: it must not drift from the definition."""
    offset = 0
    for name, bits in FIELDS:
        if name == "words":
            assert offset == 5 * 16
        offset += bits
    assert HEADER_WORDS == 9
