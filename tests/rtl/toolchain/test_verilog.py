# amaranth: UnusedElaboratable=no
"""The Verilog of a component is plain, free of the source's places, and always the same."""

from __future__ import annotations

import re
from typing import Any

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.link.uart import UartLink
from amphw.rtl.gateware.streams import Queue
from amphw.rtl.toolchain.environment import ToolchainError
from amphw.rtl.toolchain.state_machines import state_machines
from amphw.rtl.toolchain.verilog import ports, verilog
from tests.rtl.verilated.components import Adder


def header(text: str) -> set[str]:
    found = re.search(r"module top\((.*?)\);", text, re.DOTALL)
    assert found is not None
    return {name.strip() for name in found[1].split(",")}


def test_ports_have_plain_names() -> None:
    streams = {f"{name}_{part}" for name in ("i", "o") for part in ("payload", "valid", "ready")}
    assert header(verilog(Queue(8, 4))) == streams | {"level", "clk", "rst"}
    assert [port.name for port in ports(Queue(8, 4)) if port.is_input] == ["i_payload", "i_valid", "o_ready"]


def test_the_text_is_the_same_each_time(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    first = verilog(Adder(traced=True))
    monkeypatch.setenv("AMPHW_CACHE", str(tmp_path))
    assert verilog(Adder(traced=True)) == first
    assert verilog(Adder(traced=True, plus=4)) != first


def test_no_places_of_the_source_are_left() -> None:
    text = verilog(Adder())
    assert "src" not in text and ".py" not in text


class Copies(wiring.Component):
    """Without a clock, and with an array of ports."""

    def __init__(self) -> None:
        super().__init__({"i": In(3), "o": Out(3).array(2)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.d.comb += [port.eq(self.i) for port in self.o]
        return m


def test_clock_and_reset_are_there_on_request() -> None:
    assert {"clk", "rst"} & header(verilog(Copies())) == set()
    assert {"clk", "rst"} <= header(verilog(Copies(), clocked=True))
    assert {"clk", "rst"} & header(verilog(Queue(8, 4), reset=False)) == {"clk"}


def test_the_name_of_the_top() -> None:
    assert "module other(" in verilog(Queue(8, 4), "other")


def test_arrays_of_ports_are_numbered() -> None:
    assert header(verilog(Copies())) == {"i", "o_0", "o_1"}


def test_state_machines_by_path() -> None:
    machines = state_machines(UartLink(8))
    states = machines["encoder.encoder_state"]
    assert states == {0: "Choose", 1: "First", 2: "Sum", 3: "Middle", 4: "Last"}
    assert set(machines) == {"receiver.receiver_state", "decoder.decoder_state", "encoder.encoder_state"}


def test_a_name_that_verilator_would_change_is_refused() -> None:
    with pytest.raises(ToolchainError, match="Component: a__b is not a plain port name"):
        verilog(wiring.Component({"a__b": Out(1)}))
