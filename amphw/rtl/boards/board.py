"""A board: its chip, what the chip has, and the pins of its clock and of its serial line."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

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

    NAMES: ClassVar[Mapping[str, str]] = {
        "luts": "look-up tables",
        "ffs": "flip-flops",
        "dsps": "multipliers",
        "brams": "block memories",
    }
    """What messages call those of them that a circuit takes."""

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

        Raises BoardError if there is no such pin-out, or none of these in it, ToolchainError if
        amaranth-boards is not installed.
        """
        require("board builds")
        module, name = self.platform
        try:
            platform: Any = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise BoardError(
                f"{self.name}: there is no pin-out {module}.{name} ({error}). The board's platform= names "
                "the module and the class"
            ) from error
        wired = {pin: to for each in getattr(platform, "connectors", ()) for pin, to in each}
        found: dict[str, str] = {}
        for resource in platform.resources:
            if (resource.name, resource.number) == (platform.default_clk, 0):
                found["clk"] = _pin(resource.ios[0], wired)
            elif (resource.name, resource.number) == ("uart", 0):
                lines = {line.name: line.ios[0] for line in resource.ios if line.name in ("rx", "tx")}
                found.update({line: _pin(ios, wired) for line, ios in lines.items()})
        missing = {port for port in ("clk", "rx", "tx") if not found.get(port)}
        if missing:
            raise BoardError(
                f"{self.name}: {module}.{name} has no pins for {', '.join(sorted(missing))}. Its default_clk "
                'has to name a Resource, and its resources need UARTResource(0, rx="PIN", tx="PIN"), from '
                "amaranth_boards.resources: give the board a platform= that has them"
            )
        return found


def _pin(pins: Any, wired: Mapping[str, str]) -> str:
    """The chip's own pin, also of a connector's; empty if it is none, such as a differential pair."""
    name = str(getattr(pins, "names", [""])[0])
    while ":" in name:
        name = wired.get(name, "")
    return name
