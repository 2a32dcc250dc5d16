"""A better placement than the heuristic's: all of them where there are few, else steps that improve one.

A step moves a node to another device, or exchanges two nodes of different devices. From the heuristic's
placement, from all nodes on the host and from `STARTS` random ones, the best step is taken as long as there
is one. The same seed finds the same placement.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence

from amphw.engine.lowering.placing import HOST
from amphw.estimate.network.cost_model import CostModel, Estimate, Placement

FEW = 500
"""Placements that are all tried."""

STARTS = 4


def search(model: CostModel, start: Placement, fixed: Mapping[str, str], seed: int = 0) -> Estimate:
    """The best placement found, never worse than `start` by `Estimate.rank`. fixed: nodes that stay where
    they are."""
    free = [n for n in model.nodes if n not in fixed and len(model.allowed(n)) > 1]
    base = {**dict.fromkeys(model.nodes, HOST), **{n: start[n] for n in model.nodes}, **fixed}
    best = model.estimate(base)
    if math.prod(len(model.allowed(n)) for n in free) <= FEW:
        for labels in itertools.product(*(model.allowed(n) for n in free)):
            best = _better(best, model.estimate({**base, **dict(zip(free, labels, strict=True))}))
        return best
    rng = random.Random(seed)
    begins = [base, {**base, **dict.fromkeys(free, HOST)}]
    begins += [{**base, **{n: rng.choice(model.allowed(n)) for n in free}} for _ in range(STARTS)]
    for begin in begins:
        best = _better(best, _climbed(model, model.estimate(begin), free))
    return best


def _climbed(model: CostModel, at: Estimate, free: Sequence[str]) -> Estimate:
    while True:
        best = at
        for other in _neighbours(model, at.placement, free):
            best = _better(best, model.estimate(other))
        if best is at:
            return at
        at = best


def _neighbours(model: CostModel, at: Placement, free: Sequence[str]) -> Iterator[dict[str, str]]:
    for n in free:
        for label in model.allowed(n):
            if label != at[n]:
                yield {**at, n: label}
    for a, b in itertools.combinations(free, 2):
        if at[a] != at[b] and at[b] in model.allowed(a) and at[a] in model.allowed(b):
            yield {**at, a: at[b], b: at[a]}


def _better(a: Estimate, b: Estimate) -> Estimate:
    """The first of two that are alike."""
    return b if b.rank > a.rank else a
