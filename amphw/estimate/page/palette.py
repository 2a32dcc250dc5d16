"""Colours that can be told apart, as many as there are things to colour.

A few are chosen by hand. Each further one is, of a grid, the colour that is farthest from all before it
(farthest-point sampling), where distances are as eyes see them: B. Ottosson, "A perceptual color space for
image processing" (Oklab), 2020.
"""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence

HUES, LIGHTNESS, SATURATION = 48, (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8), (0.45, 0.9)
"""The grid. More hues than `HUES` are in it where more colours are asked for."""

CONTRAST = 3.0
"""Of a colour and the page, at least: WCAG 2.1, 1.4.11, of graphics."""


def palette(chosen: Sequence[str], page: str, count: int) -> list[str]:
    """`count` different colours, `#rrggbb`, which begin with those chosen by hand. page: what is behind."""
    found = list(chosen[:count])
    seen = [_oklab(colour) for colour in found]
    free = {
        colour: min(math.dist(_oklab(colour), other) for other in seen)
        for colour in (_grid(max(HUES, count)) if len(found) < count else ())
        if contrast(colour, page) >= CONTRAST
    }
    while len(found) < count:
        farthest = max(free, key=lambda colour: free[colour])
        found.append(farthest)
        here = _oklab(farthest)
        del free[farthest]
        free = {colour: min(away, math.dist(_oklab(colour), here)) for colour, away in free.items()}
    return found


def contrast(one: str, other: str) -> float:
    """1 to 21, as WCAG 2.1 defines it."""
    a, b = (0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (_linear(one), _linear(other)))
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)


def distance(one: str, other: str) -> float:
    """In Oklab, where black and white are 1 apart."""
    return math.dist(_oklab(one), _oklab(other))


def _grid(hues: int) -> list[str]:
    shades = [(hue / hues, light, much) for hue in range(hues) for light in LIGHTNESS for much in SATURATION]
    parts = (colorsys.hls_to_rgb(*shade) for shade in shades)
    return list(dict.fromkeys("#" + "".join(f"{round(255 * part):02x}" for part in rgb) for rgb in parts))


def _linear(colour: str) -> tuple[float, float, float]:
    """Red, green and blue light, 0 to 1, of sRGB."""
    parts = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return r, g, b


def _oklab(colour: str) -> tuple[float, float, float]:
    r, g, b = _linear(colour)
    l = math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b)  # noqa: E741
    m = math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b)
    s = math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b)
    return (
        0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
        1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
        0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s,
    )
