"""Quantities as people write them: `10Gb/s`, `1TFLOPS`, `1.2MB`, `20us`, `50MHz`.

A number without its unit is refused, since nobody can tell what it would mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from amphw.ir.errors import AmphwError

DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_SMALL = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}

_UNITS: Mapping[str, tuple[Mapping[str, float], Mapping[str, float]]] = {
    # what is measured: prefixes, and units with what one of them counts
    "operations a second": (DECIMAL, {"FLOPS": 1.0}),
    "bits a second": (DECIMAL, {"b/s": 1.0, "bit/s": 1.0, "B/s": 8.0}),
    "bytes": (DECIMAL | _BINARY, {"B": 1.0}),
    "seconds": (_SMALL, {"s": 1.0}),
    "cycles a second": (DECIMAL, {"Hz": 1.0}),
    "instances a second": (DECIMAL, {"/s": 1.0}),
}
_EXAMPLES = {
    "operations a second": "1TFLOPS",
    "bits a second": "10Gb/s",
    "bytes": "1.2MB",
    "seconds": "20us",
    "cycles a second": "50MHz",
    "instances a second": "20k/s",
}


def quantity(text: str, of: str) -> float:
    """`10Gb/s` of "bits a second" -> 1e10; see `_UNITS`. Raises AmphwError unless above 0 and finite."""
    prefixes, units = _UNITS[of]
    found = re.fullmatch(
        r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([A-Za-z]*?)(" + "|".join(units) + r")\s*", text
    )
    value = float(found[1]) * prefixes.get(found[2], 0.0) * units[found[3]] if found else 0.0
    if not 0.0 < value < float("inf"):
        raise AmphwError(f"'{text}' is no number of {of}: write it as {_EXAMPLES[of]}")
    return value


def written(value: float, unit: str) -> str:
    """1.25e9 with "b/s" -> `1.25 Gb/s`: three digits, and a prefix."""
    value = float(f"{value:.3g}")  # first, since it may reach the next prefix
    for name, size in (*reversed(DECIMAL.items()), *_SMALL.items()):
        if abs(value) >= size:
            return f"{value / size:.3g} {name}{unit}"
    return f"{value:.3g} {unit}"
