"""The arithmetic of the hardware, once for numpy and for gates.

Each function is written with operators that integers, integer arrays and Amaranth's values share, so that the
model and the datapath cannot differ. `select(condition, a, b)` is numpy's `where` or Amaranth's `Mux`.

>>> [round_shift(x, 1) for x in (1, 3, 5, -1, -3)]
[0, 2, 2, 0, -2]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Select = Callable[[Any, Any, Any], Any]


def round_shift(x: Any, shift: int) -> Any:
    """x / 2**shift to the nearest integer, of two equally near ones the even; a negative shift multiplies."""
    if shift <= 0:
        return x << -shift if shift else x
    half = (1 << (shift - 1)) - 1
    return (x + half + ((x >> shift) & 1)) >> shift


def saturate(x: Any, bits: int, select: Select) -> Any:
    """x, or the nearest number that `bits` bits in two's complement hold."""
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    beyond = x >> (bits - 1)  # 0 or -1 where x fits: gates for a few top bits, not for two comparisons
    return select((beyond == 0) | (beyond == -1), x, select(beyond < 0, low, high))


def narrow(x: Any, shift: int, bits: int, select: Select) -> Any:
    """Round and saturate: how a wide result becomes a number of a format."""
    return saturate(round_shift(x, shift), bits, select)
