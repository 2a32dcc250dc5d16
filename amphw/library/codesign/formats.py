"""Which number formats are tried, and which of them go on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from amphw.host.records import higher_is_better
from amphw.library.codesign.trials import Result
from amphw.rtl.numbers.formats import BITS, Format, Formats

MARGINS = {"value": (1, 2, 3, 0, 4), "weight": (0, 1), "gradient": (0, 1, -1)}
"""Bits before the point beyond those that the largest number of a short run needed. Values grow as long as a
run learns; and rare large gradients may be cut off, where that makes the many small ones finer. A whole run
would not tell better: where it goes wrong in the end, its numbers are larger than any that are needed."""

ROUNDS = (6, 2)
"""Of the epochs of a whole run, after which part the candidates are compared."""

KEPT = 3
"""Of so many candidates one goes on."""


def like(formats: Formats, base: Formats) -> Formats:
    """With the rounding of updates of `base`, which the model's circuit needs to fit."""
    return replace(formats, rounding=base.rounding)


def first(base: Formats) -> Formats:
    """Those of the run that shows how large numbers become: the default ones, which are wide."""
    return like(Formats(), base)


def candidates(seen: Formats) -> list[Formats]:
    """With margins over the finest that held what was seen.

    First those with three bits more for values: where there is no time for all, narrower ones learn at
    first and go wrong in the end.
    """
    found: dict[str, tuple[int, Formats]] = {}
    for value in MARGINS["value"]:
        for weight in MARGINS["weight"]:
            for gradient in MARGINS["gradient"]:
                each = replace(
                    seen,
                    value=_wider(seen.value, value),
                    weight=_wider(seen.weight, weight),
                    gradient=_wider(seen.gradient, gradient),
                )
                found.setdefault(str(each), (abs(value - 3) + (1 - weight) + abs(gradient), each))
    return [each for _, each in sorted(found.values(), key=lambda one: one[0])]


def _wider(of: Format, bits: int) -> Format:
    return Format(min(15, max(2, of.frac - bits)))


def variants(of: Formats) -> list[Formats]:
    """That take less memory for a weight: a shorter master, or none. None if there is none anyway."""
    if of.rounding == "stochastic":
        return []
    return [replace(of, master=24), replace(of, rounding="stochastic")]


def before_point(of: Formats) -> int:
    """Bits of all three kinds together: what has more of them saturates later."""
    return sum(BITS - each.frac for each in (of.value, of.weight, of.gradient))


def survivors(results: Sequence[Result], metric: str, count: int) -> list[Result]:
    """The best, of which there are `count` at most; of equal ones the wider. None that broke off."""
    return sorted(
        (r for r in results if math.isfinite(r.score)),
        key=lambda r: (-goodness(r.score, metric), -before_point(Formats.parse(r.trial.formats))),
    )[:count]


def goodness(score: float, metric: str) -> float:
    """Greater is better, whatever the metric; what is not known is worst."""
    if not math.isfinite(score):
        return -math.inf
    return score if higher_is_better(metric) else -score


def lost(score: float, reference: float, metric: str) -> float:
    """Points of a share that a score lies below the reference; of an error, per cent that it lies above."""
    if higher_is_better(metric):
        return 100.0 * (reference - score)
    if score == reference:
        return 0.0
    return 100.0 * (score - reference) / abs(reference) if reference else math.copysign(math.inf, score)


def by_formats(results: Sequence[Result]) -> Mapping[str, list[float]]:
    """Scores by formats."""
    found: dict[str, list[float]] = {}
    for each in results:
        found.setdefault(each.trial.formats, []).append(each.score)
    return found
