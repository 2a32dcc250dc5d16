"""A circuit with many faults in one library, and scripts that are played against each of them.

What the circuit without a fault says when a script is played is written down first. A fault is noticed where
the same script, at the same pace of both neighbours, gives another word, another record of what is watched,
an offer that is taken back, more than was to come, or no end.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from importlib import resources
from typing import Any

import numpy as np

from amphw.rtl.mutation.netlist import SELECT, Mutant, Netlist, flat, with_mutants
from amphw.rtl.toolchain.build_cache import key
from amphw.rtl.toolchain.environment import ToolchainError
from amphw.rtl.verilated.build import TOP, WORDS, compiled, interface

_ROOM, _TRACE_ROOM = 1 << 18, 1 << 20
_LIMIT = 20_000_000  # cycles of a script without a fault
_HARNESS = resources.files("amphw.rtl.mutation").joinpath("mutants.cpp.in").read_text()
_SLOWER, _PATIENCE, _GRACE = 2, 4, 1_000
"""A run counts as hung after so many times the cycles of the one without a fault, or where nothing moves for
so many times the longest time in which nothing did there; each and so many cycles more."""


class Verdict(IntEnum):
    """How a script ended; order shared with mutants.cpp.in, but for the last two, which Python finds."""

    SAME = 0
    WORD = 1  # another word came
    TRACE = 2  # another record of what is watched
    RETRACTED = 3  # an offer was taken back, or changed
    HUNG = 4  # words did not come
    RESTLESS = 5  # all came, and it was never idle
    MORE = 6  # more words than were to come
    CYCLES = 7  # the same, in other cycles than a bench accepts
    JUDGED = 8  # what a script's own judge does not accept


@dataclass(frozen=True)
class Said:
    """What a circuit said to a script. at: the cycle of each record of the trace. gap: the longest time in
    which nothing moved, in cycles."""

    verdict: Verdict
    words: np.ndarray
    traces: np.ndarray
    at: np.ndarray
    cycles: int
    gap: int


@dataclass(frozen=True)
class Outcome:
    """What was noticed of a mutant: how ("" for nothing), by what, and the details, as far as there are any.

    slower: nothing but that it took other cycles, which none of the benches holds against it.
    """

    how: str = ""
    by: str = ""
    why: str = ""
    slower: bool = False


Judge = Callable[[Said, Said], str]
"""Given what was said without a fault and with one: what is wrong, "" if nothing is."""


@dataclass(frozen=True)
class Script:
    """A conversation: turns of words, each begun as soon as so many words have come back.

    name: what a kill is put down to. chances: how often either neighbour is willing, given words and taking
    them, 0 to 1. stretch: the cycles for which it is so, on average. seed: of both. judge: compares in place
    of the exact order of all words and records. cycles: the same without exact order, of cycles. rest:
    cycles for which the circuit must be idle in the end.
    """

    name: str
    turns: Sequence[tuple[int, Sequence[int]]]
    chances: tuple[float, float] = (1.0, 1.0)
    stretch: int = 1
    seed: int = 1
    judge: Judge | None = None
    cycles: Judge | None = None
    rest: int = 64


@dataclass(frozen=True)
class Subject:
    """A circuit whose faults are looked for, with what its benches do.

    make: a component of one stream of words in and one out, see `verilated.build.interface`. scripts: what it
    is told; a later one is played where the ones before noticed nothing. within: the instance that is
    judged, where others stand around it. trace, idle: outputs of that name. share: of all faults, beside
    those of other subjects. without: instances that another subject judges.
    """

    name: str
    make: Callable[[], Any]
    scripts: Callable[[], Sequence[Script]]
    within: str = ""
    without: Sequence[str] = ()
    trace: str = ""
    idle: str = "idle"
    share: int = 1

    def open(self) -> Circuit:
        return Circuit(self)


class _Script(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("words", "after", "ends")),
        ("turns", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("in_chance", "out_chance", "length")),
        ("rest", ctypes.c_int64),
    ]


class _Said(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("words", "traces", "at")),
        *((name, ctypes.c_int64) for name in ("room", "trace_room", "came", "traced", "cycles", "gap")),
    ]


class Circuit:
    """A subject's circuit: its ports and its netlist."""

    def __init__(self, subject: Subject) -> None:
        component = subject.make()
        self.subject, self.form = subject, interface(component, subject.trace)
        self.netlist: Netlist = flat(component)
        self.scripts = subject.scripts()

    @property
    def digest(self) -> str:
        """Of what is played, and of the harness; the netlist and what judges are not part of it."""
        return key(
            _HARNESS, *(repr((s.name, s.chances, s.stretch, s.seed, s.rest, s.turns)) for s in self.scripts)
        )

    def with_mutants(self, mutants: Sequence[Mutant]) -> Player:
        return Player(self, mutants)


