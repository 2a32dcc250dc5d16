# amaranth: UnusedElaboratable=no
"""What is written for a circuit that becomes a part of somebody else's design."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("amaranth")

from amphw.ir.errors import AmphwError
from amphw.rtl.build.boards import SYSTEMS, board
from amphw.rtl.build.system_files import DEVICE, SERIAL, system_files
from amphw.rtl.toolchain.environment import ToolchainError, run
from amphw.rtl.toolchain.pll import ClockError, none
from amphw.rtl.toolchain.synthesis import synthesize
from benchmarks.rtl_plans import SMALL_DEVICE, plan_of

ZYNQ = board("zynq-7020")


@pytest.fixture(scope="module")
def files() -> dict[str, tuple[str, str]]:
    return system_files(plan_of("list-reduction", SMALL_DEVICE, "q4.12", 2, 1, ZYNQ.name), ZYNQ, 80e6)


def ports(text: str, module: str) -> set[str]:
    found = re.search(rf"module {module}\((.*?)\);", text, re.DOTALL)
    assert found is not None
    return {name.strip() for name in found[1].split(",")}


def test_the_example_connects_every_port(files: dict[str, tuple[str, str]]) -> None:
    example = files["example"][1]
    for kind, module in (("verilog", DEVICE), ("serial", SERIAL)):
        [instance] = re.findall(rf"{module} \w+ \((.*?)\);", example, re.DOTALL)
        assert set(re.findall(r"\.(\w+)\s", instance)) == ports(files[kind][1], module)
    assert "clk: of 80 MHz; the line has 1,000,000 baud" in example and "@" not in example


def test_the_script_names_files_and_streams_that_there_are(files: dict[str, tuple[str, str]]) -> None:
    """Run by Tcl itself, with commands of Vivado that write down what they are given."""
    tkinter = pytest.importorskip("tkinter")
    tcl, said = tkinter.Tcl(), []
    for command in ("create_project", "add_files", "set_property", "update_compile_order", "current_fileset"):
        tcl.createcommand(command, lambda *given, name=command: said.append((name, *given)) or "it")
    tcl.eval("namespace eval ipx {}")
    for command in re.findall(r"ipx::(\w+)", files["package"][1]):
        tcl.createcommand(f"ipx::{command}", lambda *given, name=command: said.append((name, *given)) or "it")
    tcl.eval(files["package"][1])
    calls = {call[0]: call[1:] for call in said}
    assert calls["create_project"] == ("-in_memory", "-part", "xc7z020clg400-1")
    assert Path(calls["add_files"][0]).name == files["verilog"][0]
    assert ("set_property", "top", DEVICE, "it") in said and "save_core" in calls
    streams = {call[2]: call[4] for call in said if call[0] == "associate_bus_interfaces"}
    there = ports(files["verilog"][1], DEVICE)
    assert streams == {"s_axis": "aclk", "m_axis": "aclk"} and {"aclk", "s_axis_tdata"} <= there


def test_a_system_has_clock_and_pins_of_its_own() -> None:
    for system in SYSTEMS.values():
        assert system.pins() == {} and system.clocking(123.4).hz == 123.4e6
        assert system.clocking().pll is None and system.notes.tried
    with pytest.raises(ToolchainError, match=r"xc7z020clg400-1: no open tool places this chip"):
        synthesize("", ZYNQ.target, frequency_mhz=1)
    with pytest.raises(ClockError, match="made by the system"):
        none(1, 1)  # type: ignore[arg-type]


def test_a_wrong_name_lists_systems_too() -> None:
    with pytest.raises(AmphwError, match=r"Did you mean zynq-7020.*becomes a part of: .*kria-k26"):
        board("zynq7020")


@pytest.mark.hardware
def test_no_tool_has_anything_to_warn_of(files: dict[str, tuple[str, str]], tmp_path: Path) -> None:
    """Verilator ends with an error where it warns of anything, and nothing is waived."""
    names = []
    for kind in ("verilog", "serial", "example"):
        name, text = files[kind]
        (tmp_path / name).write_text(text)
        names.append(name)
        assert "lint_off" not in text
    run(["verilator", "--lint-only", "--top-module", "amphw_example", *names], tmp_path, doing="lint")
