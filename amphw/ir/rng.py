"""Counter-based random numbers: the same state gives the same numbers in every order and executor.

Philox-2x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a keyed bijection of a
64-bit counter made of ten rounds of one 32x32 multiplication. Two multiplies and two xors a round lower to
any device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_MULTIPLIER = np.uint64(0xD256D193)
_WEYL = 0x9E3779B9
_MASK = np.uint64(0xFFFFFFFF)
_ROUNDS = 10


def philox2x32(low: np.ndarray, high: np.ndarray, key: int | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Encrypt the counters (low, high), 32 bits each held in uint64 -> two uint64 arrays of 32-bit words."""
    low, high = np.broadcast_arrays(np.asarray(low, np.uint64), np.asarray(high, np.uint64))
    k = (np.asarray(key, np.uint64) if isinstance(key, np.ndarray) else np.uint64(key & 0xFFFFFFFF)) & _MASK
    for _ in range(_ROUNDS):
        product = low * _MULTIPLIER
        low, high = (product >> np.uint64(32)) ^ k ^ high, product & _MASK
        k = (k + np.uint64(_WEYL)) & _MASK
    return low, high


def chain(words: Sequence[np.ndarray], seed: int, n: int) -> np.ndarray:
    """Fold integer columns of length n into one 32-bit word a row -> uint64 [n]."""
    h = np.zeros(n, dtype=np.uint64)
    for word in words:
        h, _ = philox2x32(np.asarray(word).astype(np.int64).astype(np.uint64) & _MASK, h, seed)
    return h


def uniform(words: Sequence[np.ndarray], seed: int, n: int, width: int) -> np.ndarray:
    """Uniform numbers in [0, 1) -> float32 [n, width]: a function of (words of the row, column, seed)."""
    rows = chain(words, seed, n)
    bits, _ = philox2x32(np.arange(width, dtype=np.uint64)[None, :], rows[:, None], seed ^ 0x5BD1E995)
    return (bits >> np.uint64(8)).astype(np.float32) * np.float32(2**-24)
