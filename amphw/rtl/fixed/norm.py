"""The norm of a parameter's gradient, and the coefficient of an update that keeps it below `update.clip`.

The rule is that of `amphw.ir.update`: a gradient whose L2 norm exceeds `clip` is scaled down to it.
The hardware scales the coefficient instead, which every summed gradient is multiplied with anyway.
A mean over rows divides both the gradient and its norm by them, so rows do not appear: the clipped
coefficient is that of one row, times `clip`, over the norm of the *sums*; and a norm exceeds the
limit just where that is the smaller coefficient.
"""

from __future__ import annotations

import math

import numpy as np

from amphw.ir.errors import GraphError
from amphw.rtl.numbers.arithmetic import round_shift
from amphw.rtl.numbers.formats import Formats

NORM_BITS = 33
"""Of a summed gradient in the norm, signed: with its sign apart, two operands of a multiplier hold it."""

SQUARES_BITS = 88
"""Of a sum of squares, unsigned: of 2**24 numbers."""

LIMIT_BITS = 35
"""Of the limit of a norm, unsigned."""

_PART = 17
"""Bits of the lower part of a number that is squared."""


def norm_shift(formats: Formats) -> int:
    """Bits that a summed gradient loses for the norm."""
    return max(0, formats.sums - NORM_BITS)


def limit_of(node: str, clip: float, formats: Formats) -> int:
    """`clip` in the units of `norm`; 0 where nothing is clipped. GraphError for what the bits cannot hold."""
    if not clip:
        return 0
    frac = formats.sums_frac - norm_shift(formats)
    limit = round(math.ldexp(clip, frac))
    if not 0 < limit < 1 << LIMIT_BITS:
        low, high = math.ldexp(1.0, -frac), math.ldexp(1.0, LIMIT_BITS - frac)
        raise GraphError(
            f"clip = {clip:g}: with these number formats a norm can be limited to {low:.3g} .. {high:.3g}; "
            "set update.clip to one of them, or to 0",
            node=node,
        )
    return limit


def norm(sums: np.ndarray, shift: int) -> int:
    """The L2 norm of int64 numbers, each rounded to `shift` bits less, in units of 2**shift; rounded down."""
    magnitude = np.abs(round_shift(sums, shift)).reshape(-1)
    # A square has more bits than int64, and so has their sum: by parts, put together as Python's integers.
    low, high = magnitude & ((1 << _PART) - 1), magnitude >> _PART
    squares = (int(high @ high) << 2 * _PART) + (int(high @ low) << _PART + 1) + int(low @ low)
    return math.isqrt(squares)


def clipped(coefficient: int, numerator: int, limit: int, norm: int) -> int:
    """The coefficient of an update whose gradient sums have this norm. numerator: that of one row."""
    return min(coefficient, numerator * limit // norm) if limit and norm else coefficient
