"""A circuit on an FPGA board, behind a serial port or in a network."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from amphw.ir.device import Capabilities, DeviceOptions, LinkRate
from amphw.ir.errors import AmphwError, DeviceAbsentError, DeviceLostError, ExecutionError
from amphw.ir.graph import Graph
from amphw.ir.update import UpdateRule
from amphw.rtl.build.circuit import RUN, Circuit, CircuitError
from amphw.rtl.driver.active import Link
from amphw.rtl.driver.board_check import check_sizes, settle
from amphw.rtl.driver.board_link import BoardLink
from amphw.rtl.driver.device import HardwareDevice
from amphw.rtl.driver.part import HardwarePart
from amphw.rtl.driver.serial_line import SerialLine, absent, ports, ports_here
from amphw.rtl.driver.serial_words import SerialWords
from amphw.rtl.driver.udp_line import BITS_PER_S, UdpLine, parse
from amphw.rtl.driver.word_line import WordLine
from amphw.rtl.isa.datagrams import SCHEME
from amphw.rtl.isa.wire import WORD
from amphw.rtl.isa.word_frames import BAUD, BITS, BYTES
from amphw.rtl.numbers.formats import DEFAULT
from amphw.rtl.plan.hardware import HardwarePlan

EXAMPLE = "board:/dev/ttyUSB0,circuit=FOLDER"

PATIENCE, PATIENCE_OF_NETWORKS = 5.0, 30.0
"""Seconds for which a board may be silent that owes an answer: a network's cable may be plugged in again."""

USAGE = (
    "write board:PORT,circuit=FOLDER, or board:PORT,FORMATS, and behind it baud=N or silence=SECONDS; PORT "
    "is a serial port, or udp://ADDRESS"
)


@dataclass(frozen=True)
class Argument:
    """What stands behind `board:`. port: a serial one, or `udp://ADDRESS`, with `:PORT` or without.
    circuit: the folder that `amphw rtl` has written. silence: in seconds, 0 where nothing is said."""

    port: str
    formats: str = ""
    circuit: str = ""
    baud: int = 0
    silence: float = 0.0

    @property
    def in_network(self) -> bool:
        return self.port.startswith(SCHEME)

    @property
    def patience(self) -> float:
        return self.silence or (PATIENCE_OF_NETWORKS if self.in_network else PATIENCE)

    @classmethod
    def parse(cls, text: str) -> Argument:
        """Raises AmphwError, which says how it is written."""
        port, *others = [piece.strip() for piece in text.split(",")]
        if not port or "=" in port:
            raise AmphwError(f"the device 'board:{text}' names no port: {USAGE}, such as {EXAMPLE}")
        found, formats = cls(port), []
        for piece in others:
            key, equals, value = piece.partition("=")
            if key == "circuit" and value:
                found = replace(found, circuit=value)
            elif key in ("baud", "silence") and equals:
                found = replace(found, **{key: _positive(text, key, value)})  # type: ignore[arg-type]
            else:
                formats.append(piece)
        if found.in_network:
            parse(port)
            if found.baud:
                raise AmphwError(f"the device 'board:{text}': baud= is a serial line's; a network has none")
        if found.circuit and formats:
            raise AmphwError(
                f"the device 'board:{text}' says {','.join(formats)}: a circuit has the formats that it was "
                f"built with; {USAGE}"
            )
        return replace(found, formats=",".join(formats))


def _positive(text: str, key: str, value: str) -> float:
    try:
        number = int(value) if key == "baud" else float(value)
    except ValueError:
        number = 0
    if not 0 < number < 1e9:
        raise AmphwError(f"the device 'board:{text}': {key}={value} is no number above 0; {USAGE}")
    return number


def listed() -> dict[str, Capabilities | str]:
    """By USB serial port: what a board behind it could do, or why the port cannot be opened.

    Where there is none, PORT stands for what has to be named. DeviceAbsentError without pyserial.
    """
    about: dict[str, Capabilities | str] = {}
    for port, description in ports().items():
        try:
            able = BoardDevice(port).capabilities()
            about[port] = replace(able, notes=f"a circuit on an FPGA board at {able.notes}: {description}")
        except DeviceAbsentError as error:
            about[port] = str(error)
    notes = f"a circuit on an FPGA board: name a port, such as {EXAMPLE}; {ports_here()}"
    return about or {"PORT": Capabilities("board:PORT", "fpga", formats=(DEFAULT,), notes=notes)}


def missing(port: str) -> str:
    """Why the port cannot be used, as far as that can be told without touching it; a network says nothing."""
    return "" if port.startswith(SCHEME) else absent(port)


