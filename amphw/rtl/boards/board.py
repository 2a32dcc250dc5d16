"""A board: its chip, what the chip has, and the pins of its clock and of its serial line."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from amphw.ir.errors import AmphwError
from amphw.rtl.toolchain.environment import require
from amphw.rtl.toolchain.families import Target


class BoardError(AmphwError):
    """A board that is not known, or that lacks what is asked of it."""


@dataclass(frozen=True)
class Resources:
    """What a chip has: lookup tables, flip-flops, multipliers of 18 x 18 bits (16 x 16 on iCE40), block
    memories.

    bram_bits: of one block memory.
    """

    luts: int
    ffs: int
    dsps: int
    brams: int
    bram_bits: int


@dataclass(frozen=True)
class Board:
    """A board that can be built for.

    clock_hz: of the oscillator. frequency_mhz: what a design should reach when nothing else is asked for.
    platform: module and class of the board's pin-out in amaranth-boards. loader: its name in openFPGALoader.
    """

    name: str
    target: Target
    resources: Resources
    clock_hz: float
    frequency_mhz: float
    platform: tuple[str, str]
    loader: str

    def pins(self) -> dict[str, str]:
        """The pins of the ports `clk`, `rx` and `tx`: the oscillator and the serial line.

        Raises BoardError if the pin-out names no serial line, ToolchainError if it is not installed.
        """
        require("board builds")
        module, name = self.platform
        platform: Any = getattr(importlib.import_module(module), name)
        found: dict[str, str] = {}
        for resource in platform.resources:
            if (resource.name, resource.number) == (platform.default_clk, 0):
                found["clk"] = _pin(resource.ios[0])
            elif (resource.name, resource.number) == ("uart", 0):
                lines = {line.name: line.ios[0] for line in resource.ios if line.name in ("rx", "tx")}
                found.update({line: _pin(ios) for line, ios in lines.items()})
        missing = {"clk", "rx", "tx"} - set(found)
        if missing:
            raise BoardError(f"{self.name}: {module}.{name} has no pins for {', '.join(sorted(missing))}.")
        return found


def _pin(pins: Any) -> str:
    return str(pins.names[0])
