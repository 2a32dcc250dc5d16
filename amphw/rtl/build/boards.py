"""Boards that can be built for: what their files in `boards/` say, and how `--board` finds one.

A board is a TOML file: its chip, what the chip has, its clock, its pins, who loads it, and what was tried.
The README beside them says what each key means. A user's own file is read the same way, wherever it lies.
"""

from __future__ import annotations

import difflib
import importlib
import ipaddress
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import amphw
from amphw.ir.config_fields import ConfigError, read
from amphw.ir.errors import AmphwError
from amphw.rtl.build.board_links import (
    ADDRESS,
    AXI_STREAM,
    KINDS,
    PHY_CLOCK,
    ULPI_CLOCKS,
    USB_CLOCKS,
    USB_RATES,
    LinkSettings,
    Phy,
    Usb,
    rgmii_pins,
    usb_pins,
)
from amphw.rtl.build.board_sections import Chip, Clock, Loader, Notes, Pins, Resources
from amphw.rtl.isa.word_frames import LEAST_DIVISOR
from amphw.rtl.toolchain.environment import require
from amphw.rtl.toolchain.families import Pin, Target, family
from amphw.rtl.toolchain.pll import MHZ, NET, ClockError, PllSetting, nearest
from amphw.rtl.toolchain.synthesis import ClockNet

MARGIN = 1.05
"""By how much timing must allow more than the clock: for its jitter, and for what the tools' model of a chip
leaves out."""


class BoardError(AmphwError):
    """A board that is not known, whose file cannot be used, or that lacks what is asked of it."""


@dataclass(frozen=True)
class Clocking:
    """How a circuit gets its clock. pll: what makes it of the oscillator's; None: it is the oscillator's, or
    the system's. further: clocks of its link that the chip makes, too, by port."""

    oscillator: Fraction
    pll: PllSetting | None
    further: Mapping[str, PllSetting | None] = field(default_factory=dict)

    @property
    def hz(self) -> float:
        """The circuit's clock."""
        return float(self.pll.hz if self.pll is not None else self.oscillator)

    def nets(self, margin: float = MARGIN) -> list[ClockNet]:
        """Each clock with the rate that timing must allow, the circuit's last: with a margin, as a factor."""
        mhz = self.hz / MHZ * margin
        made = [
            ClockNet(port, float(setting.hz / MHZ) * margin, needed=True)
            for port, setting in self.further.items()
            if setting is not None
        ]
        if self.pll is None:
            return [*made, ClockNet("clk", mhz, port=True)]
        used = None in self.further.values()
        rate = float(self.oscillator / MHZ) * (margin if used else 1)
        return [ClockNet("clk", rate, port=True, needed=used), *made, ClockNet(NET, mhz)]


_SECTIONS: Mapping[str, type] = {
    "chip": Chip,
    "resources": Resources,
    "clock": Clock,
    "pins": Pins,
    "link": LinkSettings,
    "ethernet": Phy,
    "usb": Usb,
    "loader": Loader,
    "notes": Notes,
}