class BoardDevice(HardwareDevice):
    """`board:/dev/ttyUSB0,circuit=FOLDER`: the circuit in that folder, flashed and at work; or in a network,
    `board:udp://192.168.1.50,circuit=FOLDER`.

    Without a circuit the sizes are those that `device.*` says, as for a simulated one, and have to be those
    of what is flashed. The board cannot be reset from here: what an earlier run left is thrown away.
    """

    name = "board"
    watched = False
    remedy = "configure the board anew (amphw flash), which resets it"

    def __init__(self, argument: str = "", nodes: Collection[str] | None = None):
        self.argument = argument
        self.about = Argument.parse(argument)
        self.circuit = Circuit.read(Path(self.about.circuit)) if self.about.circuit else None
        super().__init__(self.circuit.formats if self.circuit else self.about.formats or DEFAULT, nodes)
        self.built = self.circuit.nodes if self.circuit else None
        self.baud = self.about.baud or (self.circuit.baud if self.circuit else 0) or BAUD
        if why := missing(self.about.port):
            raise DeviceAbsentError(why)

    def capabilities(self) -> Capabilities:
        if self.about.in_network:
            rate, notes = LinkRate(BITS_PER_S), self.about.port
        else:
            rate = LinkRate(self.baud * WORD / (BITS * BYTES))
            notes = f"{self.about.port}, {self.baud:,} baud"
        if self.circuit and self.circuit.board:
            notes = f"{self.circuit.board} at {notes}"
        return replace(super().capabilities(), link=rate, notes=notes)

    def part(self) -> HardwarePart:
        """See `OffersPart`."""
        return HardwarePart(partial(BoardDevice, self.argument))

    def make_plan(
        self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions
    ) -> HardwarePlan:
        """With the sizes of the circuit. Raises CircuitError where that was built for something else."""
        if self.circuit is None:
            return super().make_plan(graph, rules, options)
        self._check_keys(self.circuit, options)
        sized = replace(options, settings={**options.settings, **asdict(self.circuit.sizes)})
        plan = super().make_plan(graph, rules, sized)
        try:
            self.circuit.check(plan)
        except CircuitError as error:
            raise CircuitError(f"{error}{self._settings()}") from None
        return plan

    def _settings(self) -> str:
        """Where the settings are that the circuit was built with, for the end of a message."""
        path = Path(self.about.circuit) / RUN
        return f". All settings that it was built with: --config {path}" if path.is_file() else ""

    def _check_keys(self, circuit: Circuit, options: DeviceOptions) -> None:
        wanted, slots = options.max_active_keys + options.max_infer_keys, circuit.sizes.slots
        if wanted > slots:
            train = min(options.max_active_keys, circuit.keys or slots - 1)
            raise CircuitError(
                f"the circuit in {self.about.circuit} has {slots} slots, the run wants {wanted}: "
                f"--set max_active_keys={train} --set max_infer_keys={max(1, slots - train)}"
                + self._settings()
            )

    def make_line(self) -> WordLine:
        """To the board, which is not yet told anything."""
        if self.about.in_network:
            return UdpLine(self.about.port, self.about.patience)
        return SerialWords(SerialLine(self.about.port, self.baud, self.about.patience), self.baud)

    def make_link(self, plan: HardwarePlan, writes: bool) -> Link:
        line = self.make_line()
        try:
            settle(line)
            if self.circuit is not None and line.identity not in (None, self.circuit.identity):
                raise CircuitError(
                    f"the circuit at {line.name} is another than that in {self.about.circuit}: flash that "
                    "one (amphw flash), or name the folder of the one that is in the board (circuit=DIR)"
                )
            link = BoardLink(line, self.about.patience)
            check_sizes(link, plan)
        except BaseException:
            line.close()
            raise
        return link

    def load(self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions) -> None:
        """Also reads the weights back. DeviceAbsentError where the port cannot be opened; CircuitError for
        another circuit; DeviceLostError where nothing right comes back."""
        try:
            super().load(graph, rules, options)
            if wrong := self._link.differing():
                raise CircuitError(
                    f"{self.about.port} does not keep the weights of {', '.join(wrong)}: the circuit was "
                    "built with other lanes or layers, or the line loses words. Flash the one of this run"
                )
        except BaseException:
            if self.link is not None:  # nothing in it is worth fetching
                self.link.close()
                self.link, self._kept = None, self.given
            raise

    def turn(self) -> bool:
        try:
            return super().turn()
        except ExecutionError as error:
            raise DeviceLostError(f"{self.about.port}: {error}") from error
