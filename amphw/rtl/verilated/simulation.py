"""One simulated device: words go in, words come out, cycles pass.

    simulation = Simulation(component)
    accepted, words, cycles = simulation.exchange(numpy.array([1, 2], "uint16"), max_cycles=1000)

A call runs at full speed without Python in between, and without the interpreter's lock: devices on several
threads run side by side. It returns after `max_cycles` at the latest, so that a scheduler can take turns
among devices.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from amphw.rtl.toolchain.environment import ToolchainError
from amphw.rtl.verilated.build import interface, library

_ROOM = 1 << 14  # words that one call into the library can deliver


class Exchange(NamedTuple):
    """What one exchange did: input words accepted, the words that came out, and the cycles that passed."""

    accepted: int
    words: np.ndarray
    cycles: int


class _Progress(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("cycles", "accepted", "delivered", "traced")]


class _Pace(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("in_at", "out_at")),
        *((name, ctypes.c_int64) for name in ("out_period", "out_free")),
    ]


ONE = 1 << 16
"""Of these a cycle has, where a word may take parts of one."""


@dataclass
class Pace:
    """A way in and out that takes time. Everything counts from the beginning of an exchange.

    in_at: int64 [words], the cycle at which each input word is there. out_period: ONEths of a cycle that a
    word takes on its way out; out_free: when that is free again, which the exchange moves on. out_at: int64,
    what the exchange adds: the cycle at which each word that came out was through.
    """

    in_at: np.ndarray
    out_period: int
    out_free: int
    out_at: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


class Simulation:
    """A component (see `build.interface` for the ports that it must have), reset and ready to run.

    trace: an output stream whose payloads are kept in `traced`, for debugging.
    idle: a 1-bit output; `exchange(until_idle=True)` returns early when it is set.
    Compiling takes seconds to minutes the first time and nothing after that. Raises ToolchainError.
    """

    def __init__(self, component: Any, *, trace: str = "", idle: str = "") -> None:
        self.interface = interface(component, trace)
        self.path = library(component, trace=trace, idle=idle)
        self.cycles = 0
        """Since the last reset."""
        self.traced: list[int] = []
        """Payloads of the traced stream since the last reset."""
        self.word = np.dtype(f"uint{self.interface.word_bits}")
        self._idle = idle
        self._library = _load(self.path)
        self._ports = {port.name: (k, port) for k, port in enumerate(self.interface.outputs)}
        self._out = np.empty(_ROOM, self.word)
        self._trace = np.empty(_ROOM if trace else 1, np.uint64)
        self._handle: Any = None
        self.reset()

    def reset(self) -> None:
        """As in the beginning: all words on their way are lost, and what memories held."""
        self.close()
        self._handle = self._library.sim_open()
        if not self._handle:
            raise ToolchainError(f"{self.path.name}: no memory for a simulation.")
        self.cycles = 0
        self.traced.clear()

    def exchange(
        self,
        words_in: np.ndarray,
        max_cycles: int,
        *,
        until_words: int = 0,
        until_idle: bool = False,
        pace: Pace | None = None,
    ) -> Exchange:
        """Offer words and take whatever comes out, for at most max_cycles.

        words_in: integers of `self.word`, one axis. The words that are not accepted must be offered first the
        next time: a stream does not take back what it has offered.
        until_words: return as soon as so many words came out; 0 for no such limit.
        until_idle: return when all words that are there are accepted, the output named `idle` is set and
        nothing is offered. pace: how fast words come and go; without it, one a cycle in each direction.
        """
        if until_idle and not self._idle:
            raise ValueError("until_idle needs the name of an output: Simulation(component, idle=...)")
        words_in = np.asarray(words_in)
        if words_in.ndim != 1 or (words_in.size and words_in.dtype != self.word):
            raise ValueError(
                f"words_in must be one axis of {self.word}, not {words_in.dtype} of shape {words_in.shape}"
            )
        words_in = np.ascontiguousarray(words_in, self.word)
        handle = self._open()
        accepted = cycles = delivered = 0
        parts: list[np.ndarray] = []
        way = _Way(pace) if pace is not None else None
        progress = _Progress()
        while cycles < max_cycles:
            room = min(_ROOM, until_words - delivered) if until_words else _ROOM
            if room <= 0:
                break
            self._library.sim_exchange(
                handle,
                words_in[accepted:].ctypes.data,
                words_in.size - accepted,
                self._out.ctypes.data,
                room,
                self._trace.ctypes.data,
                self._trace.size,
                max_cycles - cycles,
                until_idle,
                way.begin(accepted, cycles) if way is not None else None,
                ctypes.byref(progress),
            )
            if way is not None:
                way.end(cycles, progress.delivered)
            accepted += progress.accepted
            cycles += progress.cycles
            delivered += progress.delivered
            parts.append(self._out[: progress.delivered].copy())
            self.traced.extend(self._trace[: progress.traced].tolist())
            if progress.delivered < room and progress.traced < self._trace.size:
                break  # neither buffer was what stopped it
        self.cycles += cycles
        words = np.concatenate(parts) if parts else np.empty(0, self.word)
        return Exchange(accepted, words, cycles)

    def peek(self, name: str) -> Any:
        """The value of an output: an integer, or a constant of its layout, whose fields have names."""
        if name not in self._ports:
            known = ", ".join(self._ports) or "none"
            raise ToolchainError(f"There is no output {name} to look at. Outputs: {known}.")
        which, port = self._ports[name]
        raw = np.zeros(-(-port.width // 32), np.uint32)
        self._library.sim_peek(self._open(), which, raw.ctypes.data)
        bits = int.from_bytes(raw.tobytes(), "little")
        if hasattr(port.shape, "from_bits"):
            return port.shape.from_bits(bits)
        signed = getattr(port.shape, "signed", False)
        return bits - (1 << port.width) if signed and bits >> (port.width - 1) else bits

    def close(self) -> None:
        """Free the model. Closing twice is harmless."""
        if self._handle:
            self._library.sim_close(self._handle)
            self._handle = None

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    def _open(self) -> Any:
        if not self._handle:
            raise ToolchainError("This simulation is closed.")
        return self._handle


class _Way:
    """A pace as the calls of one exchange need it, each of which counts from its own beginning."""

    def __init__(self, pace: Pace):
        self._pace, self._out_at = pace, np.empty(_ROOM, np.int64)

    def begin(self, accepted: int, cycles: int) -> Any:
        pace = self._pace
        self._in_at = np.ascontiguousarray(pace.in_at[accepted:] - cycles, np.int64)
        here = self._in_at.ctypes.data, self._out_at.ctypes.data
        self._given = _Pace(*here, pace.out_period, pace.out_free - cycles * ONE)
        return ctypes.byref(self._given)

    def end(self, cycles: int, delivered: int) -> None:
        """cycles: before the call."""
        pace = self._pace
        pace.out_free = self._given.out_free + cycles * ONE
        pace.out_at = np.concatenate([pace.out_at, self._out_at[:delivered] + cycles])


def _load(path: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(path))
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    signatures: dict[str, tuple[list[Any], Any]] = {
        "sim_open": ([], pointer),
        "sim_close": ([pointer], None),
        "sim_exchange": (
            [
                *(pointer, pointer, integer, pointer, integer, pointer, integer),
                *(integer, ctypes.c_int, pointer, pointer),
            ],
            None,
        ),
        "sim_peek": ([pointer, ctypes.c_int, pointer], None),
    }
    for name, (arguments, result) in signatures.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, result
    return loaded