class Player:
    """Plays scripts against a circuit with the mutants that were given, whose numbers count from 1."""

    def __init__(self, circuit: Circuit, mutants: Sequence[Mutant]) -> None:
        self.subject, self.scripts = circuit.subject, circuit.scripts
        form, trace = circuit.form, self.subject.trace
        fields = {
            "TOP": TOP,
            "WORD": WORDS[form.word_bits],
            "SELECT": SELECT,
            "IN": form.link_in,
            "OUT": form.link_out,
            "IDLE": self.subject.idle,
            "TRACE_START": f"top.{trace}_ready = 1;" if trace else "",
            "TRACE_THERE": f"top.{trace}_valid" if trace else "false",
            "TRACE_TAKE": _TAKE.replace("@TRACE@", trace) if trace else "",
        }
        text = _HARNESS
        for name, value in fields.items():
            text = text.replace(f"@{name}@", value)
        self._word = np.dtype(f"uint{form.word_bits}")
        source = with_mutants(circuit.netlist, mutants)
        # Of choices that should exclude each other several may be met now, which is no reason to stop.
        doing = f"Simulation of the mutants of {self.subject.name}"
        path = compiled(source, text, doing, verilator=["--no-assert"])
        self._wanted: dict[str, tuple[Said, Any]] = {}
        self._play = ctypes.CDLL(str(path)).mutant_play
        integer, pointer = ctypes.c_int64, ctypes.c_void_p
        self._play.argtypes = [integer, pointer, pointer, integer, integer, integer, pointer]
        self._play.restype = integer
        self._buffers = self._room()

    def _room(self, words: int = _ROOM, traces: int = _TRACE_ROOM) -> tuple[_Said, list[np.ndarray]]:
        arrays = [np.zeros(words, self._word), np.zeros(traces, np.uint64), np.zeros(traces, np.int64)]
        return _Said(*(a.ctypes.data for a in arrays), words, traces), arrays

    def said(self, script: Script, number: int = 0) -> Said:
        """What the circuit says to a script, with a mutant or, of number 0, without one.

        Raises ToolchainError where a circuit without a fault comes to no end.
        """
        words = np.array([word for _, turn in script.turns for word in turn], self._word)
        after = np.array([before for before, _ in script.turns], np.int64)
        ends = np.cumsum([len(turn) for _, turn in script.turns]).astype(np.int64)
        chances = (round(65536 * chance) for chance in script.chances)
        given = _Script(
            *(a.ctypes.data for a in (words, after, ends)),
            *(len(after), script.seed, *chances, script.stretch, script.rest),
        )
        if number == 0:
            space, arrays = self._room()
            wanted, strict, patience, limit = None, 0, _LIMIT, _LIMIT
        else:
            space, arrays = self._buffers
            reference, there = self.wanted(script)
            wanted, strict = ctypes.byref(there), int(script.judge is None)
            patience = _PATIENCE * reference.gap + _GRACE
            limit = _SLOWER * reference.cycles + _GRACE
        verdict = Verdict(
            self._play(number, ctypes.byref(given), wanted, strict, patience, limit, ctypes.byref(space))
        )
        if number == 0 and verdict is not Verdict.SAME:
            raise ToolchainError(f"{self.subject.name}: '{script.name}' without a fault: {verdict.name}.")
        came, traced = space.came, space.traced
        return Said(
            verdict,
            arrays[0][:came].copy(),
            arrays[1][:traced].copy(),
            arrays[2][:traced].copy(),
            space.cycles,
            space.gap,
        )

    def wanted(self, script: Script) -> tuple[Said, Any]:
        """What the circuit without a fault says."""
        if script.name not in self._wanted:
            said = self.said(script)
            space = _Said(
                *(a.ctypes.data for a in (said.words, said.traces, said.at)),
                *(len(said.words), len(said.traces), len(said.words), len(said.traces), said.cycles),
            )
            self._wanted[script.name] = said, space
        return self._wanted[script.name]

    def judge(self, script: Script, number: int) -> tuple[Verdict, str]:
        """What a script notices of a mutant, and in words what its own judges say."""
        reference, _ = self.wanted(script)
        said = self.said(script, number)
        verdict, why = said.verdict, ""
        if verdict is Verdict.SAME and script.judge is not None and (why := script.judge(reference, said)):
            verdict = Verdict.JUDGED
        if verdict is Verdict.SAME and script.cycles is not None and (why := script.cycles(reference, said)):
            verdict = Verdict.CYCLES
        return verdict, why

    def outcome(self, number: int) -> Outcome:
        """What the scripts notice of a mutant."""
        slower = False
        for script in self.scripts:
            verdict, why = self.judge(script, number)
            if verdict is not Verdict.SAME:
                return Outcome(verdict.name, script.name, why)
            slower |= self.last_cycles != self.wanted(script)[0].cycles
        return Outcome(slower=slower)

    @property
    def last_cycles(self) -> int:
        return int(self._buffers[0].cycles)


_TAKE = """
        if (top.@TRACE@_valid) {
            const uint64_t record = top.@TRACE@_payload;
            if (said->traced == said->trace_room || (wanted && strict && said->traced >= wanted->traced)) {
                verdict = TRACE;
                break;
            }
            said->traces[said->traced] = record;
            said->at[said->traced] = cycle;
            if (wanted && strict && wanted->traces[said->traced] != record) {
                verdict = TRACE;
                break;
            }
            said->traced++;
        }"""
