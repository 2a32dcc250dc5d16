"""Values of 16 bits on the wire: half the bytes, for some of their digits. Sums stay as wide as they were."""

from __future__ import annotations

import numpy as np

_LARGEST = float(np.finfo(np.float16).max)


def encode(values: np.ndarray, wire: str) -> np.ndarray:
    """An array of real numbers as it goes over the wire; rounded to nearest, ties to even.

    wire: full, float16 or bfloat16. float16 saturates at 65,504, and has 11 significant bits; bfloat16 has 8,
    and the range of float32. What is infinite or no number stays so, so that all ranks notice a run that
    diverges.
    """
    if wire == "full":
        return values
    if wire == "float16":
        bounded = np.where(np.isfinite(values), np.clip(values, -_LARGEST, _LARGEST), values)
        return bounded.astype(np.float16)
    with np.errstate(over="ignore"):
        bits = values.astype(np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(
        np.uint16
    )
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def decode(coded: np.ndarray, wire: str, kind: np.dtype) -> np.ndarray:
    """What was sent, in this type of number."""
    if wire == "bfloat16":
        coded = (coded.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return coded.astype(kind, copy=False)


def coded_kind(kind: np.dtype, wire: str) -> np.dtype:
    """The type of what `encode` gives."""
    return {"full": kind, "float16": np.dtype(np.float16), "bfloat16": np.dtype(np.uint16)}[wire]
