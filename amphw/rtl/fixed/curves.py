"""Sigmoid and tanh by straight lines: 512 segments, their starts and slopes in a table.

Outside of [-limit, limit) a curve is taken to be flat. The table has 16 bits behind the point; the format
of the inputs is that of the outputs. Which line an input is on is written once, for numpy and for gates.

>>> curve("tanh", 12).evaluate(np.array([0, 4096, -32768]))
array([    0,  3120, -4096])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from amphw.rtl.numbers.arithmetic import Select, narrow, saturate
from amphw.rtl.numbers.formats import BITS, COARSEST, FormatError

SEGMENTS = 512
"""Lines of a curve: the depth of a block RAM with 36 bits a word, which a start and a slope fill."""

TABLE_FRAC = 16
"""Bits behind the point of starts and slopes."""

STEP_BITS = (1 << BITS).bit_length() - SEGMENTS.bit_length()
"""Bits of a position within a segment: as many as are left where 512 segments cover all inputs."""

FINEST = 15
"""Bits behind the point at most: with more, a format does not reach 1/2, where sigmoid is at 0."""


@dataclass(frozen=True)
class Curve:
    """A curve for inputs and outputs with `frac` bits behind the point.

    Inputs are clipped to [-limit_int, limit_int); a segment is 2**s inputs long. Segment i starts at
    the value T[i] and rises by S[i], both with TABLE_FRAC bits behind the point and at most 18 bits long.
    error: how far at most an output is from the true value, in units of 1.0.
    """

    name: str
    frac: int
    limit_int: int
    s: int
    T: tuple[int, ...]
    S: tuple[int, ...]
    error: float

    @property
    def shift(self) -> int:
        """What `follow` has behind the point beyond `frac`."""
        return STEP_BITS + TABLE_FRAC - self.frac

    def locate(self, x: Any, select: Select) -> tuple[Any, Any]:
        """The segment of an input, and the position in it in units of 2**-STEP_BITS of a segment."""
        offset = saturate(x, self.limit_int.bit_length(), select) + self.limit_int
        return offset >> self.s, (offset & ((1 << self.s) - 1)) << (STEP_BITS - self.s)

    @staticmethod
    def follow(start: Any, slope: Any, position: Any) -> Any:
        """The value at a position of a segment, with TABLE_FRAC + STEP_BITS bits behind the point."""
        return (start << STEP_BITS) + slope * position

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        """int64 of any shape, values of int16 -> the same of the outputs."""
        return self._outputs[x + (1 << (BITS - 1))]

    @cached_property
    def _outputs(self) -> np.ndarray:
        """Of all inputs: to look one up is much faster than to follow a line."""
        half = 1 << (BITS - 1)
        segment, position = self.locate(np.arange(-half, half), np.where)
        value = self.follow(np.array(self.T)[segment], np.array(self.S)[segment], position)
        return np.asarray(narrow(value, self.shift, BITS, np.where), np.int64)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


_FUNCTIONS: dict[str, tuple[Callable[[Any], Any], int, float]] = {
    "sigmoid": (_sigmoid, 16, 1 / (6 * np.sqrt(3))),
    "tanh": (np.tanh, 8, 4 / (3 * np.sqrt(3))),
}
"""Function, limit, and how large its second derivative becomes."""


@lru_cache
def curve(name: str, frac: int) -> Curve:
    """The curve "sigmoid" or "tanh" with `frac` bits behind the point; FormatError where that is too many."""
    if name not in _FUNCTIONS:
        raise ValueError(f"there is no curve '{name}'; there are {', '.join(_FUNCTIONS)}")
    if not COARSEST <= frac <= FINEST:
        raise FormatError(
            f"{name} of values with {frac} bits behind the point: {COARSEST} to {FINEST} are possible; "
            "give values a format such as q4.12"
        )
    function, limit, bend = _FUNCTIONS[name]
    # Neither beyond what 16 bits hold nor segments shorter than one input.
    limit_int = min(max(limit << frac, SEGMENTS // 2), 1 << (BITS - 1))
    s = (2 * limit_int // SEGMENTS).bit_length() - 1
    starts = (np.arange(SEGMENTS + 1) << s) - limit_int
    table = np.rint(function(starts * 2.0**-frac) * 2.0**TABLE_FRAC).astype(np.int64)
    # Rounding of the result and of the table, lines in place of a bend, and what is taken to be flat.
    error = 2.0 ** -(frac + 1) + 2.0 ** -(TABLE_FRAC + 1)
    if s > 0:
        error += bend / 8 * 2.0 ** (2 * (s - frac))
    if limit_int < 1 << (BITS - 1):
        error += float(1 - function(np.float64((limit_int - 1) * 2.0**-frac)))
    return Curve(
        name, frac, limit_int, s, tuple(table[:-1].tolist()), tuple(np.diff(table).tolist()), float(error)
    )
