"""`amphw compare`: several runs side by side, as one page."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from amphw.cli.options import JsonOption
from amphw.cli.output import emit_json, results


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs that have ended.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The page, which needs no other file.")
    ] = Path("compare.html"),
    as_json: JsonOption = False,
) -> None:
    """Compare runs: their curves, throughput, staleness and settings side by side, as one HTML file."""
    if len(runs) < 2:
        raise typer.BadParameter("takes two runs or more", param_hint="RUN...")
    if out.suffix.lower() != ".html":
        raise typer.BadParameter(f"{out}: expected a file that ends in .html", param_hint="--out")
    from amphw.host.report import ReportRun, write_report
    from amphw.host.run_folder import RunFolder
    from amphw.library.artifacts import draw_comparison, draw_convergence

    folders = [RunFolder.open(run).single() for run in runs]
    found = [ReportRun.from_folder(f.path, label) for f, label in zip(folders, labels(runs), strict=True)]
    summaries = {run.label: run.summary for run in found}
    with tempfile.TemporaryDirectory(prefix="amphw-compare-") as name:
        drawn = RunFolder(Path(name))
        plots = {}
        if (curve := draw_convergence(drawn, summaries, "convergence")) is not None:
            plots["Validation against instances and against training time"] = curve
        plots["Throughput, epochs to the target, staleness"] = draw_comparison(drawn, summaries, "comparison")
        models = dict.fromkeys(run.summary.model for run in found)
        write_report(out, f"{', '.join(models)}: {len(found)} runs", found, plots)
    if as_json:
        kept = {
            label: {key: value for key, value in summary.to_json().items() if key != "history"}
            for label, summary in summaries.items()
        }
        emit_json({"file": str(out), "runs": kept})
    else:
        results().print(f"written to {out}")


def labels(runs: list[Path]) -> list[str]:
    """The names of the folders or, where two have the same, as much of the paths as tells all apart."""
    parts = [run.resolve().parts for run in runs]
    for count in range(1, max(map(len, parts)) + 1):
        found = ["/".join(each[-count:]) for each in parts]
        if len(set(found)) == len(found):
            return found
    raise typer.BadParameter("names a folder twice", param_hint="RUN...")
