"""A circuit as a part of somebody else's design: its Verilog, an example around it, and what packages it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

from amphw.rtl.build.boards import Board
from amphw.rtl.plan.hardware import HardwarePlan
from amphw.rtl.toolchain.pll import MHZ
from amphw.rtl.toolchain.verilog import verilog

DEVICE, SERIAL = "amphw_device", "amphw_serial"
"""The top modules of the circuit, and of the serial line of the example around it."""


def system_files(plan: HardwarePlan, board: Board, hz: float) -> dict[str, tuple[str, str]]:
    """By kind, each file's name and text; hz: of the clock, for the rate of the example's serial line.

    Raises ToolchainError where Yosys fails.
    """
    from amphw.rtl.gateware.link.axi_stream import AxiStreamTop
    from amphw.rtl.gateware.link.uart import UartLink, divisor

    serial = UartLink(divisor(hz, board.link.baud))
    values = {
        "MHZ": f"{hz / MHZ:.10g}",
        "BAUD": f"{board.link.baud:,}",
        "DEVICE": board.chip.device,
        "VENDOR": "amphw",
        "TITLE": f"{plan.lowered.graph.name}, {plan.sizes.lanes} lanes",
    }
    return {
        "verilog": (f"{DEVICE}.v", verilog(AxiStreamTop(plan), DEVICE, plain=True)),
        "serial": (f"{SERIAL}.v", verilog(serial, SERIAL, plain=True)),
        "example": ("example.v", _filled("example.v.in", values)),
        "package": ("package.tcl", _filled("package.tcl.in", values)),
    }


def _filled(name: str, values: Mapping[str, str]) -> str:
    text = resources.files("amphw.rtl.build").joinpath(name).read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text
