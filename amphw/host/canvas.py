"""What all plots share: figures of one look, and files that fit both colour schemes.

Figures are made through matplotlib's object interface; nothing here touches pyplot's global state, so plots
can be made from any thread and next to a program's own figures. The file's suffix (.svg or .png) picks the
format. Text in SVG is text: it can be searched, and the viewer's own sans-serif font draws it. An SVG has no
background, and its ink turns light where the viewer's colour scheme is dark; a PNG stays on white.
"""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from amphw.host.run_folder import write_atomic

_DARKENED = {"#1b1f24": "#e6e9ed", "#57606a": "#a3adb8", "#dddddd": "#3a424b"}
"""Ink, its softer kind and the grid's, as an SVG has them: what each becomes in a dark scheme."""
INK, GREY, GRID = _DARKENED
TEXT_PT = 9

# The SVG settings below can only be given through matplotlib's process-wide rc parameters.
_rc_lock = threading.Lock()


def empty_figure(width: float, height: float) -> Figure:
    """A figure of so many inches, without a background."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="none")
    FigureCanvasAgg(figure)
    return figure


def plain_axes(axes: Axes, grid: Literal["x", "y", "both"]) -> None:
    """The look that all plots share."""
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color(INK)
    axes.set_axisbelow(True)
    axes.grid(axis=grid, color=GRID, linewidth=0.8)
    axes.tick_params(labelsize=TEXT_PT, colors=INK)
    for label in (axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title):  # type: ignore[attr-defined]
        label.set_color(INK)


def saved(figure: Figure, *paths: Path) -> None:
    """Write the figure into files, atomically. Raises ValueError for a suffix other than .svg and .png."""
    for path in map(Path, paths):
        if (suffix := path.suffix.lower()) not in (".svg", ".png"):
            raise ValueError(
                f"cannot draw {path}: a plot is .svg or .png, not {suffix or 'without a suffix'}"
            )
    # Where things are is found once: it takes longer than drawing them. With an engine of layout, even one
    # that does nothing, each file would be drawn twice.
    figure.draw_without_rendering()
    figure.set_layout_engine(None)
    for path in map(Path, paths):
        data = io.BytesIO()
        # Nothing in an SVG depends on when it was made: equal runs give equal files.
        with _rc_lock, matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "amphw"}):
            if path.suffix.lower() == ".svg":
                figure.savefig(data, format="svg", metadata={"Date": None})
                write_atomic(path, _for_both_schemes(data.getvalue()))
            else:
                figure.savefig(data, format="png", dpi=130, facecolor="white")
                write_atomic(path, data.getvalue())


def _for_both_schemes(svg: bytes) -> bytes:
    """An SVG whose ink follows the viewer's colour scheme, also where a page shows it as an image."""
    rules = "".join(
        f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
        for light, dark in _DARKENED.items()
        for kind in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>".encode()
    head, rest = svg.split(b"<defs>", 1)
    return head + style + b"<defs>" + rest