@dataclass(frozen=True)
class Board:
    """A board that can be built for. text: of its file."""

    name: str
    text: str
    chip: Chip
    resources: Resources
    clock: Clock
    pinout: Pins
    link: LinkSettings
    ethernet: Phy
    usb: Usb
    loader: Loader
    notes: Notes

    @property
    def target(self) -> Target:
        """The chip, for the tools."""
        return replace(self.chip.target, brams=self.resources.brams)

    @property
    def is_system(self) -> bool:
        """Whether the circuit is a part of somebody else's design, who has clock and pins, and the tools."""
        return self.link.kind == AXI_STREAM

    def clocking(self, mhz: float | None = None) -> Clocking:
        """How a circuit gets the highest clock of up to so many MHz, or of the board's target_mhz.

        Raises ClockError where neither the oscillator nor the chip's PLL has such a rate, or where it is too
        slow for the board's serial line.
        """
        wanted = Fraction(str(mhz or self.clock.target_mhz)) * MHZ
        oscillator = Fraction(str(self.clock.oscillator_mhz)) * MHZ
        if self.is_system:
            return Clocking(wanted, None)
        found = Clocking(oscillator, None)
        if wanted != oscillator:
            try:
                made = Clocking(oscillator, family(self.target).pll(self.target)(oscillator, wanted))
            except ClockError:
                if oscillator > wanted:
                    raise
                made = found
            found = made if oscillator > wanted or made.hz > found.hz else found
        least = LEAST_DIVISOR * self.link.baud / MHZ
        if self.link.kind == "serial" and found.hz < least * MHZ:
            raise ClockError(
                f"A serial line of {self.link.baud:,} baud needs a clock of at least {least:g} MHz; this "
                f"one is {found.hz / MHZ:.4g} MHz. Ask for a higher one (--frequency), or for fewer baud "
                f"([link] in the file of the board {self.name})."
            )
        return replace(found, further=self._further(oscillator))

    def _further(self, oscillator: Fraction) -> dict[str, PllSetting | None]:
        """Clocks of the link that the chip makes, by port. Raises ClockError."""
        if self.link.kind != "usb" or not self.usb.clock:
            return {}
        mhz, off = USB_CLOCKS[self.usb.speed]
        pll = family(self.target).pll(self.target)
        return {self.usb.clock: nearest(pll, oscillator, Fraction(mhz * MHZ), off)}

    @property
    def placeable(self) -> Resources:
        """How much of its chip a circuit may take."""
        return replace(self.resources, luts=int(family(self.target).fullest * self.resources.luts))

    @property
    def clock_hz(self) -> float:
        """At which circuits run that have not been built: simulated, placed and estimated ones."""
        return self.clocking(self.clock.circuit_mhz).hz

    def clocks(self, clocking: Clocking) -> list[ClockNet]:
        """Each clock of a circuit with the rate that timing must allow, the circuit's last."""
        own = [PHY_CLOCK] if self.link.kind == "ethernet" else []
        own += [ULPI_CLOCKS[self.chip.family]] if self.link.kind == "usb" and not self.usb.clock else []
        return [*own, *clocking.nets()]

    @property
    def baud(self) -> int:
        """Of the serial port that a host opens; 0 where there is none."""
        return {"ethernet": 0, "usb": USB_RATES[self.usb.speed]}.get(self.link.kind, self.link.baud)

    def told_link(self) -> dict[str, Any]:
        """What means something of its link, by key."""
        return self.link.told() | ({"speed": self.usb.speed} if self.link.kind == "usb" else {})

    def reached_by(self, kind: str = "", address: str = "", port: int = 0) -> Board:
        """The same board, driven over a link of another kind, or at another address or UDP port.

        "" and 0 leave each as it is. Raises BoardError.
        """
        if not kind and not address and not port:
            return self
        if self.is_system:
            raise BoardError(
                f"{self.name} has two AXI4-Streams and no other link: leave out --link and --address"
            )
        if kind and kind not in KINDS:
            raise BoardError(f"There is no link {kind!r}: --link is {', '.join(KINDS[:-1])} or {KINDS[-1]}.")
        if address and not _is_ipv4(address):
            raise BoardError(f"{address!r} is no IPv4 address, such as {ADDRESS}")
        link = replace(
            self.link,
            kind=kind or self.link.kind,
            address=address or self.link.address,
            port=port or self.link.port,
        )
        if address and link.kind != "ethernet":
            raise BoardError(
                f"{self.name} is driven over {'USB' if link.kind == 'usb' else 'a serial line'}, which has "
                "no address: ask for --link ethernet"
            )
        said = f'[link]\nkind = "{link.kind}"\nbaud = {link.baud}\naddress = "{link.address}"\n'
        said += f'mac = "{link.mac}"\nport = {link.port}\n'
        text = f"{_SECTION_LINK.sub('', self.text).rstrip()}\n\n{said}"
        try:
            tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise BoardError(f"{self.name}: write [link] of its file as a section of its own") from error
        return _checked(replace(self, link=link, text=text))

    def pins(self) -> dict[str, Pin]:
        """The pins of the oscillator, `clk`, and of the link's ports: `rx` and `tx` of a serial line, those
        of `gateware.network.rgmii.RGMII`, or those of `gateware.usb.pins`, bit by bit; none in a system.

        Raises BoardError if there is no such pin-out, or one of these nowhere, ToolchainError if
        amaranth-boards is not installed and is needed.
        """
        if self.is_system:
            return {}
        levels = family(self.target).levels
        assumed = {levels: self.pinout.levels} if levels else {}
        wanted = ("clk", "rx", "tx") if self.link.kind == "serial" else ("clk",)
        named = {port: getattr(self.pinout, port) for port in wanted}
        own = {port: Pin(site, assumed) for port, site in named.items() if site}
        found = (self._of_platform(assumed) if self.pinout.platform else {}) | own
        if self.link.kind == "ethernet" and "eth_rx_clk" not in found:
            raise BoardError(
                f"{self.name}: its pin-out has no eth_rgmii number {self.ethernet.phy}: see phy in [ethernet]"
            )
        if self.link.kind == "usb" and not {"usb_p", "ulpi_data[0]"} & set(found):
            raise BoardError(
                f"{self.name}: its pin-out has no {self.usb.resource} of number 0 that is a port of USB: see "
                "resource in [usb]"
            )
        missing = [port for port in wanted if not found.get(port)]
        if missing:
            where = f"{self.pinout.platform} has" if self.pinout.platform else "its file names"
            raise BoardError(
                f"{self.name}: {where} no pins for {', '.join(missing)}. Name them in [pins] of its file, "
                f'such as {missing[0]} = "A1", or a platform of amaranth-boards that has a default clock and '
                "a UARTResource number 0"
            )
        return found

    def _of_platform(self, assumed: Mapping[str, str]) -> dict[str, Pin]:
        require("board builds")
        module, _, name = self.pinout.platform.partition(":")
        try:
            platform: Any = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise BoardError(
                f"{self.name}: there is no pin-out {self.pinout.platform} ({error}). platform in [pins] of "
                "the board's file is MODULE:CLASS of amaranth-boards"
            ) from error
        wired = {pin: to for each in getattr(platform, "connectors", ()) for pin, to in each}
        pairs = family(self.target).pairs
        found: dict[str, Pin] = {}
        for resource in platform.resources:
            if (resource.name, resource.number) == (platform.default_clk, 0):
                found["clk"] = _pin(resource.ios[0], {**assumed, **resource.attrs}, wired, pairs)
            elif self.link.kind == "ethernet":
                if (resource.name, resource.number) == ("eth_rgmii", self.ethernet.phy):
                    found |= rgmii_pins(resource, {**assumed, **resource.attrs}, wired)
            elif self.link.kind == "usb":
                supplies = ["vccio_ctrl"] if self.usb.supply_volts else []
                if resource.number == 0 and resource.name in [self.usb.resource, *supplies]:
                    found |= usb_pins(self.usb, resource, {**assumed, **resource.attrs}, wired)
            elif (resource.name, resource.number) == ("uart", 0):
                lines = {line.name: line for line in resource.ios if line.name in ("rx", "tx")}
                for name, line in lines.items():
                    found[name] = _pin(line.ios[0], {**assumed, **resource.attrs, **line.attrs}, wired, pairs)
        return found


