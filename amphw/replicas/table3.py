"""How many bytes the strategies move by the formulas of Parallax (Kim et al., arXiv 1808.02621, Table 3).

All are of one parameter of so many bytes, and of what a rank sends in an exchange, on average over ranks; it
receives as many. alpha: of a table, the share of its rows that a rank that trains touches.
"""

from __future__ import annotations


def reduced(size: float, ranks: int) -> float:
    """By AllReduce in a ring, dense."""
    return 2 * size * (ranks - 1) / ranks


def gathered(size: float, alpha: float, ranks: int, working: int) -> float:
    """By AllGatherv in a ring, by rows. working: as many ranks train."""
    return alpha * size * (ranks - 1) * working / ranks


def served(size: float, alpha: float, ranks: int, working: int) -> float:
    """By servers; alpha is 1 for what is dense. Where every rank trains, each is a server, too, and what it
    owns stays with it; otherwise the ranks that do not train are the servers."""
    return 2 * alpha * size * (ranks - 1 if working == ranks else working) / ranks
