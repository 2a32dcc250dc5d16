"""Pieces of drawings. Lengths are pixels, since drawings are not scaled: text keeps its size.

A drawing that depends on the width is made twice, and the page shows one of the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from amphw.estimate.page.palette import palette
from amphw.page.html import text
from amphw.page.style import STYLE

WIDE, NARROW = 1080, 340
"""Widths of drawings for wide and for narrow screens."""

LETTER, LINE = 7.0, 16.0
"""What a letter of a label takes, about, and a line of text."""

LIGHT = "#0b6bcb #c2410c #15803d #a21caf #6d28d9 #8a6400 #0e7490".split()
DARK = "#5aa9ff #ff9a4d #4cc38a #f07bb5 #a58bff #d9b64a #3cc6d3".split()
"""The first colours, which bars have, too."""

_PAGES = re.findall(r"--page: (#\w{6})", STYLE)
"""What is behind drawings, light and dark."""


def style(colours: int) -> str:
    """The look of drawings. colours: how many things of a kind have one."""
    count = max(colours, len(LIGHT))
    light, dark = (
        " ".join(f"--c{k}: {each};" for k, each in enumerate(palette(chosen, page, count)))
        for chosen, page in zip((LIGHT, DARK), _PAGES, strict=True)
    )
    classes = "".join(f".c{k} {{ --c: var(--c{k}); }}\n" for k in range(count))
    return f"""\
:root {{ {light} --hot: #b3261e; --wire: #7b8794; }}
@media (prefers-color-scheme: dark) {{ :root {{ {dark} --hot: #ff8a80; --wire: #8b96a3; }} }}
{classes}{_STYLE}"""


_STYLE = """\
svg { display: block; }
svg text { font-size: 12px; fill: var(--ink); }
svg text.soft { fill: var(--soft); }
svg text.strong { font-weight: 600; }
svg .axis { stroke: var(--line); fill: none; }
svg .own { fill: var(--c); stroke: none; }
.narrow { display: none; }
@media (max-width: 720px) { .narrow { display: block; } .wide { display: none; } }
"""


def colour(number: int) -> str:
    """Class of the number-th thing of a kind; see `style`."""
    return f"c{number}"


def width_of(words: str) -> float:
    return LETTER * len(words)


def shortened(words: str, width: float) -> str:
    """As much as there is room for."""
    room = max(1, int(width / LETTER))
    return words if len(words) <= room else words[: room - 1].rstrip(" ,") + "…"


def label(x: float, y: float, words: str, anchor: str = "start", style: str = "") -> str:
    """y: of the base line."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{style}">{text(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, style: str = "axis") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'


def rect(x: float, y: float, width: float, height: float, style: str, round: float = 0) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round:g}" '
        f'class="{style}"/>'
    )


def drawing(width: float, height: float, parts: Sequence[str], about: str) -> str:
    """about: what it shows, for those who cannot see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{text(about)}">{"".join(parts)}</svg>'
    )


def for_both(draw: Callable[[float], str]) -> str:
    """draw: of a width; what is wider scrolls in its box."""
    return f'<div class="scroll wide">{draw(WIDE)}</div>\n<div class="scroll narrow">{draw(NARROW)}</div>'


def legend(names: Sequence[tuple[str, str]]) -> str:
    """(name, class of its colour) of each."""
    return (
        '<p class="legend">'
        + "".join(f'<span><i class="key {style}"></i>{text(name)}</span>' for name, style in names)
        + "</p>"
    )