def _pin(pins: Any, attributes: Mapping[str, Any], wired: Mapping[str, str], pairs: bool) -> Pin:
    """The chip's own pin, also of a connector's; without a site if it is none, such as a pair where none may
    be."""
    ends = pins.p if pairs and hasattr(pins, "p") else pins
    site = str(getattr(ends, "names", [""])[0])
    while ":" in site:
        site = wired.get(site, "")
    return Pin(site, {name: str(value) for name, value in attributes.items()})


_SECTION_LINK = re.compile(r"^\[link\][ \t]*(?:#[^\n]*)?\n.*?(?=^\[|\Z)", re.MULTILINE | re.DOTALL)


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _checked(made: Board) -> Board:
    """BoardError for a link over Ethernet or USB that the board does not have, or addresses that are none."""
    if made.link.kind == "usb" and (why := made.usb.refused(made.chip.family)):
        raise BoardError(f"{made.name} cannot be driven over USB of the chip's own: {why}")
    if made.link.kind == "ethernet":
        if made.ethernet.phy < 0 or made.chip.family != "ecp5":
            why = (
                "its file names no PHY ([ethernet])" if made.chip.family == "ecp5" else "its chip is no ECP5"
            )
            raise BoardError(f"{made.name} cannot be driven over Ethernet: {why}")
        try:
            _ = made.link.numbers
        except ValueError as error:
            raise BoardError(f"{made.name}: [link] of its file: {error}") from error
    return made


