"""A plan as files for a board: Verilog, constraints, the driver's header, and the chip's configuration."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from amphw.ir.errors import AmphwError
from amphw.rtl.boards import Board
from amphw.rtl.hardware_plan import HardwarePlan
from amphw.rtl.toolchain.environment import require
from amphw.rtl.toolchain.families import family
from amphw.rtl.toolchain.synthesis import Synthesis, synthesize
from amphw.rtl.wire import c_header


@dataclass(frozen=True)
class BoardBuild:
    """files: what was written, by kind: verilog, constraints, header, and bitstream if asked for."""

    plan: HardwarePlan
    board: Board
    synthesis: Synthesis
    files: dict[str, Path]

    @property
    def share(self) -> dict[str, float]:
        """What is used of the board's chip, by resource, in 0..1 (more, where it does not fit)."""
        used, there = self.synthesis, self.board.resources
        return {name: getattr(used, name) / getattr(there, name) for name in RESOURCES}


RESOURCES = ("luts", "ffs", "dsps", "brams")


def check_tools(board: Board, simulate: bool) -> None:
    """Raise ToolchainError unless everything that a build needs is installed."""
    require("Verilog", "synthesis", family(board.target).purpose, "board builds")
    if simulate:
        require("simulation")


def build(plan: HardwarePlan, board: Board, out: Path, frequency_mhz: float, bitstream: bool) -> BoardBuild:
    """Generate, map, place and route; takes minutes, and nothing where the same was built before.

    Writes into the folder `out`. Raises ToolchainError where a tool fails.
    """
    from amphw.rtl.gateware.board_top import BoardTop
    from amphw.rtl.toolchain.verilog import verilog

    text, pins = verilog(BoardTop(plan, board.clock_hz), reset=False), board.pins()
    kind = family(board.target)
    constraints = "".join(kind.constraints(port, pin) + "\n" for port, pin in pins.items())
    files = {
        "verilog": _write(out / "top.v", text),
        "constraints": _write(out / f"top.{kind.constraints_suffix}", constraints),
        "header": _write(out / "amphw_wire.h", c_header()),
    }
    made = synthesize(text, board.target, frequency_mhz=frequency_mhz, pins=pins, bitstream=bitstream)
    if made.bitstream is not None:
        files["bitstream"] = out / made.bitstream.name
        shutil.copyfile(made.bitstream, files["bitstream"])
    return BoardBuild(plan, board, made, files)


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise AmphwError(
            f"{path.parent} cannot be written ({error.strerror}). Give another folder."
        ) from error
    return path
