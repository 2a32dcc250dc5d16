"""What an update rule of the other side means, whatever framework carries it out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Rule = Mapping[str, Any]
"""The fields of `amphw.ir.update.UpdateRule`."""


def rate(rule: Rule, updates: int) -> float:
    """Learning rate of update number `updates` (from 0), as `UpdateRule.rate`."""
    progress = updates / max(1, rule["schedule_steps"])
    factor = {
        "constant": 1.0,
        "step": rule["schedule_gamma"] ** math.floor(progress),
        "exponential": rule["schedule_gamma"] ** progress,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress))),
    }[rule["schedule"]]
    warm = min(1.0, (updates + 1) / rule["warmup"]) if rule["warmup"] else 1.0
    return float(rule["lr"] * factor * warm)


def varies(rule: Rule) -> bool:
    """Whether the learning rate changes from update to update."""
    return bool(rule["schedule"] != "constant" or rule["warmup"])