def folder() -> Path:
    """Where the boards' files lie: beside the package in a checkout, within it where it is installed."""
    package = Path(amphw.__file__).parent
    return package / "boards" if (package / "boards").is_dir() else package.parent / "boards"


def read_board(path: Path) -> Board:
    """A board's file; it is called as the file is. Raises BoardError, which names file and key."""
    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except OSError as error:
        raise BoardError(f"{path}: the board's file cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BoardError(f"{path}: the board's file is not valid TOML ({error})") from error
    try:
        for name in found:
            if name not in _SECTIONS:
                raise ConfigError(f"{path}: unknown section [{name}]. Sections: {', '.join(_SECTIONS)}.")
        parts: list[Any] = [
            read(kind, found.get(name, {}), f"{path}: [{name}]") for name, kind in _SECTIONS.items()
        ]
    except ConfigError as error:
        raise BoardError(str(error)) from error
    return _checked(Board(path.stem, text, *parts))


FILE = "board.toml"
"""A board's file in the folder of what was built for it."""


def board_of(built: Path, name: str) -> Board:
    """That which a folder was built for; a folder of before has the name alone."""
    own = built / FILE
    return replace(read_board(own), name=name) if own.is_file() else board(name)


def _largest_first() -> dict[str, Board]:
    found = [read_board(path) for path in folder().glob("*.toml")]
    return {board.name: board for board in sorted(found, key=lambda b: (-b.resources.luts, b.name))}


_ALL = _largest_first()

BOARDS: dict[str, Board] = {name: board for name, board in _ALL.items() if not board.is_system}
"""Those that come along, by name, the largest first."""

SYSTEMS: dict[str, Board] = {name: board for name, board in _ALL.items() if board.is_system}
"""Chips of systems that a circuit becomes a part of."""


def assumed() -> Board:
    """Whose `clock_hz` circuits are taken to run at where nothing says which board they are on."""
    return BOARDS["ulx3s-85f"]


def board(name: str) -> Board:
    """The board of a name, or of a file `NAME.toml`. Raises BoardError, with the nearest names."""
    if found := (BOARDS | SYSTEMS).get(name):
        return found
    if name.endswith(".toml"):
        return read_board(Path(name))
    near = difflib.get_close_matches(name, [*BOARDS, *SYSTEMS], n=2, cutoff=0.4)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    raise BoardError(
        f"There is no board {name!r}. {hint}Boards: {', '.join(BOARDS)}, or a file of your own, such as "
        f"mine.toml: the README in {folder()} says what stands in it. Systems that a circuit becomes a "
        f"part of: {', '.join(SYSTEMS)}"
    )
