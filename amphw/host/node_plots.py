"""What each node did: where workers' time went, and how old the parameters of its gradients were."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.ticker import MaxNLocator

from amphw.host.canvas import GREY, TEXT_PT, empty_figure, plain_axes, saved
from amphw.host.meters import percentile
from amphw.host.plots import FILL, bars
from amphw.host.records import DIRECTIONS, Slice

MOST = 24
"""Nodes that are drawn: those with most time."""

BINS = 40
"""Bars of a node's staleness, at most."""


def node_times(pieces: Sequence[Slice]) -> dict[str, dict[str, float]]:
    """Microseconds of workers by node and direction; the nodes with most first."""
    found: dict[str, dict[str, float]] = {}
    for piece in pieces:
        of = found.setdefault(piece.node, dict.fromkeys(DIRECTIONS, 0.0))
        of[piece.direction] += piece.duration_us
    return dict(sorted(found.items(), key=lambda pair: -sum(pair[1].values())))


def time_by_node(pieces: Sequence[Slice], path: Path, *, narrow: bool = False) -> None:
    """A bar for each of the busiest nodes, stacked by direction: its share of all workers' time, in per cent.

    narrow: for a phone. Raises ValueError for no slices, or for a suffix other than .svg and .png.
    """
    times = node_times(pieces)
    if not times:
        raise ValueError(f"no slice to draw in {path}; was tracing on?")
    whole = sum(sum(each.values()) for each in times.values()) / 100
    shown = list(times.items())[:MOST]
    parts = {name: [each[name] / whole for _, each in shown] for name in DIRECTIONS}
    there = {name: values for name, values in parts.items() if any(values)}
    bars(
        [node for node, _ in shown],
        there,
        "% of the workers' time in the trace",
        path,
        narrow,
        [FILL[n] for n in there],
    )


def staleness_by_node(rows: Mapping[str, Mapping[int, int]], path: Path, *, narrow: bool = False) -> None:
    """For each node, how many of its gradient rows were how many versions behind, as a share of its rows.

    rows: by node and versions. narrow: for a phone. Raises ValueError for no rows, or for a suffix other than
    .svg and .png.
    """
    shown = {node: counts for node, counts in rows.items() if any(counts.values())}
    shown = dict(sorted(shown.items(), key=lambda pair: -sum(pair[1].values()))[:MOST])
    if not shown:
        raise ValueError(f"no gradient row to draw in {path}; did the run train?")
    most = max(behind for counts in shown.values() for behind, count in counts.items() if count)
    width = max(1, math.ceil((most + 1) / BINS))
    figure = empty_figure(5.2 if narrow else 11, 1.2 + 0.5 * len(shown))
    axes = figure.add_subplot()
    for line, counts in enumerate(shown.values()):
        total = sum(counts.values())
        heights: dict[int, float] = {}
        for behind, count in counts.items():
            heights[behind // width] = heights.get(behind // width, 0.0) + count / total
        tallest = max(heights.values())
        axes.bar(
            [(k + 0.5) * width - 0.5 for k in heights],
            [-0.8 * height / tallest for height in heights.values()],  # as tall as the lane allows
            width=0.9 * width,
            bottom=line + 0.4,
            color=FILL["forward"],
        )
        ends = ", ".join(f"{name} {percentile(counts, p):.0f}" for name, p in (("p50", 0.5), ("p99", 0.99)))
        place = (1.0, line + 0.2)
        axes.text(*place, ends, transform=axes.get_yaxis_transform(), ha="right", fontsize=8, color=GREY)
    axes.set_yticks([line + 0.2 for line in range(len(shown))], list(shown))
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlim(-0.5, (most // width + 1) * width + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(8 if not narrow else 5, integer=True))
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("versions of the parameters between forward and backward", fontsize=TEXT_PT)
    plain_axes(axes, grid="x")
    saved(figure, path)
