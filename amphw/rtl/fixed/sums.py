"""Sums of gradients: a weight's over the rows of an interval, saturated after each row as in the hardware."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from amphw.ir.derive import add_rows
from amphw.rtl.numbers.formats import BITS, Formats

Term = tuple[str, np.ndarray | None, np.ndarray]
"""(kind, a, dz): kind "matmul" with a [rows, din], "take" with a [rows], "sum" without; dz [rows, dout]."""

_NONE = np.zeros(0, np.int64)


def accumulate(sums: np.ndarray, terms: Sequence[Term], formats: Formats) -> tuple[np.ndarray, np.ndarray]:
    """The sums after all rows of these terms, one after another -> and what additions made that saturated.

    The latter is int64 [n], one number an addition beyond the sums' bits.

    sums: int64 [din, dout], or [dout] for "sum"; it stays as it is. Where nothing can saturate on the way,
    which magnitudes tell, all rows are added at once.
    """
    limit = 1 << (formats.sums - 1)
    whole = [(kind, a, _real(dz, kind, formats)) for kind, a, dz in terms if len(dz)]
    if _reach(sums, whole) < limit:
        return _added(sums, whole), _NONE
    most = _added(np.abs(sums), [(k, None if a is None else np.abs(a), np.abs(dz)) for k, a, dz in whole])
    if most.max() < limit:
        return _added(sums, whole), _NONE
    saturated = [_NONE]
    for kind, a, dz in whole:
        for r in range(len(dz)):
            sums = _added(sums, [(kind, None if a is None else a[r : r + 1], dz[r : r + 1])])
            beyond = (sums < -limit) | (sums >= limit)
            if beyond.any():
                saturated.append(sums[beyond])
                sums = np.clip(sums, -limit, limit - 1)
    return sums, np.concatenate(saturated)


def total(parts: Sequence[tuple[np.ndarray, int]], rows: int, width: int) -> np.ndarray:
    """Exact sum of gradients (int64 [rows, width], or one row and its number; -1: all of them)."""
    out = np.zeros((rows, width), np.int64)
    for g, row in parts:
        if row < 0:
            out += g
        else:
            out[row] += g[0]
    return out


def _real(dz: np.ndarray, kind: str, formats: Formats) -> np.ndarray:
    """In float64, with the point of a sum."""
    real = dz.astype(np.float64)
    return real if kind == "matmul" else real * 2.0**formats.value.frac


def _reach(sums: np.ndarray, terms: Sequence[Term]) -> float:
    """No partial sum is larger: rows times the largest numbers."""
    reach = float(_largest(sums))
    for kind, a, dz in terms:
        factor = float(_largest(a)) if kind == "matmul" and a is not None else 1.0
        reach += len(dz) * factor * float(_largest(dz))
    return reach


def _largest(x: np.ndarray) -> float:
    return max(x.max(), -x.min()) if x.size else 0.0


def _added(sums: np.ndarray, terms: Sequence[Term]) -> np.ndarray:
    """In float64, which is exact: |sum| < 2**53, as products have 2 * BITS - 1 bits and rows are few."""
    out = sums.astype(np.float64)
    for kind, a, dz in terms:
        if kind == "sum":
            out += dz.sum(axis=0)
        elif kind == "matmul":
            assert a is not None
            out += a.T.astype(np.float64) @ dz
        else:
            assert a is not None
            add_rows(out, a, dz)
    return out.astype(np.int64)


assert 2 * BITS - 1 + 22 <= 53
