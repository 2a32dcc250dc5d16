"""What the formats lose: how large numbers are where they are rounded, and how many saturate or vanish.

A place is an operation of a node that makes 16 bits of a wide result, or an array that updates change. Ranges
and saturations are counted for every number. Numbers that vanish, and the distribution of magnitudes, cost
as much as the arithmetic itself. They are taken from the first `FIRST` calls, so that a short run shows
something, and then from one call in `EVERY`, which counts that often, lest the start of a run prevails.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from amphw.ir.program import Instr
from amphw.rtl.fixed.operations import limits, rounded
from amphw.rtl.fixed.program import FixedProgram
from amphw.rtl.numbers.formats import BITS, COARSEST, Format, Formats

FIRST = 100
"""Calls that are all sampled."""

EVERY = 31
"""After them, one call in so many is; a prime, so that the steps of a loop take turns."""

FINEST = 15
"""Bits behind the point that are suggested at most: with more, a run that goes on has no room to grow."""

_FAR = 2.0**62

Kind = Literal["value", "gradient", "weight", "sum", "update"]
"""Value, gradient and weight have the three 16-bit formats; sums, velocities and updates have wider ones."""


@dataclass
class Meter:
    """One place. A call of it narrows, as `operations.plain` does, and counts.

    node: "" for what belongs to none. tensor: such as "forward affine W". operation: of a program, as it is
    listed there. count, saturated: numbers seen, and
    of these beyond the format. low, high: range before saturation, in steps of the format. sampled: numbers
    that a sample stands for. zeros, vanished: how many of these were 0, and how many others became 0.
    magnitudes: how many lie in 2**e <= |x| < 2**(e + 1), by e. lost: of these, how many became 0.
    """

    node: str
    tensor: str
    kind: Kind
    format: Format
    operation: str = ""
    count: int = 0
    saturated: int = 0
    low: int = 0
    high: int = 0
    sampled: int = 0
    zeros: int = 0
    vanished: int = 0
    magnitudes: dict[int, int] = field(default_factory=dict)
    lost: dict[int, int] = field(default_factory=dict)
    calls: int = 0

    def __post_init__(self) -> None:
        self.least, self.most = self.format.low, self.format.high

    def __call__(self, exact: np.ndarray, shift: int = 0) -> np.ndarray:
        return self._fitted(exact, shift, rounded(exact, shift))

    def quantise(self, values: np.ndarray) -> np.ndarray:
        """As `Format.quantise`."""
        exact = np.nan_to_num(values.astype(np.float64) * 2.0**self.format.frac, posinf=_FAR, neginf=-_FAR)
        exact = np.clip(exact, -_FAR, _FAR)
        return self._fitted(exact, 0, np.rint(exact))

    def _fitted(self, exact: np.ndarray, shift: int, whole: np.ndarray) -> np.ndarray:
        if self.see(exact, shift, whole):
            whole = np.clip(whole, self.least, self.most)
        return whole.astype(np.int64, copy=False)

    def see(self, exact: np.ndarray, shift: int, whole: np.ndarray) -> bool:
        """Count numbers exact / 2**shift that have become `whole`, not saturated yet -> whether any will."""
        if not whole.size:
            return False
        low, high = limits(whole)
        beyond = low < self.least or high > self.most
        if beyond:
            self.saturated += int(np.count_nonzero((whole < self.least) | (whole > self.most)))
        self._widen(low, high, whole.size)
        if self.calls < FIRST:
            self._sample(exact, shift, whole, 1)
        elif (self.calls - FIRST) % EVERY == 0:
            self._sample(exact, shift, whole, EVERY)
        self.calls += 1
        return beyond

    def add_saturated(self, exact: np.ndarray) -> None:
        """Count numbers beyond the format that are saturated before `see` is shown what became of them."""
        if exact.size:
            self._widen(*limits(exact), exact.size)
            self.saturated += exact.size
            self._sample(exact, 0, exact, 1)

    def _widen(self, low: int, high: int, count: int) -> None:
        if not self.count or low < self.low:
            self.low = low
        if not self.count or high > self.high:
            self.high = high
        self.count += count

    def _sample(self, exact: np.ndarray, shift: int, whole: np.ndarray, weight: int) -> None:
        present = exact != 0
        self.sampled += weight * exact.size
        powers = np.frexp(np.abs(exact[present].astype(np.float64)))[1] - (1 + shift + self.format.frac)
        gone = whole[present] == 0
        self.zeros += weight * (exact.size - powers.size)
        self.vanished += weight * int(np.count_nonzero(gone))
        _add_powers(self.magnitudes, powers, weight)
        _add_powers(self.lost, powers[gone], weight)

    # --- shares -----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return f"{self.node}: {self.tensor}" if self.node else self.tensor

    @property
    def saturated_share(self) -> float:
        return self.saturated / self.count if self.count else 0.0

    @property
    def vanished_share(self) -> float:
        """Of the numbers that are not 0."""
        present = self.sampled - self.zeros
        return self.vanished / present if present else 0.0

    @property
    def range(self) -> tuple[float, float]:
        """Least and greatest in real units, before saturation."""
        return self.low * self.format.step, self.high * self.format.step

    def to_json(self) -> dict[str, Any]:
        low, high = self.range
        return {
            "node": self.node,
            "tensor": self.tensor,
            "kind": self.kind,
            "operation": self.operation,
            "format": str(self.format),
            "count": self.count,
            "min": low,
            "max": high,
            "saturated": self.saturated,
            "sampled": self.sampled,
            "zeros": self.zeros,
            "underflowed": self.vanished,
            "magnitudes": {str(e): n for e, n in sorted(self.magnitudes.items())},
            "underflowed_magnitudes": {str(e): n for e, n in sorted(self.lost.items())},
        }


def _add_powers(counts: dict[int, int], powers: np.ndarray, weight: int) -> None:
    if powers.size:
        first = int(powers.min())
        for e, n in enumerate(np.bincount(powers - first).tolist(), first):
            if n:
                counts[e] = counts.get(e, 0) + weight * n


class Meters:
    """All places of a device, in the order in which they were made."""

    def __init__(self, formats: Formats):
        self.formats = formats
        self.all: list[Meter] = []

    def add(self, node: str, tensor: str, kind: Kind, given: Format | None = None) -> Meter:
        """A place for numbers of a kind, or of the format `given`."""
        own = given if given is not None else getattr(self.formats, kind)
        self.all.append(Meter(node, tensor, kind, own))
        return self.all[-1]

    def narrows(self, node: str, direction: str, program: FixedProgram) -> list[Meter]:
        """One for each operation of a program."""
        names = [label(o) for o in program.operations]
        lines = str(program).splitlines()
        made = []
        for k, (v, _) in enumerate(program.numbered()):
            kind = program.types[v].kind
            number = f" {names[:k].count(names[k]) + 1}" if names.count(names[k]) > 1 else ""
            place = self.add(
                node, f"{direction} {names[k]}{number}", "gradient" if kind == "gradient" else "value"
            )
            place.operation = lines[k]
            made.append(place)
        return made

    @property
    def used(self) -> list[Meter]:
        """Those that have seen numbers, what does most harm first: what saturates, then updates that vanish,
        then other numbers, and weights at last, which masters keep."""
        ranks = {"update": 0, "weight": 2}
        return sorted(
            (m for m in self.all if m.count),
            key=lambda m: (-m.saturated_share, not m.vanished, ranks.get(m.kind, 1), -m.vanished_share),
        )

    @property
    def updates(self) -> int:
        """Of the parameter that had most."""
        return max((m.calls for m in self.all if m.kind == "update"), default=0)

    def suggested(self) -> Formats:
        """The least bits before the point, one at least, with which nothing that was seen saturates."""
        found = {}
        for kind in ("value", "weight", "gradient"):
            ranges = [m.range for m in self.used if m.kind == kind]
            found[kind] = (
                holding(min(r[0] for r in ranges), max(r[1] for r in ranges))
                if ranges
                else getattr(self.formats, kind)
            )
        f = self.formats
        return Formats(**found, accumulator=f.accumulator, sums=f.sums, master=f.master, rounding=f.rounding)


def holding(low: float, high: float) -> Format:
    """The finest 16-bit format, q1.15 at most, that contains both numbers; the coarsest where none does."""
    for frac in range(FINEST, COARSEST, -1):
        f = Format(frac)
        if f.low * f.step <= low and high <= f.high * f.step:
            return f
    return Format(COARSEST)


def label(operation: Instr) -> str:
    """What an operation is called: its parameter tells several of a kind apart."""
    at = operation.attr()
    param = at.get("param") or at.get("bias") or at.get("curve")
    return f"{operation.op} {param}" if param else operation.op


def share(count: int, part: float) -> str:
    """A share of 0 .. 1 in percent; a trace is not nothing."""
    if not count:
        return "0"
    return "< 0.01 %" if part < 1e-4 else f"{100 * part:.2f} %"


assert BITS == 16  # of the three kinds; what is wider brings its format
