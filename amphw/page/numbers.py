"""Numbers as people read them, in tables and on pages."""

from __future__ import annotations

import math

UNKNOWN = "n/a"


def number(value: float | None, unknown: str = UNKNOWN) -> str:
    """Four significant digits, with separators for thousands; `unknown` for what is not known."""
    if value is None or not math.isfinite(value):
        return unknown
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def per_second(value: float | None) -> str:
    """A rate; `UNKNOWN` for what is not known."""
    return number(value) if value is None else f"{number(value)}/s"


def percent(value: float | None) -> str:
    """A share in 0..1 as whole percents."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:.0%}"


def seconds(value: float) -> str:
    """A time with its unit; nothing is told below a nanosecond."""
    from amphw.ir.units import written

    return ("< 1 ns" if value < 1e-9 else written(value, "s")) if value else "0"


def size(value: float) -> str:
    """Bytes with their unit."""
    from amphw.ir.units import written

    return written(value, "B") if value else "0"


def bits(value: float | None) -> str:
    """Bits a second with their unit."""
    from amphw.ir.units import written

    return UNKNOWN if value is None else written(value, "b/s") if value else "0"


def duration(seconds: float) -> str:
    """Seconds as a person says them: 0.041 s, 12 s, 3 min, 1:05 h."""
    if not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 90:
        return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.{1 if seconds < 10 else 0}f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60}:{minutes % 60:02} h"
