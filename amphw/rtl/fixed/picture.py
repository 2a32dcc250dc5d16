"""A picture of magnitudes: one row a tensor, how they are distributed, and the range of its format."""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from amphw.rtl.fixed.meters import Meter, share

# Okabe and Ito's palette: told apart with any colour vision.
_INSIDE, _ABOVE, _BELOW = "#0072B2", "#D55E00", "#E69F00"
_RANGE, _GREY = "#DCE6EE", "#555555"
_MOST = 40
"""Rows at most: those that lose most."""


def draw(meters: Sequence[Meter], title: str) -> bytes:
    """PNG. meters: in the order of the rows."""
    shown = list(meters[:_MOST])
    edge = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.1)  # inches; labels keep off the edge
    figure = Figure(figsize=(12, 1.5 + 0.36 * len(shown)), layout=edge, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    low, high = _limits(shown)
    for row, m in enumerate(shown):
        _row(axes, row, m)
    axes.set_xlim(low, high)
    axes.set_ylim(len(shown) - 0.3, -0.7)
    axes.set_yticks(range(len(shown)), [f"{m.name}  {m.format}" for m in shown], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("log2 |x| before rounding and saturation", fontsize=9)
    axes.tick_params(axis="x", labelsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="#EEEEEE", linewidth=0.8)
    _shares(axes, shown)
    hidden = f"; the {len(shown)} of {len(meters)} tensors that lose most" if len(meters) > _MOST else ""
    axes.set_title(title + hidden, loc="left", fontsize=11, pad=22)
    handles = [
        Patch(facecolor=_RANGE, label="range of the format"),
        Patch(facecolor=_INSIDE, label="held"),
        Patch(facecolor=_ABOVE, label="saturates"),
        Patch(facecolor=_BELOW, label="vanishes"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=130)
    return data.getvalue()


def _limits(meters: Sequence[Meter]) -> tuple[float, float]:
    ends = [e for m in meters for e in (-m.format.frac - 2, m.format.bits - m.format.frac)]
    seen = [e for m in meters for e in m.magnitudes]
    # Numbers far below every step would squeeze the rest.
    return max(min(ends + seen), min(ends) - 12) - 0.5, max(ends + [e + 1 for e in seen]) + 0.5


def _row(axes: Axes, row: int, m: Meter) -> None:
    """Bars of one power of two each, as high as its share of the tensor's numbers that are not 0."""
    step, end = -m.format.frac, m.format.bits - 1 - m.format.frac
    axes.barh(row, end - step, left=step, height=0.86, color=_RANGE)
    most = max(m.magnitudes.values(), default=1)
    for e, n in m.magnitudes.items():
        # The least number of a format lies on its end: it saturates nothing.
        colour = _ABOVE if e >= end and m.saturated else _INSIDE
        height = 0.8 * max(n / most, 0.04)
        gone = height * m.lost.get(e, 0) / n
        axes.bar(e + 0.5, gone - height, width=0.92, bottom=row + 0.4 - gone, color=colour)
        if gone:
            axes.bar(e + 0.5, -gone, width=0.92, bottom=row + 0.4, color=_BELOW)


def _shares(axes: Axes, meters: Sequence[Meter]) -> None:
    """Two columns of numbers on the right."""
    columns = ((1.045, "saturated"), (1.125, "vanished"))
    beside = axes.get_yaxis_transform()
    for x, name in columns:
        axes.text(x, 1.0, name, transform=axes.transAxes, ha="right", va="bottom", fontsize=8, color=_GREY)
    for row, m in enumerate(meters):
        for (x, _), count, part in zip(
            columns, (m.saturated, m.vanished), (m.saturated_share, m.vanished_share), strict=True
        ):
            ink = "black" if count else _GREY
            axes.text(
                x, row, share(count, part), transform=beside, ha="right", va="center", fontsize=8, color=ink
            )
