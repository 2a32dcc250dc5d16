"""What the report of a run says of its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amphw.host.records import RunSummary, Slice
    from amphw.host.report import ReportTable
    from amphw.host.run_folder import RunFolder

TIMES, STALENESS = "time-by-node.svg", "staleness-by-node.svg"
_CAPTIONS = {
    TIMES: "Where the workers' time went, by node and direction",
    STALENESS: "How old parameters were when their gradients came, by node, in the last epoch",
}


def write_nodes(folder: RunFolder, summary: RunSummary, pieces: Sequence[Slice]) -> dict[str, Path]:
    """The plots about nodes, by caption; none without a trace, or without gradients. One that was drawn
    before a run went on with nothing left to train is shown again."""
    from amphw.host.node_plots import staleness_by_node, time_by_node
    from amphw.host.report import narrow

    written = {}
    path = folder.file(TIMES)
    if pieces or path.exists():
        written[_CAPTIONS[TIMES]] = path
    if pieces:
        time_by_node(pieces, path)
        time_by_node(pieces, narrow(path), narrow=True)
    if rows := {node: counts for node, counts in summary.staleness_rows.items() if any(counts.values())}:
        path = written[_CAPTIONS[STALENESS]] = folder.file(STALENESS)
        staleness_by_node(rows, path)
        staleness_by_node(rows, narrow(path), narrow=True)
    return written


def limits(summary: RunSummary, pieces: Sequence[Slice]) -> list[str]:
    """A sentence on what limited the throughput, and on where workers' time went, as far as it is known."""
    from amphw.host.node_plots import node_times

    found = []
    if summary.history and (limit := summary.history[-1].limit()):
        found.append(f"What limited it, in the last epoch: {limit}.")
    times = node_times(pieces)
    whole = sum(sum(each.values()) for each in times.values())
    if whole:
        node, most = next(iter(times.items()))
        parts = ", ".join(
            f"{name} {spent / whole:.0%}" for name, spent in most.items() if spent / whole >= 0.005
        )
        share = sum(most.values()) / whole
        found.append(f"Of the workers' time in the trace {share:.0%} went into {node} ({parts}).")
    return found


def loss_tables(summary: RunSummary) -> list[ReportTable]:
    """Of a model with several losses, what each came to in the last epoch, in training and in validation."""
    from amphw.host.report import ReportTable
    from amphw.page.numbers import number

    if not summary.history:
        return []
    last = summary.history[-1]
    names = [name for name in dict.fromkeys([*last.train, *last.valid]) if "." in name]
    if not names:
        return []
    rows = [
        [name, *(number(of[name]) if name in of else "–" for of in (last.train, last.valid))]
        for name in names
    ]
    return [ReportTable("Losses by node", ["figure", "training", "validation"], rows)]
