"""The same run with several seeds: one seed says little, so the median and the spread are reported."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from amphw.cli.errors import INTERRUPTED
from amphw.cli.outcome import summary_json
from amphw.cli.output import emit_json, remark, remarks, results, table
from amphw.page.numbers import number

if TYPE_CHECKING:
    from amphw.host.records import RunSummary

SUMMARY = "seeds.json"


def train_seeds(
    model: Any, cfg: Any, device: str, seeds: int, out: Path | None, as_json: bool, spare: str
) -> None:
    """Train with seeds `cfg.train.seed`, the next, and so on, each in its own folder below `out`."""
    from amphw.host.config_toml import to_toml
    from amphw.host.report import ReportRun, write_report
    from amphw.host.run_folder import RunFolder
    from amphw.library.artifacts import REPORT, draw_convergence
    from amphw.library.running import ready, run_once, spare_device

    other = spare_device(spare)
    ready(model, cfg, device, remark)  # before the folder is made
    folder = RunFolder.create(out, f"{model.name}-seeds")
    outcomes = {}
    interrupted = False
    for seed in range(cfg.train.seed, cfg.train.seed + seeds):
        label = f"seed {seed}"
        seeded = dataclasses.replace(cfg, train=dataclasses.replace(cfg.train, seed=seed))
        runner = ready(model, seeded, device, remark)
        with RunFolder.create(folder.path / f"seed-{seed}", model.name, to_toml(seeded)).held() as own:
            outcomes[label] = run_once(model, seeded, runner, own, f"{model.name}, {label}", spare=other)
        if outcomes[label].interrupted:
            interrupted = True
            break
    summaries = {label: outcome.summary for label, outcome in outcomes.items()}
    figures = {name: spread(values) for name, values in _figures(list(summaries.values()))}
    folder.write_json(SUMMARY, {"seeds": len(summaries), "figures": figures})
    plot = draw_convergence(folder, summaries, "convergence")
    runs = [ReportRun.from_folder(each.folder.path, label, each.changed) for label, each in outcomes.items()]
    plots = {} if plot is None else {"Validation of every seed": plot}
    write_report(folder.file(REPORT), f"{model.name} on {device}, {len(runs)} seeds", runs, plots)
    _show(figures, len(summaries), folder.path, remarks() if as_json else results())
    if as_json:
        first = next(iter(summaries.values()))
        emit_json(
            _medians(model.name, first.device, figures, summaries.values())
            | {
                "run_dir": str(folder.path),
                "seeds": figures,
                "runs": [summary_json(outcome) for outcome in outcomes.values()],
            }
        )
    if interrupted:
        remark(f"stopped after {len(summaries)} of {seeds} seeds")
        raise typer.Exit(INTERRUPTED)


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median, least and greatest of the known values, and how many there are."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return {"median": math.nan, "min": math.nan, "max": math.nan, "n": 0}
    return {"median": statistics.median(known), "min": min(known), "max": max(known), "n": len(known)}


def _figures(summaries: list[RunSummary]) -> Iterable[tuple[str, list[float]]]:
    yield "instances_per_s", [each.instances_per_s for each in summaries]
    yield "epochs", [float(each.epochs) for each in summaries]
    reached = [each.reached_at() for each in summaries]
    yield "epochs_to_target", [math.nan if at is None else float(at.epoch) for at in reached]
    yield "seconds_to_target", [math.nan if at is None else at.seconds for at in reached]
    for name in dict.fromkeys(name for each in summaries for name in each.valid):
        yield f"valid {name}", [each.valid.get(name, math.nan) for each in summaries]
    for name in ("p50", "p99"):
        yield f"staleness {name}", [each.staleness.get(name, math.nan) for each in summaries]


def _medians(
    model: str, device: str, figures: dict[str, dict[str, Any]], summaries: Iterable[RunSummary]
) -> dict[str, Any]:
    """The keys of a single run's JSON, with medians for figures and sums for messages."""
    runs = list(summaries)
    return {
        "model": model,
        "device": device,
        "instances_per_s": figures["instances_per_s"]["median"],
        "epochs": figures["epochs"]["median"],
        "target_reached": all(each.target_reached for each in runs),
        "valid": {
            name.removeprefix("valid "): figure["median"]
            for name, figure in figures.items()
            if name.startswith("valid ")
        },
        "staleness": {name: figures[f"staleness {name}"]["median"] for name in ("p50", "p99")},
        "messages": {
            name: sum(each.messages.get(name, 0) for each in runs) for name in ("forward", "backward", "lost")
        },
    }


def _show(figures: dict[str, dict[str, Any]], seeds: int, path: Path, out: Any) -> None:
    rows = table("", "median", "least", "greatest", "seeds", right=("median", "least", "greatest", "seeds"))
    for name, figure in figures.items():
        values = [number(figure[key]) for key in ("median", "min", "max")]
        rows.add_row(name.replace("_", " "), *values, f"{figure['n']} of {seeds}")
    out.print(rows)
    out.print(f"run folder  {path}\nreport      {path / 'report.html'}")
