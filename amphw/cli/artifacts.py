"""What a finished run leaves for the eye: its trace, its plots and its report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amphw.host.records import RunSummary
    from amphw.host.run_folder import RunFolder
    from amphw.host.trace import Trace

TRACE = "trace.json.gz"
REPORT = "report.html"
_GANTT = "What the workers did: a window of the trace"
_CONVERGENCE = "Validation against instances and against training time"


def write_artifacts(folder: RunFolder, summary: RunSummary, trace: Trace | None) -> dict[str, Path]:
    """Write what the run allows: no Gantt chart without a trace, no curve without an epoch. Paths by kind."""
    from amphw.host.report import ReportRun, write_report

    title = f"{summary.model} on {summary.device}"
    written: dict[str, Path] = {}
    plots: dict[str, Path] = {}
    curve = draw_convergence(folder, {summary.model: summary}, "convergence")
    if curve is not None:
        written["convergence"] = plots[_CONVERGENCE] = curve
    if trace is not None and len(trace):
        written["trace"] = folder.file(TRACE)
        trace.write(written["trace"], name=title)
        written["gantt"] = plots[_GANTT] = draw_gantt(folder, trace, title)
    written["report"] = folder.file(REPORT)
    write_report(written["report"], title, [ReportRun.from_folder(folder.path)], plots)
    return written


def draw_gantt(folder: RunFolder, trace: Trace, title: str) -> Path:
    """The Gantt chart as SVG and PNG. The path of the SVG."""
    from amphw.host.plots import gantt

    slices = trace.slices()
    for name in ("gantt.png", "gantt.svg"):
        gantt(slices, folder.file(name), title)
    return folder.file("gantt.svg")


def draw_convergence(folder: RunFolder, summaries: Mapping[str, RunSummary], name: str) -> Path | None:
    """The validation curves of the runs, by label, as SVG and PNG. The SVG's path; None without epochs."""
    from amphw.host.plots import convergence

    histories = {label: summary.history for label, summary in summaries.items() if summary.history}
    first = next(iter(summaries.values()))
    metric = first.metric or next(iter(first.valid), None)
    if metric is None or not any(metric in record.valid for each in histories.values() for record in each):
        return None
    for file in (f"{name}.png", f"{name}.svg"):
        convergence(histories, folder.file(file), first.target, metric)
    return folder.file(f"{name}.svg")
