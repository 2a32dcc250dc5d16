"""List reduction: read an operation and a list of digits, one token at a time, and predict the result.

The synthetic task of AMPNet (arXiv 1705.09786, experiments), on which a variable-length RNN is trained. A
sequence is `[op, d1 .. dk]` with 1 to 9 digits, so 2 to 10 tokens. Tokens 0 to 9 are the digits, 10 to 13
the operations. With L = [d1 .. dk] an operation computes

====  ====================================
 10   mean(L)
 11   mean(L[0::2]) - mean(L[1::2])
 12   max(L) - min(L)
 13   len(L)
====  ====================================

The mean of an empty list is 0. The label is the result, rounded, modulo 10: one of ten classes. Rounding is
half up, floor(x + 1/2), also for negative x (-0.5 becomes 0, -1.5 becomes -1). It is computed in integers:
halves are frequent here, and neither binary fractions nor rounding to even would treat them alike
everywhere. The modulus is the one with the sign of the divisor, so -3 belongs to class 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

VOCABULARY = 14
CLASSES = 10
MAX_TOKENS = 10

OPERATIONS = ("mean", "alternate", "range", "length")
"""Operation `OPERATIONS[i]` is token `FIRST_OPERATION + i`."""

FIRST_OPERATION = VOCABULARY - len(OPERATIONS)
_MAX_DIGITS = MAX_TOKENS - 1

Tokens = npt.NDArray[np.int32]


class ListReduction(NamedTuple):
    """n instances. tokens: int32 [n, 10], zero past the end; lengths: int32 [n], tokens in each, 2 to 10;
    labels: int32 [n], 0 to 9. Zero is also the digit 0: only `lengths` tells where a sequence ends."""

    tokens: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]


def generate(n: int, seed: int | np.random.SeedSequence) -> ListReduction:
    """n random instances: operation, length and digits each uniform and independent, a function of `seed`."""
    if n < 0:
        raise ValueError(f"the number of instances must be 0 or more, got {n}")
    rng = np.random.default_rng(seed)
    operation = rng.integers(0, len(OPERATIONS), n, dtype=np.int32)
    count = rng.integers(1, _MAX_DIGITS + 1, n, dtype=np.int32)
    digits = rng.integers(0, 10, (n, _MAX_DIGITS), dtype=np.int32)
    digits[np.arange(_MAX_DIGITS) >= count[:, None]] = 0
    tokens = np.concatenate([(operation + FIRST_OPERATION)[:, None], digits], axis=1)
    return ListReduction(tokens, count + 1, _reduce(operation, count, digits))


def true_result(operation: str, digits: Sequence[int]) -> int:
    """The label 0 to 9 of one list: `operation` (one of OPERATIONS) on 1 to 9 digits 0 to 9.

    Raises ValueError for anything else.
    """
    if operation not in OPERATIONS:
        raise ValueError(f"{operation!r} is no operation; there are {', '.join(OPERATIONS)}")
    if not 1 <= len(digits) <= _MAX_DIGITS or not all(0 <= digit <= 9 for digit in digits):
        raise ValueError(f"a list holds 1 to {_MAX_DIGITS} digits 0 to 9, got {list(digits)}")
    row = np.zeros((1, _MAX_DIGITS), np.int32)
    row[0, : len(digits)] = digits
    kind, count = (np.array([n], np.int32) for n in (OPERATIONS.index(operation), len(digits)))
    return int(_reduce(kind, count, row)[0])


def datasets(seed: int) -> tuple[ListReduction, ListReduction]:
    """The sets of the paper: 10^5 instances to train on and 10^4 to validate on, from independent streams.

    The space is small at short lengths, so that some instances occur in both sets, as chance has it.
    """
    train, valid = np.random.SeedSequence(seed).spawn(2)
    return generate(100_000, train), generate(10_000, valid)


def batches(data: ListReduction, batch: int, seed: int, epoch: int) -> list[tuple[Tokens, Tokens]]:
    """One epoch of `data` as a list of (tokens int32 [T, B], labels int32 [B]), in a shuffled order.

    All sequences of a batch have T tokens, so that nothing is padded; tokens come time first, the order in
    which an RNN reads them. B is `batch`, or less for the leftovers of a length: every instance occurs
    exactly once. The order is a function of (seed, epoch). The arrays are read-only views into one copy of
    the data.
    """
    if batch < 1:
        raise ValueError(f"the batch size must be 1 or more, got {batch}")
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(data.lengths))
    # A stable sort by length keeps the shuffled order within a length.
    order = order[np.argsort(data.lengths[order], kind="stable")]
    lengths, labels = data.lengths[order], data.labels[order]
    tokens = data.tokens[order]
    tokens.flags.writeable = labels.flags.writeable = False

    ends = np.searchsorted(lengths, np.arange(2, MAX_TOKENS + 1), side="right")
    begins = np.concatenate([[0], ends[:-1]])
    first = np.concatenate([np.arange(b, e, batch) for b, e in zip(begins, ends, strict=True)])
    rng.shuffle(first)
    last = np.minimum(first + batch, ends[lengths[first] - 2])
    rows = zip(first.tolist(), last.tolist(), lengths[first].tolist(), strict=True)
    return [(tokens[b:e, :length].T, labels[b:e]) for b, e, length in rows]


def _reduce(
    operation: npt.NDArray[np.int32], count: npt.NDArray[np.int32], digits: npt.NDArray[np.int32]
) -> npt.NDArray[np.int32]:
    """Labels [n] of lists of `count` [n] digits; digits [n, 9] are zero past the end."""
    present = np.arange(_MAX_DIGITS) < count[:, None]
    even_count, odd_count = (count + 1) // 2, count // 2
    even_sum, odd_sum = digits[:, 0::2].sum(axis=1), digits[:, 1::2].sum(axis=1)
    odd_divisor = np.maximum(odd_count, 1)  # an empty list has sum 0, so any divisor makes its mean 0
    largest = digits.max(axis=1)
    smallest = np.where(present, digits, 9).min(axis=1)
    results = [
        _round_half_up(even_sum + odd_sum, count),
        _round_half_up(even_sum * odd_divisor - odd_sum * even_count, even_count * odd_divisor),
        largest - smallest,
        count,
    ]
    return np.choose(operation, results).astype(np.int32) % CLASSES


def _round_half_up(
    numerator: npt.NDArray[np.int64], denominator: npt.NDArray[np.int32]
) -> npt.NDArray[np.int64]:
    """floor(numerator / denominator + 1/2) in integers; the denominator is positive."""
    return (2 * numerator + denominator) // (2 * denominator)
