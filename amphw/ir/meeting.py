"""Copies of a node brought together: all go on from their mean (Gaunt et al., arXiv 1705.09786, section 5).

A copy that is at work need not stop for it. What it has to move by, from where it was to the mean, is added
to what it has become meanwhile. These moves add up to nothing, so the mean over copies is kept, whatever
each of them learns while they are made.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def mean(copies: Sequence[np.ndarray]) -> np.ndarray:
    """Of arrays of one shape, in their type of number. It is taken in double precision: the mean of equal
    copies is then the copy itself, bit for bit."""
    total: np.ndarray = np.sum([a.astype(np.float64) for a in copies], axis=0)
    return (total / len(copies)).astype(copies[0].dtype)


def moves_to_mean(copies: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What is to be added to each of these; together they are zero, up to rounding."""
    middle = mean(copies)
    return [middle - each for each in copies]
