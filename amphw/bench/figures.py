"""What is made of measurements: medians, spread, ratios."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """A figure over the rounds."""

    median: float
    low: float
    high: float
    rounds: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure | None:
        """None where nothing was measured."""
        return cls(statistics.median(values), min(values), max(values), tuple(values)) if values else None

    @property
    def spread(self) -> float:
        """How far apart the least and the greatest are, as a share of the median."""
        return (self.high - self.low) / self.median if self.median else 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"spread": self.spread}


def ratio(ours: Figure | None, theirs: Figure | None) -> float | None:
    """The ratio of the medians."""
    return ours.median / theirs.median if ours and theirs and theirs.median else None


def paired(ours: Figure | None, theirs: Figure | None) -> Figure | None:
    """The ratio in each round, whose two measurements were taken one soon after the other.

    None where one side lacks rounds, because then they no longer correspond.
    """
    if ours is None or theirs is None or len(ours.rounds) != len(theirs.rounds):
        return None
    return Figure.of([a / b for a, b in zip(ours.rounds, theirs.rounds, strict=True) if b])
