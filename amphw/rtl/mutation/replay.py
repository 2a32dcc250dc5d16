"""A circuit with many faults, whose inputs change as they did when a bench ran on it without one.

A fault is noticed where an output is another one before a rising edge of a clock: that is when the bench
looks. A payload that is not offered, or an address and a word that nobody uses, may be anything.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from amphw.rtl.mutation.machine import MEANS
from amphw.rtl.mutation.netlist import SELECT, Mutant, Netlist, flat, with_mutants
from amphw.rtl.mutation.play import Outcome
from amphw.rtl.mutation.waves import Changes, changes
from amphw.rtl.toolchain.build_cache import key
from amphw.rtl.toolchain.environment import ToolchainError
from amphw.rtl.toolchain.verilog import Port, ports
from amphw.rtl.verilated.build import TOP, compiled

_HARNESS = resources.files("amphw.rtl.mutation").joinpath("replays.cpp.in").read_text()


@dataclass(frozen=True)
class Recorded:
    """A component with the run of a bench.

    record: the waveforms of its ports, as VCD. clocks: inputs that are clocks. guards: outputs that mean
    something only while an expression of C++ over ports (`top.NAME`) is true. Others as for `play.Subject`.
    """

    name: str
    make: Callable[[], Any]
    record: Callable[[], Path]
    clocks: Sequence[str] = ("clk",)
    guards: Mapping[str, str] = field(default_factory=dict)
    within: str = ""
    without: Sequence[str] = ()
    share: int = 1

    def open(self) -> RecordedCircuit:
        return RecordedCircuit(self)


class RecordedCircuit:
    """A subject's circuit: its ports, its netlist, and what was recorded."""

    def __init__(self, subject: Recorded) -> None:
        self.subject = subject
        component = subject.make()
        self.ports = ports(component)
        self.netlist: Netlist = flat(component, reset=True)
        there = self.netlist.module["ports"]
        self.inputs = [name for name, port in there.items() if port["direction"] == "input"]
        self._widths = {name: len(port["bits"]) for name, port in there.items()}
        self.changes: Changes = changes(subject.record(), self.inputs, subject.clocks)

    @property
    def digest(self) -> str:
        """Of everything that a verdict depends on besides the netlist."""
        stream = hashlib.sha256(self.changes.stream.tobytes()).hexdigest()
        return key(_HARNESS, stream, repr(sorted(self.subject.guards.items())))

    def with_mutants(self, mutants: Sequence[Mutant]) -> Replayer:
        return Replayer(self, mutants)

    def outputs(self) -> list[Port]:
        return [port for port in self.ports if not port.is_input]

    def width(self, name: str) -> int:
        return self._widths[name]


class Replayer:
    """Replays the run against a circuit with the mutants that were given, whose numbers count from 1."""

    def __init__(self, circuit: RecordedCircuit, mutants: Sequence[Mutant]) -> None:
        self.circuit = circuit
        places, look = _looks(circuit)
        self._places = places
        self.looked = sum(words for _, words in places)
        fields = {
            "TOP": TOP,
            "SELECT": SELECT,
            "WIDTHS": ", ".join(str(-(-circuit.width(name) // 32)) for name in circuit.inputs),
            "SET": "\n".join(_set(circuit, k, name) for k, name in enumerate(circuit.inputs)),
            "LOOK": "\n".join(look),
            "LOOKED": str(self.looked),
        }
        text = _HARNESS
        for name, value in fields.items():
            text = text.replace(f"@{name}@", value)
        source = with_mutants(circuit.netlist, mutants)
        doing = f"Simulation of the mutants of {circuit.subject.name}"
        path = compiled(source, text, doing, verilator=["--no-assert"], either_edge=False)
        self._replay = ctypes.CDLL(str(path)).mutant_replay
        integer, pointer = ctypes.c_int64, ctypes.c_void_p
        self._replay.argtypes = [integer, pointer, integer, pointer, pointer]
        self._replay.restype = integer
        self._wanted = np.zeros(circuit.changes.looks * self.looked, np.uint32)
        self._seen = np.zeros(self.looked, np.uint32)
        self._run(0, None, self._wanted)
        if self._run(0, self._wanted, self._seen) >= 0:
            raise ToolchainError(f"{circuit.subject.name}: a run without a fault differs from itself.")

    def _run(self, number: int, wanted: np.ndarray | None, seen: np.ndarray) -> int:
        stream = self.circuit.changes.stream
        given = wanted.ctypes.data if wanted is not None else None
        return int(self._replay(number, stream.ctypes.data, len(stream), given, seen.ctypes.data))

    def outcome(self, number: int) -> Outcome:
        """What the bench's run makes of a mutant."""
        at = self._run(number, self._wanted, self._seen)
        if at < 0:
            return Outcome()
        was = self._wanted[at * self.looked :][: self.looked]
        places = np.flatnonzero(was != self._seen)
        ends = np.cumsum([words for _, words in self._places])
        name = self._places[int(np.searchsorted(ends, places[0], side="right"))][0]
        return Outcome("OUTPUT", "the bench's run", f"{name} at edge {at}")


def _set(circuit: RecordedCircuit, number: int, name: str) -> str:
    width = circuit.width(name)
    if width > 64:
        return f"    case {number}: std::memcpy(top.{name}.data(), value, {4 * -(-width // 32)}); break;"
    high = " | uint64_t(value[1]) << 32" if width > 32 else ""
    return f"    case {number}: top.{name} = value[0]{high}; break;"


def _looks(circuit: RecordedCircuit) -> tuple[list[tuple[str, int]], list[str]]:
    """Of each output its name and its words of 32 bits, and the statements that look at them."""
    outputs = [port.name for port in circuit.outputs() if port.width]
    places, lines, at = [], [], 0
    for name in outputs:
        width, guard = circuit.width(name), circuit.subject.guards.get(name, "")
        stem, _, end = name.rpartition("_")
        other = f"{stem}_{MEANS[end]}" if end in MEANS else ""
        if not guard and other in outputs:
            guard = f"top.{other}"
        if width > 64:
            line = f"std::memcpy(out + {at}, top.{name}.data(), {4 * -(-width // 32)});"
        elif width > 32:
            line = f"{{ const uint64_t v = top.{name}; std::memcpy(out + {at}, &v, 8); }}"
        else:
            line = f"out[{at}] = top.{name};"
        lines.append(f"    {f'if ({guard}) ' if guard else ''}{line}")
        places.append((name, -(-width // 32)))
        at += -(-width // 32)
    return places, lines
