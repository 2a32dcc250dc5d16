"""Look-up tables, flip-flops and multipliers of a plan before it is built, by a line through real builds.

The builds are listed in `fit_builds.json`, which benchmarks/rtl_estimates.py makes. A figure is the sum of a
plan's features, each times a factor, that of least squares. Lanes and optimiser make nearly all of it: what a
model's own control programs take is a few percent, which the line does not follow. All builds but one are of
list reduction: `errors` says nothing of models that are unlike it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from amphw.rtl.build.boards import Board
from amphw.rtl.plan.hardware import HardwarePlan

FIGURES = ("luts", "ffs", "dsps")
_FAMILY = "ecp5"
"""Of the line; other families take a constant multiple."""

CLIPPING = {"luts": 900, "ffs": 844, "dsps": 4}
"""Of `update.clip`, on top: the lane engine mapped for ECP5 with it and without, 4 lanes (892 and 901 look-up
tables with momentum and without; 23 November 2026)."""


def features(plan: HardwarePlan) -> dict[str, float]:
    """What the line is over."""
    return _features(plan.sizes.lanes, any(r.mu is not None for r in plan.rules.values()))


def _features(lanes: int, momentum: bool) -> dict[str, float]:
    return {
        "one": 1,
        "lanes": lanes,
        "momentum": int(momentum),
        "lanes with momentum": momentum * lanes,
    }


def of_lanes(lanes: int, family: str = _FAMILY) -> dict[str, int]:
    """FIGURES of a device without momentum on a chip of the family, about."""
    return _figures(_features(lanes, momentum=False), family)


@cache
def _builds() -> Sequence[Mapping[str, Any]]:
    text = resources.files("amphw.rtl.build").joinpath("fit_builds.json").read_text(encoding="utf-8")
    return tuple(json.loads(text)["builds"])


def logic(plan: HardwarePlan, board: Board) -> dict[str, int]:
    """FIGURES of a plan, about; `errors` says how far they may be off."""
    kind = board.target.family
    found = _figures(features(plan), kind)
    clips = any(rule.limit for rule in plan.rules.values())
    return {name: n + clips * round(_ratio(kind, name) * CLIPPING[name]) for name, n in found.items()}


def _figures(of: Mapping[str, float], family: str) -> dict[str, int]:
    row = np.array(list(of.values()))
    return {name: round(_ratio(family, name) * float(row @ _line(name, _own()))) for name in FIGURES}


@cache
def errors(left_out: bool = True) -> dict[str, float]:
    """Per figure but multipliers, the largest error of the line for a build that it was not made of, as a
    fraction: what to expect of a design like these that is not among them. Of boards with the line's own
    family.

    left_out: else of the line through all builds, for these.
    """
    own = _own()
    found = {}
    for name in ("luts", "ffs"):
        off = []
        for k, build in enumerate(own):
            guess = _row(build) @ _line(name, own[:k] + own[k + left_out :])
            off.append(abs(float(guess) / build[name] - 1))
        found[name] = round(max(off), 3)
    return found


def _own() -> tuple[Mapping[str, Any], ...]:
    return tuple(build for build in _builds() if build["family"] == _FAMILY)


def _row(build: Mapping[str, Any]) -> np.ndarray:
    return np.array(list(build["features"].values()), float)


def _line(name: str, builds: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Factors of the features, of least squares of relative errors."""
    figures = np.array([build[name] for build in builds], float)
    rows = np.stack([_row(build) for build in builds]) / figures[:, None]
    scale = np.abs(rows).max(axis=0)
    scale[scale == 0] = 1
    return np.linalg.lstsq(rows / scale, np.ones(len(figures)), rcond=None)[0] / scale


@cache
def _ratio(family: str, name: str) -> float:
    """How much more of something a family takes than the line says, on average over its builds; 1 if none."""
    line = _line(name, _own())
    ratios = [build[name] / float(_row(build) @ line) for build in _builds() if build["family"] == family]
    return float(np.mean(ratios)) if ratios and family != _FAMILY else 1.0
