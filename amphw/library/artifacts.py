"""What a finished run leaves for the eye: its trace, its plots and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from amphw.host.records import RunSummary, Slice
    from amphw.host.run_folder import RunFolder
    from amphw.host.trace import Trace
    from amphw.ir.device import Findings
    from amphw.ir.graph import Graph
    from amphw.page.walk.section import Walkthrough
    from amphw.replicas.replica import Synchronised

    Walks = Callable[[Sequence[Slice]], Walkthrough | None]

TRACE = "trace.json.gz"
REPORT = "report.html"
GANTT = "gantt.svg"
DRAWN = 200
"""Nodes of a graph that a report draws, at most: laying out more would take longer than a short run."""
HOST = -1
"""The worker number of what the host's own thread does, such as the updates that end an epoch."""
_GANTT = "What the workers did: a window of the trace"
_CONVERGENCE = "Validation against instances and against training time"


def write_artifacts(
    folder: RunFolder,
    summary: RunSummary,
    trace: Trace | None,
    findings: Findings,
    changed: Sequence[str] = (),
    together: Synchronised | None = None,
    walk: Walks | None = None,
    graph: Graph | None = None,
) -> dict[str, Path]:
    """Write what the run allows: no Gantt chart without a trace, no curve without an epoch. Paths by kind;
    of a file of the device's findings the kind is its name. changed: as `ReportRun` has them. together: what
    keeping several ranks together took. walk: makes of the trace what the report walks through. graph: is
    drawn in the report.
    """
    from amphw.host.report import ReportRun, ReportTable, write_report
    from amphw.host.run_folder import write_atomic
    from amphw.library.node_report import limits, loss_tables, write_nodes
    from amphw.library.rank_report import CAPTION, rank_tables, write_ranks

    title = f"{summary.model} on {summary.device}"
    written: dict[str, Path] = {}
    plots: dict[str, Path] = {}
    curve = draw_convergence(folder, {summary.model: summary}, "convergence")
    if curve is not None:
        written["convergence"] = plots[_CONVERGENCE] = curve
    pieces = trace.slices() if trace is not None else []
    if trace is not None and pieces:
        written["trace"] = folder.file(TRACE)
        named = {HOST: "controller"} if any(piece.worker == HOST for piece in pieces) else {}
        ranks = together.traces if together is not None else []
        trace.write(written["trace"], title, named, ranks)
    workers = [piece for piece in pieces if piece.worker != HOST]
    if workers:
        written["gantt"] = plots[_GANTT] = draw_gantt(folder, workers, title)
    elif trace is not None and folder.file(GANTT).exists():
        # Resumed with nothing left to train: what the run has shown before stays in its report.
        written["trace"] = folder.file(TRACE)
        written["gantt"] = plots[_GANTT] = folder.file(GANTT)
    plots |= write_nodes(folder, summary, workers)
    for name, contents in findings.files.items():
        written[name] = folder.file(name)
        write_atomic(written[name], contents)
    plots |= {caption: written[name] for name, caption in findings.pictures.items()}
    written["report"] = folder.file(REPORT)
    found = ReportTable(findings.heading, findings.columns, findings.rows, findings.remarks)
    # Without a table the remarks stand alone.
    notes: Sequence[str] = () if findings.rows else findings.remarks
    tables = [found] if findings.rows else []
    if together is not None:
        about = write_ranks(folder, together)
        written |= about
        tables = [*rank_tables(together, summary.counted), *tables]
        plots = {CAPTION: about["step times"]} | plots if "step times" in about else plots
    ran = summary.ran if any("placed on" in line for line in summary.ran) or len(summary.ran) > 1 else []
    notes = [*limits(summary, workers), *(f"Ran {line}" for line in ran), *notes]
    tables = [*loss_tables(summary), *tables]
    run = ReportRun.from_folder(folder.path, changed=changed)
    shown = walk(pieces) if walk is not None else None
    drawing = graph._repr_html_() if graph is not None and len(graph.nodes) <= DRAWN else None
    write_report(written["report"], title, [run], plots, notes, tables, shown, drawing)
    return written


def draw_gantt(folder: RunFolder, pieces: Sequence[Slice], title: str) -> Path:
    """The Gantt chart as SVG and PNG, on a clock that begins with the first of `pieces`. The SVG's path."""
    from amphw.host.plots import gantt
    from amphw.host.report import narrow

    # Devices stamp slices with the machine's clock, which began long before the run.
    began = min(piece.start_us for piece in pieces)
    gantt(pieces, [folder.file(GANTT), folder.file("gantt.png")], title, began_us=began)
    gantt(pieces, narrow(folder.file(GANTT)), title, narrow=True, began_us=began)
    return folder.file(GANTT)


def draw_convergence(folder: RunFolder, summaries: Mapping[str, RunSummary], name: str) -> Path | None:
    """The validation curves of the runs, by label, as SVG and PNG. The SVG's path; None without epochs."""
    from amphw.host.plots import convergence
    from amphw.host.report import narrow

    histories = {label: summary.history for label, summary in summaries.items() if summary.history}
    first = next(iter(summaries.values()))
    metric = first.metric or next(iter(first.valid), None)
    if metric is None or not any(metric in record.valid for each in histories.values() for record in each):
        return None
    wide = folder.file(f"{name}.svg")
    convergence(histories, [wide, folder.file(f"{name}.png")], first.target, metric, first.counted)
    convergence(histories, narrow(wide), first.target, metric, first.counted, narrow=True)
    return wide


def draw_comparison(folder: RunFolder, summaries: Mapping[str, RunSummary], name: str) -> Path:
    """Throughput, epochs and staleness of the runs, by label, as SVG and PNG. The SVG's path."""
    from amphw.host.plots import comparison
    from amphw.host.report import narrow

    for file in (f"{name}.png", f"{name}.svg"):
        comparison(summaries, folder.file(file))
    wide = folder.file(f"{name}.svg")
    comparison(summaries, narrow(wide), narrow=True)
    return wide
