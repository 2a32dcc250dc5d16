"""Number formats of the hardware: which bits a value, a weight, a gradient and what sums them up have.

All three travel as int16; where the binary point stands is chosen for each of the three, once for a device.
`q4.12` has 4 bits before the point, the sign among them, and 12 behind it: -8 .. 8 in steps of 1/4096.

>>> str(Formats.parse("q4.12,g=q1.15"))
'q4.12,g=q1.15'
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from amphw.ir.errors import AmphwError

BITS = 16
"""Of a value, a weight or a gradient."""

FINEST, COARSEST = 24, 2
"""Bits behind the point that a format may have."""

ACCUMULATOR, MOST_ACCUMULATOR = 40, 48
"""Bits of a sum of products where no layer takes more, and as many as there can be."""


class FormatError(AmphwError):
    """A format that is not one, or that cannot hold what it is needed for."""


@dataclass(frozen=True)
class Format:
    """A fixed-point format: an integer of `bits` bits in two's complement, times 2**-frac."""

    frac: int
    bits: int = BITS

    @classmethod
    def parse(cls, text: str) -> Format:
        """`qM.N` with M + N = 16; M counts the sign and may be negative, as in q-1.17."""
        found = re.fullmatch(r"q(-?\d+)\.(\d+)", text.strip().lower())
        if not found or int(found[1]) + int(found[2]) != BITS or not COARSEST <= int(found[2]) <= FINEST:
            raise FormatError(
                f"'{text}' is no number format; write qM.N with M + N = {BITS} and N from {COARSEST} to "
                f"{FINEST}, such as q4.12"
            )
        return cls(int(found[2]))

    @property
    def low(self) -> int:
        return -(1 << (self.bits - 1))

    @property
    def high(self) -> int:
        return (1 << (self.bits - 1)) - 1

    @property
    def one(self) -> int:
        """1.0, or the largest number where there is no 1.0."""
        return min(1 << self.frac, self.high)

    @property
    def step(self) -> float:
        return 2.0**-self.frac

    def exact(self, values: np.ndarray) -> np.ndarray:
        """float -> the nearest integers (of equals the even one), not saturated; int64. NaN counts as 0."""
        scaled = np.asarray(values, np.float64) * 2.0**self.frac
        limited = np.minimum(np.maximum(scaled, -(2.0**62)), 2.0**62)
        return np.rint(np.where(np.isnan(limited), 0.0, limited)).astype(np.int64)

    def quantise(self, values: np.ndarray) -> np.ndarray:
        """float -> integers of this format, int64, nearest and saturated."""
        # numpy's `clip` takes longer than these two where there are a few numbers.
        return np.minimum(np.maximum(self.exact(values), self.low), self.high)

    def real(self, integers: np.ndarray) -> np.ndarray:
        """Integers of this format -> float32."""
        return (np.asarray(integers, np.float64) * self.step).astype(np.float32)

    def __str__(self) -> str:
        return f"q{self.bits - self.frac}.{self.frac}"


@dataclass(frozen=True)
class Formats:
    """Everything about the arithmetic of a device.

    value, weight, gradient: of activations, visible weights, and gradients that travel. accumulator: bits in
    which products are summed; None: as many as the widest layer takes, `ACCUMULATOR` or more. sums: bits of
    a weight's gradient, summed over an interval; its point is that of value times gradient. master: bits of
    the weight that updates add to; the visible weight is its high half. rounding: "nearest", or
    "stochastic", which keeps no more than the visible weight and rounds updates at random (LFSR). The
    defaults are wide, so that little saturates; where a model's numbers are small finer ones may do, which
    `amphw codesign` finds out.
    """

    value: Format = Format(6)
    weight: Format = Format(11)
    gradient: Format = Format(10)
    accumulator: int | None = None
    sums: int = 36
    master: int = 32
    rounding: str = "nearest"

    def __post_init__(self) -> None:
        for name, allowed in (
            ("accumulator", range(39, MOST_ACCUMULATOR + 1)),
            ("sums", range(32, 37)),
            ("master", (24, 32)),
            ("rounding", ("nearest", "stochastic")),
        ):
            if name == "accumulator" and self.accumulator is None:
                continue
            if getattr(self, name) not in allowed:
                text = (
                    f"{allowed[0]} .. {allowed[-1]}"
                    if isinstance(allowed, range)
                    else ", ".join(map(str, allowed))
                )
                raise FormatError(f"number formats: {_LONG[name]}={getattr(self, name)}, allowed is {text}")

    @classmethod
    def parse(cls, text: str) -> Formats:
        """`q4.12` for all that moves forward; behind commas what differs, such as `g=q3.13,master=24`.

        Gradients are then `q2.14` if they are not named. Without a first format, what is not named is as in
        `Formats()`.
        """
        first, *others = [part.strip() for part in text.split(",")] if text.strip() else [""]
        found = cls()
        if first and "=" not in first:
            found = cls._all(Format.parse(first))
        elif first:
            others.insert(0, first)
        for part in others:
            key, _, argument = part.partition("=")
            name = _SHORT.get(key.strip())
            if name is None:
                raise FormatError(
                    f"'{part}' in the number formats '{text}': write w=qM.N (weights), g=qM.N (gradients), "
                    "acc=BITS, sum=BITS, master=BITS or round=nearest|stochastic"
                )
            argument = argument.strip()
            given: Any = argument
            if name in ("value", "weight", "gradient"):
                given = Format.parse(argument)
            elif name != "rounding":
                if not argument.isdigit():
                    raise FormatError(
                        f"'{part}' in the number formats '{text}': {key} takes a number of bits"
                    )
                given = int(argument)
            found = replace(found, **{name: given})
        return found

    @classmethod
    def _all(cls, value: Format) -> Formats:
        """What a text that names one format means."""
        return cls(value, value, Format(14))

    @property
    def accumulator_bits(self) -> int:
        """Of a plan's formats, see `accumulating`."""
        return self.accumulator or ACCUMULATOR

    def accumulating(self, bits: int) -> Formats:
        """With an accumulator that has at least so many bits, unless one is given.

        The usual one is not named, so that circuits in which it is enough are called what they were.
        """
        return replace(self, accumulator=bits) if self.accumulator is None and bits > ACCUMULATOR else self

    @property
    def sums_frac(self) -> int:
        """Bits behind the point of a weight's summed gradient."""
        return self.value.frac + self.gradient.frac

    @property
    def master_frac(self) -> int:
        return self.weight.frac + self.low_bits

    @property
    def low_bits(self) -> int:
        """Bits of the master below the visible weight; with stochastic rounding computed, but not kept."""
        return self.master - BITS

    def __str__(self) -> str:
        plain = self._all(self.value)
        parts = [str(self.value)]
        for f in fields(self):
            if getattr(self, f.name) != getattr(plain, f.name) and f.name != "value":
                parts.append(f"{_LONG[f.name]}={getattr(self, f.name)}")
        return ",".join(parts)


_SHORT = {
    "v": "value",
    "w": "weight",
    "g": "gradient",
    "acc": "accumulator",
    "sum": "sums",
    "master": "master",
    "round": "rounding",
}
_LONG = {name: short for short, name in _SHORT.items()}

DEFAULT = str(Formats())
"""Formats where none are given."""
