"""Sections of a board's file but those of its links: what each says, and of what kind it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from amphw.ir.config_fields import option
from amphw.rtl.toolchain.families import FAMILIES, Target


@dataclass(frozen=True)
class Chip:
    """[chip]: as nextpnr calls it."""

    family: str = option(help="of chips, whose tools build for it", choices=FAMILIES)
    device: str = option(help="the chip")
    package: str = option("", help="its package, where the chip's name does not tell")
    speed: str = option("6", help="its speed grade")
    series: str = option("", help="of a Gowin chip, which its name does not tell")

    @property
    def target(self) -> Target:
        return Target(self.family, self.device, self.package, self.speed, self.series)


@dataclass(frozen=True)
class Resources:
    """[resources]: what a chip has.

    Multipliers are of 18 x 18 bits, of 16 x 16 on iCE40. bram_bits: of one block memory.
    """

    NAMES: ClassVar[Mapping[str, str]] = {
        "luts": "look-up tables",
        "ffs": "flip-flops",
        "dsps": "multipliers",
        "brams": "block memories",
    }
    """What messages call those of them that a circuit takes."""

    luts: int = option(help="look-up tables of four inputs", minimum=1)
    ffs: int = option(help="flip-flops", minimum=1)
    dsps: int = option(help="multipliers", minimum=0)
    brams: int = option(help="block memories", minimum=0)
    bram_bits: int = option(help="bits of one block memory", minimum=1)


@dataclass(frozen=True)
class Clock:
    """[clock]: all that is known of how fast circuits are there; nothing else states a clock."""

    oscillator_mhz: float = option(help="of the oscillator", above=0)
    target_mhz: float = option(
        help="at which a circuit is to run if nobody says: the chip's PLL makes the highest rate up to it at "
        "which timing closes",
        above=0,
    )
    circuit_mhz: float = option(help="at which one is taken to run that has not been built", above=0)


@dataclass(frozen=True)
class Pins:
    """[pins]: a class of amaranth-boards, and pins that it lacks, of levels of the standard `levels`."""

    platform: str = option("", help="MODULE:CLASS of the pin-out in amaranth-boards")
    clk: str = option("", help="the oscillator's pin")
    rx: str = option("", help="where the serial line's bytes arrive")
    tx: str = option("", help="where they leave")
    levels: str = option("LVCMOS33", help="the standard of those pins' levels, as the chip's tools call it")


@dataclass(frozen=True)
class Loader:
    """[loader]."""

    openfpgaloader: str = option("", help="the board's name in openFPGALoader")


@dataclass(frozen=True)
class Notes:
    """[notes]: for people."""

    tried: str = option("", help="what was tried on it")
