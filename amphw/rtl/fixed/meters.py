"""What the formats lose: how large numbers are where they are rounded, and how many saturate or vanish.

A place is an operation of a node that makes 16 bits of a wide result, or an array that updates change. Ranges
and saturations are counted for every number. Numbers that vanish, and the distribution of magnitudes, are
taken from one call in `EVERY`: they cost as much as the arithmetic itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from amphw.ir.program import Instr
from amphw.rtl.fixed import curves
from amphw.rtl.fixed.operations import limits, rounded
from amphw.rtl.fixed.program import FixedProgram
from amphw.rtl.formats import BITS, COARSEST, FINEST, Format, Formats

EVERY = 31
"""One call in so many is sampled; a prime, so that the steps of a loop take turns."""

_FAR = 2.0**62

Kind = Literal["value", "gradient", "weight", "sum", "update"]
"""Value, gradient and weight have the three 16-bit formats; sums, velocities and updates have wider ones."""


@dataclass
class Meter:
    """One place. A call of it narrows, as `operations.plain` does, and counts.

    node: "" for what belongs to none. tensor: such as "forward affine W". count, saturated: numbers seen, and
    of these beyond the format. low, high: range before saturation, in steps of the format. sampled, zeros,
    vanished: of a sample, how many were 0, and how many became 0. magnitudes: of the sample, how many lie in
    2**e <= |x| < 2**(e + 1), by e.
    """

    node: str
    tensor: str
    kind: Kind
    format: Format
    count: int = 0
    saturated: int = 0
    low: int = 0
    high: int = 0
    sampled: int = 0
    zeros: int = 0
    vanished: int = 0
    magnitudes: dict[int, int] = field(default_factory=dict)
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
        if not self.count or low < self.low:
            self.low = low
        if not self.count or high > self.high:
            self.high = high
        self.count += whole.size
        if self.calls % EVERY == 0:
            self._sample(exact, shift, whole)
        self.calls += 1
        return beyond

    def _sample(self, exact: np.ndarray, shift: int, whole: np.ndarray) -> None:
        present = exact[exact != 0]
        self.sampled += exact.size
        self.zeros += exact.size - present.size
        self.vanished += int(np.count_nonzero(whole[exact != 0] == 0))
        if present.size:
            powers = np.frexp(np.abs(present.astype(np.float64)))[1] - (1 + shift + self.format.frac)
            first = int(powers.min())
            for e, n in enumerate(np.bincount(powers - first).tolist(), first):
                if n:
                    self.magnitudes[e] = self.magnitudes.get(e, 0) + n

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
            "format": str(self.format),
            "count": self.count,
            "min": low,
            "max": high,
            "saturated": self.saturated,
            "sampled": self.sampled,
            "zeros": self.zeros,
            "underflowed": self.vanished,
            "magnitudes": {str(e): n for e, n in sorted(self.magnitudes.items())},
        }


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
        made = []
        for k, (v, _) in enumerate(program.numbered()):
            kind = program.types[v].kind
            number = f" {names[:k].count(names[k]) + 1}" if names.count(names[k]) > 1 else ""
            place = self.add(
                node, f"{direction} {names[k]}{number}", "gradient" if kind == "gradient" else "value"
            )
            made.append(place)
        return made

    @property
    def used(self) -> list[Meter]:
        """Those that have seen numbers, what loses most first."""
        seen = [m for m in self.all if m.count]
        return sorted(seen, key=lambda m: (-m.saturated_share, -m.vanished_share))

    def suggested(self) -> Formats:
        """The least bits before the point with which nothing that was seen saturates."""
        found = {}
        for kind in ("value", "weight", "gradient"):
            ranges = [m.range for m in self.used if m.kind == kind]
            found[kind] = (
                holding(
                    min(r[0] for r in ranges),
                    max(r[1] for r in ranges),
                    curves.FINEST if kind == "value" else FINEST,
                )
                if ranges
                else getattr(self.formats, kind)
            )
        f = self.formats
        return Formats(**found, accumulator=f.accumulator, sums=f.sums, master=f.master, rounding=f.rounding)


def holding(low: float, high: float, finest: int = FINEST) -> Format:
    """The finest 16-bit format whose range contains both numbers; the coarsest there is where none does."""
    for frac in range(finest, COARSEST, -1):
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
