"""The Pareto front as a picture: how fast, how exact, and how large."""

from __future__ import annotations

import statistics
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from amphw.library.codesign.search import Found

# Okabe and Ito's palette: told apart with any colour vision.
_POINT, _CHOSEN, _FLOAT = "#0072B2", "#D55E00", "#555555"


def draw(found: Found, title: str, path: Path) -> None:
    """A PNG: instances a second across, the metric upwards, look-up tables as areas."""
    edge = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    figure = Figure(figsize=(8, 5), layout=edge, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    most = max(p.luts for p in found.front)
    for point in found.front:
        chosen = point is found.chosen
        axes.scatter(
            point.design.instances_per_s, point.score, s=40 + 360 * point.luts / most,
            color=_CHOSEN if chosen else _POINT, alpha=0.6, edgecolors="white", zorder=2 + chosen,
        )  # fmt: skip
    # Of points with one speed that differ in formats alone a label each would hide the others.
    for lanes in {p.design.fit.plan.sizes.lanes for p in found.front}:
        of = [p for p in found.front if p.design.fit.plan.sizes.lanes == lanes]
        top = max(of, key=lambda p: p.score)
        axes.annotate(
            f"{lanes} lanes", (top.design.instances_per_s, top.score), xytext=(0, 14),
            textcoords="offset points", ha="center", fontsize=8,
        )  # fmt: skip
    reference = statistics.median(found.reference)
    axes.axhline(reference, color=_FLOAT, linewidth=1, linestyle="--")
    axes.annotate(
        "float32", (1, reference), xycoords=("axes fraction", "data"), xytext=(-4, 4),
        textcoords="offset points", ha="right", fontsize=8, color=_FLOAT,
    )  # fmt: skip
    axes.set_xlabel("instances a second, of the circuit alone", fontsize=9)
    axes.set_ylabel(found.metric.replace("_", " "), fontsize=9)
    axes.margins(0.12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#EEEEEE", linewidth=0.8)
    axes.set_axisbelow(True)
    orange = "; the chosen point is orange" if found.chosen is not None else ""
    axes.set_title(f"{title}: areas are look-up tables{orange}", loc="left", fontsize=10)
    figure.savefig(path, dpi=120)
