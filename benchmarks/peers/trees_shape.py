"""Trees as arrays, before any framework sees them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .stored import StoredInstances


class Tree(NamedTuple):
    """Words come first, then the phrases, each behind its children: the last node is the root.

    word: [words]; label, height: [nodes]; child: [words - 1, 2].
    """

    word: np.ndarray
    label: np.ndarray
    child: np.ndarray
    height: np.ndarray


def trees(stored: StoredInstances) -> list[Tree]:
    """All trees of some instances."""
    tables = (stored.table(name) for name in ("word", "label", "child"))
    return [Tree(w, y, c, _heights(len(w), c)) for w, y, c in zip(*tables, strict=True)]


def _heights(words: int, child: np.ndarray) -> np.ndarray:
    height = [0] * words
    for left, right in child.tolist():
        height.append(1 + max(height[left], height[right]))
    return np.array(height)
