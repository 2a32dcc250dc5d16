"""A graph's drawing as a part of a page, to pan and zoom with mouse, fingers and keys.

The script is a part of what is written, and asks for nothing else. Where no script runs, as in a notebook
that is not trusted, the drawing is a picture in a box that scrolls: an `img`, since JupyterLab takes out of
what is not trusted the markup of an SVG, too.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from html import escape
from importlib import resources


def zoomable(svg: str, fill: bool = False) -> str:
    """The markup. svg: as `amphw.ir.draw.to_svg` writes it. fill: it may take all of a window's height."""
    data = b64encode(svg.encode("utf-8")).decode("ascii")
    # JupyterLab has shortcuts of its own, such as 0 0 for a restart of the kernel.
    about = 'data-lm-suppress-shortcuts="true"' + ' data-fill="1"' * fill
    return (
        f"<style>{_part('zoom.css')}</style>"
        f'<div class="amphw-zoom" {about} style="max-height: 40em; overflow: auto">'
        '<img alt="drawing of a graph" style="max-width: none; vertical-align: top" '
        f'src="data:image/svg+xml;base64,{data}"></div><script>{_part("zoom.js")}</script>'
    )


def framed(html: str) -> str:
    """The same as a frame: scripts run in it where they do not run in the page around it, as in marimo."""
    return (
        f'<iframe srcdoc="{escape(html)}" style="width: 100%; height: 44em; border: 0" '
        'title="drawing of a graph" allowfullscreen></iframe>'
    )


@cache
def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
