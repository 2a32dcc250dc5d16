"""The pictures of a run: what the workers did, how training converged, how runs compare."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from amphw.host.canvas import GREY, INK, TEXT_PT, empty_figure, plain_axes, saved
from amphw.host.records import DIRECTIONS, EpochRecord, RunSummary, Slice, first_reaching

# Okabe and Ito's palette: told apart with any colour vision, and by lightness in grey print.
FILL = {"forward": "#0072B2", "backward": "#E69F00", "update": "#009E73", "infer": "#56B4E9"}
_INK = {"forward": "white", "backward": "black", "update": "white", "infer": "black"}
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", INK)
_MARKERS = "osD^vPX"
_NAME_PT = 7.5


def gantt(
    slices: Sequence[Slice],
    path: Path | Sequence[Path],
    title: str,
    *,
    window_us: tuple[float, float] | None = None,
    lanes: Literal["worker", "node"] = "worker",
    max_slices: int = 60,
    narrow: bool = False,
    began_us: float = 0.0,
) -> None:
    """Chart what ran when, after Figure 1 of the AMPNet paper: a lane per worker, or per node for pinned
    workers.

    `window_us` is the (start, end) to show; without it, a window of about `max_slices` slices, from the
    middle half of the trace, with as much of a mix of lanes and directions as there is. narrow: for a
    phone. Times are shown from the window's start, which is told as a time since `began_us`. A slice bears
    its node's name (in a lane per node: its number of rows) where there is room. path: a file, or several of
    the same picture. Raises ValueError if no slice lies in the window, or for a suffix other than .svg and
    .png.
    """
    paths = [path] if isinstance(path, str | Path) else path
    if narrow:
        max_slices //= 2
    start, end = window_us if window_us is not None else _window(slices, max_slices)
    shown = [piece for piece in slices if piece.end_us > start and piece.start_us < end]
    if not shown:
        raise ValueError(
            f"no slice between {start:g} and {end:g} us to draw in {paths[0]}; choose another window"
        )
    names = _lane_names(slices, shown, lanes)
    unit, scale = ("ms", 1e-3) if end - start >= 2000 else ("us", 1.0)
    width = 5.2 if narrow else 11
    figure = empty_figure(width, 1.6 + 0.42 * len(names))
    axes = figure.add_subplot()
    points_per_us = (width - 1.8) * 72 / (end - start)  # the axes' width, less the lane labels
    for piece in shown:
        left, right = max(piece.start_us, start), min(piece.end_us, end)
        lane = names.index(_lane(piece, lanes))
        fill = FILL[piece.direction]
        box = ((left - start) * scale, (right - left) * scale)
        axes.broken_barh([box], (lane - 0.38, 0.76), facecolor=fill, edgecolor="white", linewidth=0.7)
        label = piece.node if lanes == "worker" else f"{piece.rows}"
        label = _fitting(label, (right - left) * points_per_us)
        if label:
            middle = (left + right - 2 * start) / 2 * scale
            ink = _INK[piece.direction]
            axes.text(
                middle, lane, label, ha="center", va="center", color=ink, fontsize=_NAME_PT, clip_on=True
            )
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.set_xlim(0, (end - start) * scale)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    numbers = "; numbers are rows in the frame" if lanes == "node" else ""
    axes.set_xlabel(
        f"time from {_clock(start - began_us)} into the trace ({unit}){numbers}", fontsize=TEXT_PT
    )
    present = [name for name in DIRECTIONS if any(piece.direction == name for piece in shown)]
    handles = [Patch(facecolor=FILL[name], label=name) for name in present]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(present),
        frameon=False,
        fontsize=TEXT_PT,
        labelcolor=INK,
    )
    axes.set_title(textwrap.fill(title, 50 if narrow else 120), loc="left", fontsize=11)
    plain_axes(axes, grid="x")
    axes.spines["left"].set_visible(False)
    saved(figure, *paths)


def convergence(
    runs: Mapping[str, Sequence[EpochRecord]],
    path: Path | Sequence[Path],
    target: float | None,
    metric: str,
    counted: str = "instances",
    *,
    narrow: bool = False,
) -> None:
    """Draw `convergence_figure` into files. Raises ValueError also for a suffix other than .svg and .png."""
    paths = [path] if isinstance(path, str | Path) else path
    saved(convergence_figure(runs, target, metric, counted, narrow=narrow), *paths)


def convergence_figure(
    runs: Mapping[str, Sequence[EpochRecord]],
    target: float | None,
    metric: str,
    counted: str = "instances",
    *,
    narrow: bool = False,
) -> Figure:
    """The validation `metric` of each run against what it was trained on and against training seconds.

    counted: what that is, in the plural ("sequences"). narrow: one below the other, for a phone. A dashed
    line marks `target`, a ring the first epoch of each run that met it. Epochs without the metric are left
    out. Raises ValueError if no run has it.
    """
    curves = {}
    for label, history in runs.items():
        known = [record for record in history if math.isfinite(record.valid.get(metric, math.nan))]
        if known:
            curves[label] = known
    if not curves:
        raise ValueError(f"no run has a validation {metric!r} to draw; check the metric's name")
    figure = empty_figure(5.2, 8) if narrow else empty_figure(11, 4.4)
    left, right = figure.subplots(*((2, 1) if narrow else (1, 2)), sharey=True)
    for order, (label, history) in enumerate(curves.items()):
        style: dict[str, Any] = {
            "color": LINES[order % len(LINES)],
            "marker": _MARKERS[order % len(_MARKERS)],
            "markersize": 4,
            "markevery": max(len(history) // 12, 1),
            "linewidth": 1.6,
        }
        values = [record.valid[metric] for record in history]
        reached = None if target is None else first_reaching(history, metric, target)
        for axes, field in ((left, "instances"), (right, "seconds")):
            axes.plot([getattr(record, field) for record in history], values, label=label, **style)
            if reached is not None:
                x, y = getattr(reached, field), reached.valid[metric]
                axes.plot(
                    [x], [y], "o", markersize=10, markerfacecolor="none", markeredgecolor=style["color"]
                )
    for axes, name in ((left, f"{counted} trained"), (right, "training time (s)")):
        axes.set_xlabel(name)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.xaxis.set_major_formatter(FuncFormatter(_tick))
        plain_axes(axes, grid="both")
        if target is not None:
            axes.axhline(target, color=GREY, linestyle="--", linewidth=1.2, label=f"target {target:g}")
    left.set_ylabel(f"validation {metric}")
    handles, labels = left.get_legend_handles_labels()
    if narrow:
        right.set_ylabel(f"validation {metric}", color=INK)
    columns = max(1, min(len(labels), (60 if narrow else 130) // (max(map(len, labels)) + 8)))
    figure.legend(
        handles,
        labels,
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        fontsize=TEXT_PT,
        labelcolor=INK,
    )
    return figure


def comparison(summaries: Mapping[str, RunSummary], path: Path, *, narrow: bool = False) -> None:
    """Compare runs by label: throughput as bars, beside it epochs to target and staleness (p50 to p99).

    narrow: one below the other, for a phone. A run that did not meet its target shows the epochs that it
    trained, hatched. Raises ValueError if there is nothing to compare, or for a suffix other than .svg and
    .png.
    """
    if not summaries:
        raise ValueError(f"no run to draw in {path}; pass at least one summary")
    labels = list(summaries)
    rows = range(len(labels))
    height = 1.3 + 0.5 * len(labels)
    figure = empty_figure(5.2, 3 * height) if narrow else empty_figure(11, height)
    if narrow:
        rate, epochs, stale = figure.subplots(3, 1, sharey=True)
    else:
        rate, epochs, stale = figure.subplots(1, 3, sharey=True, width_ratios=(1.3, 1, 1))
    rates = [_finite(summary.instances_per_s) for summary in summaries.values()]
    rate.barh(rows, rates, height=0.6, color=FILL["forward"])
    _values(rate, rates, [_tick(value) for value in rates])
    counted = " or ".join(dict.fromkeys(summary.counted for summary in summaries.values()))
    rate.set_title(f"throughput ({counted}/s)", loc="left", fontsize=10)

    reached = [summary.reached_at() for summary in summaries.values()]
    counts = [
        float(summary.epochs if at is None else at.epoch)
        for summary, at in zip(summaries.values(), reached, strict=True)
    ]
    met = [
        summary.target_reached or at is not None
        for summary, at in zip(summaries.values(), reached, strict=True)
    ]
    for row, (count, is_met) in enumerate(zip(counts, met, strict=True)):
        style = {"color": FILL["update"]} if is_met else {"color": "none", "edgecolor": GREY, "hatch": "////"}
        epochs.barh(row, count, height=0.6, **style)
    _values(
        epochs,
        counts,
        [f"{count:g}" + ("" if ok else " (not met)") for count, ok in zip(counts, met, strict=True)],
    )
    epochs.set_title("epochs to target", loc="left", fontsize=10)

    p50 = [_finite(summary.staleness.get("p50", math.nan)) for summary in summaries.values()]
    p99 = [_finite(summary.staleness.get("p99", math.nan)) for summary in summaries.values()]
    stale.hlines(rows, p50, p99, color=FILL["backward"], linewidth=3)
    stale.plot(p50, rows, "o", color=FILL["backward"], markersize=7)
    stale.plot(p99, rows, "|", color=FILL["backward"], markersize=14, markeredgewidth=3)
    _values(stale, p99, [f"{low:g} to {high:g}" for low, high in zip(p50, p99, strict=True)])
    stale.set_xlim(
        left=0, right=max(stale.get_xlim()[1], 1)
    )  # else all runs fresh gives an axis around nothing
    stale.set_title("staleness, p50 to p99 (versions)", loc="left", fontsize=10)

    rate.set_yticks(rows, [textwrap.fill(label, 18 if narrow else 26) for label in labels])
    rate.set_ylim(len(labels) - 0.4, -0.6)
    for axes in (rate, epochs, stale):
        axes.tick_params(axis="y", length=0)
        # Of epochs and versions there are no halves.
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=axes is not rate))
        axes.xaxis.set_major_formatter(FuncFormatter(_tick))
        plain_axes(axes, grid="x")
    saved(figure, path)


def bars(
    labels: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    unit: str,
    path: Path,
    narrow: bool = False,
    colours: Sequence[str] = LINES,
) -> None:
    """A horizontal bar for each label, stacked from its value of each part, which have colours. unit: of the
    values.

    Raises ValueError for a suffix other than .svg and .png.
    """
    figure = empty_figure(5.2 if narrow else 11, 1.5 + 0.42 * len(labels))
    axes = figure.add_subplot()
    rows = range(len(labels))
    ends = [0.0] * len(labels)
    for (name, values), colour in zip(parts.items(), colours, strict=False):
        axes.barh(rows, values, left=ends, height=0.66, color=colour, label=name)
        ends = [end + value for end, value in zip(ends, values, strict=True)]
    _values(axes, ends, [f"{end:.3g}" for end in ends])
    axes.set_yticks(rows, labels)
    axes.set_ylim(len(labels) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(unit, fontsize=TEXT_PT)
    figure.legend(
        loc="outside upper center",
        ncols=len(parts),
        frameon=False,
        fontsize=TEXT_PT,
        labelcolor=INK,
    )
    plain_axes(axes, grid="x")
    saved(figure, path)


def _window(slices: Sequence[Slice], count: int) -> tuple[float, float]:
    """A stretch of about `count` slices: of several candidates, the one that mixes most lanes and directions.

    They lie in the middle half of the trace, where the pipeline is neither filling nor draining, and
    where what happens once, at the start, does not stand for the run. Ties go to the middle.
    """
    if not slices:
        raise ValueError("no slices to draw; was tracing on?")
    ordered = sorted(slices, key=lambda piece: piece.start_us)
    last = max(len(ordered) - count, 0)

    def mix(first: int) -> tuple[int, float]:
        part = ordered[first : first + count]
        kinds = {(piece.worker, piece.node, piece.direction) for piece in part}
        return len(kinds), -abs(first - last / 2)

    quarter = last // 4
    first = max(range(quarter, last - quarter + 1, max(last // 32, 1)), key=mix)
    part = ordered[first : first + count]
    return part[0].start_us, max(max(piece.end_us for piece in part), part[0].start_us + 1e-3)


def _lane(piece: Slice, lanes: str) -> str:
    return f"worker {piece.worker}" if lanes == "worker" else piece.node


def _lane_names(slices: Sequence[Slice], shown: list[Slice], lanes: str) -> list[str]:
    if lanes == "worker":  # of the whole trace: a worker that idles through the window should be seen to
        return [f"worker {worker}" for worker in sorted({piece.worker for piece in slices})]
    # Nodes in the order in which they first run forward: data flows down the chart.
    ordered = sorted(shown, key=lambda piece: (piece.direction != "forward", piece.start_us))
    return list(dict.fromkeys(piece.node for piece in ordered))


def _fitting(label: str, width_pt: float) -> str:
    """`label`, its last part after a dot, or nothing, whichever fits into `width_pt` points of small type."""
    for text in (label, label.rpartition(".")[2]):
        if len(text) * _NAME_PT * 0.62 + 4 <= width_pt:
            return text
    return ""


def _values(axes: Axes, ends: Sequence[float], texts: Sequence[str]) -> None:
    """Write each value after the end of its bar, with room made for the longest."""
    for row, (end, text) in enumerate(zip(ends, texts, strict=True)):
        axes.annotate(
            text,
            (end, row),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=TEXT_PT,
            color=INK,
        )
    longest = max(len(text) for text in texts)
    axes.set_xlim(0, max(max(ends), 1e-9) * (1.12 + 0.05 * longest))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _clock(time_us: float) -> str:
    return f"{time_us / 1e6:.3f} s" if abs(time_us) >= 1e6 else f"{time_us / 1e3:.3g} ms"


def _tick(value: float, _position: int | None = None) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:.3g}k"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
