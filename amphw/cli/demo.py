"""`amphw demo`: one model, one seed, three degrees of asynchrony, one page that compares them."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from amphw.cli.blas import pin_blas
from amphw.cli.errors import INTERRUPTED
from amphw.cli.options import DeviceOption, JsonOption
from amphw.cli.output import NOISE, emit_json, remark, remarks, results, table
from amphw.page.numbers import number, percent

if TYPE_CHECKING:
    from amphw.host.records import RunSummary
    from amphw.host.run_folder import RunFolder
    from amphw.library.running import Outcome

MODEL = "list-reduction"
TARGET = 0.97
KEYS = (1, 4, 16)
SETTINGS = (f"target={TARGET}",)
"""Beside the model's own; the same for every run of the comparison."""
QUICK = ("hidden=8", "train_instances=200", "valid_instances=100", "epochs=1")


def demo(
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder of the demo; else runs/demo-TIME.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tiny version: shows that it works, its figures mean nothing.")
    ] = False,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Train list reduction to 97 % with 1, 4 and 16 instances in flight, and compare."""
    pin_blas()
    from amphw.host.config import resolve
    from amphw.host.config_toml import to_toml
    from amphw.host.devices import make_device
    from amphw.host.run_folder import RunFolder
    from amphw.library.running import ready, run_once
    from amphw.models import get_model

    model = get_model(MODEL)
    recommended = model.recommended(make_device(device).capabilities())
    cfg = resolve(model.config, recommended, None, [*SETTINGS, *(QUICK if quick else ())])
    ready(model, cfg, device, remark)  # before the folder is made
    folder = RunFolder.create(out, "demo")
    remarks().print(
        f"amphw demo: {MODEL} to {TARGET:.0%} validation accuracy with {_listed(KEYS)} instances in flight.\n"
        "With 1 instance in flight, workers wait for one another and gradients are nearly fresh. With more, "
        "nodes\nwork on several instances at once, and gradients come from somewhat older parameters."
    )
    began = time.monotonic()
    outcomes: dict[str, Outcome] = {}
    for keys in KEYS:
        label = f"max_active_keys {keys}"
        chosen = dataclasses.replace(cfg, train=dataclasses.replace(cfg.train, max_active_keys=keys))
        runner = ready(model, chosen, device, remark)
        with RunFolder.create(folder.path / f"keys-{keys}", MODEL, to_toml(chosen)).held() as own:
            outcomes[label] = run_once(model, chosen, runner, own, f"{MODEL}, {label}")
        if outcomes[label].interrupted:
            remark(f"stopped; what has run lies in {folder.path}")
            raise typer.Exit(INTERRUPTED)
    summaries = {label: outcome.summary for label, outcome in outcomes.items()}
    bought = list(_bought(summaries))
    report = _write(folder, outcomes, bought, device)
    to = remarks() if as_json else results()
    to.print(_table(summaries))
    for line in bought:
        to.print(line)
    to.print(f"The report of all three, with plots: {report}  ({time.monotonic() - began:.0f} s)")
    if as_json:
        runs = [{k: v for k, v in each.to_json().items() if k != "history"} for each in summaries.values()]
        for run, keys, summary in zip(runs, KEYS, summaries.values(), strict=True):
            run |= {"max_active_keys": keys, "utilisation": utilisation(summary)}
        emit_json({"model": MODEL, "device": device, "target": TARGET, "runs": runs, "report": str(report)})


def utilisation(summary: RunSummary) -> float | None:
    """Mean busy share of all workers over all epochs; None where nothing is known."""
    from amphw.host.records import mean_known

    mean = mean_known([share for record in summary.history for share in record.utilisation])
    return mean if math.isfinite(mean) else None


def _table(summaries: Mapping[str, RunSummary]) -> Any:
    first = next(iter(summaries.values()))
    figures = (
        f"{first.counted}/s",
        f"epochs to {TARGET:.0%}",
        f"seconds to {TARGET:.0%}",
        "staleness",
        "workers busy",
    )
    rows = table("run", *figures, right=figures)
    for label, summary in summaries.items():
        at = summary.reached_at()
        rows.add_row(
            label,
            number(summary.instances_per_s),
            f"not in {summary.epochs}" if at is None else str(at.epoch),
            "-" if at is None else f"{at.seconds:.1f}",
            f"{number(summary.staleness.get('p50'))} / {number(summary.staleness.get('p99'))}",
            percent(utilisation(summary)),
        )
    rows.caption = (
        "staleness: p50 / p99, in parameter versions between a message's forward and backward pass\n"
        f"throughput and seconds: {NOISE}"
    )
    rows.caption_justify = "left"
    return rows


def _bought(summaries: Mapping[str, RunSummary]) -> Any:
    """One sentence per run beside the first, which is the one without overlap."""
    (base_label, base), *others = summaries.items()
    base_at = base.reached_at()
    for label, summary in others:
        if not base.instances_per_s > 0:
            return
        gain = summary.instances_per_s / base.instances_per_s
        text = f"{label}: {gain:.2f} times the throughput of {base_label}"
        at = summary.reached_at()
        if at is not None and base_at is not None and at.seconds > 0:
            text += f", {base_at.seconds / at.seconds:.2f} times as fast to {TARGET:.0%}"
            text += f" ({at.epoch} epochs instead of {base_at.epoch})"
        yield text + "."


def _write(folder: RunFolder, outcomes: Mapping[str, Outcome], bought: list[str], device: str) -> Path:
    from amphw.host.report import ReportRun, write_report
    from amphw.library.artifacts import REPORT, draw_comparison, draw_convergence

    summaries = {label: outcome.summary for label, outcome in outcomes.items()}
    plots: dict[str, Path] = {}
    curve = draw_convergence(folder, summaries, "convergence")
    if curve is not None:
        plots["Validation accuracy against instances and against training time"] = curve
    plots["Throughput, epochs to the target, staleness"] = draw_comparison(folder, summaries, "comparison")
    for label, outcome in outcomes.items():
        if "gantt" in outcome.written:
            plots[f"What the workers did, {label}"] = outcome.written["gantt"]
    runs = [ReportRun.from_folder(each.folder.path, label, each.changed) for label, each in outcomes.items()]
    notes = [
        "The same model, data, seed and settings; only max_active_keys, the number of instances in flight, "
        "differs.",
        f"Throughput and seconds: {NOISE}.",
        *bought,
    ]
    write_report(folder.file(REPORT), f"What asynchrony buys: {MODEL} on {device}", runs, plots, notes)
    return folder.file(REPORT)


def _listed(values: tuple[int, ...]) -> str:
    *first, last = map(str, values)
    return f"{', '.join(first)} and {last}"
