"""A run, or several compared, as one HTML file that needs nothing else: no network and no other file.

Plots are embedded as data URIs and follow the colour scheme; one that was also drawn for narrow screens
(`narrow`) is shown so there. On a narrow screen the comparison table turns into one card per run.
"""

from __future__ import annotations

import base64
import json
import math
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amphw.host.config_toml import dotted
from amphw.host.records import RunSummary, higher_is_better
from amphw.host.run_folder import CONFIG, ENVIRONMENT, SUMMARY, RunFolder, RunFolderError, write_atomic
from amphw.page.html import document, note, table, text, tiles
from amphw.page.numbers import duration, number
from amphw.page.walk import section
from amphw.page.walk.section import Walkthrough

_MISSING = "–"
_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}


def narrow(plot: Path) -> Path:
    """Where the same plot for a narrow screen lies."""
    return plot.with_name(f"{plot.stem}-narrow{plot.suffix}")


@dataclass
class ReportRun:
    """One run in a report: its label, its summary, its resolved config, and where it ran.

    `settings` and `environment` may be nested; they are shown as dotted names. `changed` are the dotted names
    of those settings that are not the recommended ones, which are shown first.
    """

    label: str
    summary: RunSummary
    settings: dict[str, Any]
    environment: dict[str, Any] = field(default_factory=dict)
    changed: Sequence[str] = ()

    @classmethod
    def from_folder(cls, root: Path, label: str | None = None, changed: Sequence[str] = ()) -> ReportRun:
        """The run in the run folder `root`, labelled by the folder's name unless told.

        Raises RunFolderError if it has no summary yet, or a file in it cannot be read.
        """
        folder = RunFolder.open(root)
        try:
            summary = RunSummary.from_json(folder.read_json(SUMMARY))
            config = folder.file(CONFIG)
            settings = tomllib.loads(config.read_text(encoding="utf-8")) if config.exists() else {}
        except (ValueError, OSError) as error:
            raise RunFolderError(
                f"cannot report on {root}: {error}; run it again, or leave it out"
            ) from error
        environment = folder.read_json(ENVIRONMENT) if folder.file(ENVIRONMENT).exists() else {}
        return cls(label or folder.path.name, summary, settings, environment, changed)


@dataclass(frozen=True)
class ReportTable:
    """A table of its own, below the runs: rows have a text a column, remarks are sentences below it."""

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    remarks: Sequence[str] = ()


def write_report(
    path: Path,
    title: str,
    runs: Sequence[ReportRun],
    plots: Mapping[str, Path],
    notes: Sequence[str] = (),
    tables: Sequence[ReportTable] = (),
    walk: Walkthrough | None = None,
    graph: str | None = None,
) -> None:
    """Write the report on `runs` to `path`, atomically.

    `plots` maps captions to .svg or .png files, shown in that order; `notes` are paragraphs of plain text
    below the headline numbers; `tables` come before the plots; behind them `graph`, which is markup, and
    `walk`. Raises ValueError for no runs or a plot of another kind, RunFolderError for a plot that cannot be
    read, and WriteError.
    """
    if not runs:
        raise ValueError(f"no run to report on in {path}; pass at least one")
    changed = {name for run in runs for name in run.changed}
    body = [
        f"<h1>{text(title)}</h1>",
        _headline(runs),
        *_commands(runs),
        *(note(each) for each in notes),
        *(["<h2>Runs</h2>", _comparison(runs)] if len(runs) > 1 else []),
        *(_table(each) for each in tables),
        *(_plot(caption, Path(file)) for caption, file in plots.items()),
        *([f"<h2>The graph</h2>{graph}"] if graph is not None else []),
        *([section.section(walk)] if walk is not None else []),
        "<h2>Resolved config</h2>",
        _settings([(run.label, flat(run.settings)) for run in runs], "no config was given", changed),
        "<h2>Environment</h2>",
        _settings([(run.label, flat(run.environment)) for run in runs], "no environment was recorded"),
    ]
    style = _STYLE + (section.style() if walk is not None else "")
    write_atomic(Path(path), document(title, body, style).encode("utf-8"))


def _headline(runs: Sequence[ReportRun]) -> str:
    """The few numbers to read first: of the one run, or which run leads in what."""
    if len(runs) == 1:
        found = _headline_of(runs[0].summary)
    else:
        found = [("runs compared", str(len(runs)), ", ".join(sorted({run.summary.model for run in runs})))]
        fastest = max(runs, key=lambda run: _or(run.summary.instances_per_s, -math.inf))
        rate = f"{_number(fastest.summary.instances_per_s)}/s"
        found.append(("highest throughput", rate, f"{fastest.summary.counted}, {fastest.label}"))
        met = [(at, run) for run in runs if (at := run.summary.reached_at()) is not None]
        if met:
            at, run = min(met, key=lambda pair: pair[0].seconds)
            found.append(("first to target", duration(at.seconds), run.label))
            at, run = min(met, key=lambda pair: pair[0].epoch)
            found.append(("fewest epochs to target", str(at.epoch), run.label))
    return tiles(found)


def _headline_of(summary: RunSummary) -> list[tuple[str, str, str]]:
    seconds = summary.history[-1].seconds if summary.history else math.nan
    sent = summary.messages.get("forward", 0) + summary.messages.get("backward", 0)
    found = [
        (
            "throughput",
            f"{_number(summary.instances_per_s)}/s",
            f"{summary.counted}, on {summary.last_device}",
        ),
        ("epochs", str(summary.epochs), f"stopped by {summary.stopped_by or 'nothing recorded'}"),
        ("training time", duration(seconds), "without validation"),
        *_learned(summary),
    ]
    goal = f"target {_number(summary.target)}, " if summary.target is not None else ""
    for name, value in summary.valid.items():
        verdict = f"{goal}{'reached' if summary.target_reached else 'not reached'}" if goal else ""
        found.append((f"validation {name}", _number(value), verdict if name == summary.metric else ""))
    p50, p99 = (_number(summary.staleness.get(key, math.nan)) for key in ("p50", "p99"))
    found.append(("staleness", f"{p50} / {p99}", "versions, p50 / p99"))
    found.append(("messages", _number(sent), f"{summary.messages.get('lost', 0)} lost"))
    return found


def _commands(runs: Sequence[ReportRun]) -> list[str]:
    """What was typed; several runs of one command share it."""
    found = dict.fromkeys(run.environment.get("command") for run in runs)
    return [f'<p class="command"><code>{text(each)}</code></p>' for each in found if isinstance(each, str)]


def _learned(summary: RunSummary) -> list[tuple[str, str, str]]:
    """The last epoch's training loss, when the target was met, and what limited the throughput."""
    if not summary.history:
        return []
    last, at = summary.history[-1], summary.reached_at()
    found = [("training loss", _number(last.train_loss), f"mean over epoch {last.epoch}")]
    if at is not None:
        found.append(("target met", duration(at.seconds), f"in epoch {at.epoch}"))
    if limit := last.limit():
        found.append(("workers busy", f"{last.busy:.0%}", f"in epoch {last.epoch}; {limit}"))
    return found


def _comparison(runs: Sequence[ReportRun]) -> str:
    """One row per run. A cell repeats its column's name for the narrow layout, which has no header row."""
    metrics = list(dict.fromkeys(name for run in runs for name in run.summary.valid))
    counted = " or ".join(dict.fromkeys(run.summary.counted for run in runs))
    columns = [
        "max_active_keys",
        f"{counted}/s",
        "epochs to target",
        "time to target",
        "staleness p50, p99",
        "workers busy",
        "training loss",
    ]
    first_metric = len(columns)
    columns += [f"validation {name}" for name in metrics]
    rows = []
    for run in runs:
        summary, at = run.summary, run.summary.reached_at()
        epochs = f"not in {summary.epochs}" if at is None else str(at.epoch)
        values = [
            _setting(run, "max_active_keys"),
            _number(summary.instances_per_s),
            str(summary.epochs) if at is None and summary.target_reached else epochs,
            _MISSING if at is None else duration(at.seconds),
            ", ".join(_number(summary.staleness.get(key, math.nan)) for key in ("p50", "p99")),
            *_last(summary),
            *(_number(summary.valid.get(name, math.nan)) for name in metrics),
        ]
        rows.append((run, values))
    best = _best_cells(runs, metrics, first_metric)
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in ["run", *columns])
    body = ""
    for row, (run, values) in enumerate(rows):
        cells = "".join(
            f'<td data-name="{text(name)}"{" class=best" if (row, column) in best else ""}>'
            f"<span>{text(value)}</span></td>"
            for column, (name, value) in enumerate(zip(columns, values, strict=True))
        )
        body += f'<tr><th scope="row">{text(run.label)}</th>{cells}</tr>\n'
    shown = f'<table class="runs"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>'
    return f'<div class="scroll">{shown}</div>' + "".join(note(each) for each in _limits(runs))


def _last(summary: RunSummary) -> list[str]:
    """How busy workers were in the last epoch, and its training loss."""
    if not summary.history:
        return [_MISSING, _MISSING]
    last = summary.history[-1]
    return [f"{last.busy:.0%}" if math.isfinite(last.busy) else _MISSING, _number(last.train_loss)]


def _limits(runs: Sequence[ReportRun]) -> list[str]:
    """What limited each run's throughput, where it is known."""
    known = {run.label: run.summary.history[-1].limit() for run in runs if run.summary.history}
    return [f"{label}: {limit}." for label, limit in known.items() if limit]


def _table(of: ReportTable) -> str:
    heading = f"<h2>{text(of.heading[:1].upper() + of.heading[1:])}</h2>"
    return heading + table(of.columns, of.rows) + "".join(note(each) for each in of.remarks)


def _best_cells(runs: Sequence[ReportRun], metrics: list[str], first_metric: int) -> set[tuple[int, int]]:
    """(row, column) of the best throughput, epochs, time and metrics; nothing is best among one run."""
    if len(runs) < 2:
        return set()
    reached = [run.summary.reached_at() for run in runs]
    scores: dict[int, list[float]] = {  # higher is better
        1: [run.summary.instances_per_s for run in runs],
        2: [math.nan if at is None else -float(at.epoch) for at in reached],
        3: [math.nan if at is None else -at.seconds for at in reached],
    }
    for column, name in enumerate(metrics, first_metric):
        sign = 1.0 if higher_is_better(name) else -1.0
        scores[column] = [sign * run.summary.valid.get(name, math.nan) for run in runs]
    best: set[tuple[int, int]] = set()
    for column, values in scores.items():
        top = max((value for value in values if math.isfinite(value)), default=math.nan)
        best.update((row, column) for row, value in enumerate(values) if value == top)
    return best


def _settings(columns: list[tuple[str, dict[str, str]]], empty: str, changed: Collection[str] = ()) -> str:
    """What differs between several runs, then what all share: first what was `changed`, the others folded."""
    names = list(dict.fromkeys(name for _, values in columns for name in values))
    if not names:
        return f"<p>{text(empty)}</p>"
    shared = {name for name in names if len({values.get(name) for _, values in columns}) == 1}
    parts = []
    differing = [name for name in names if name not in shared]
    if differing:
        labels = [label for label, _ in columns]
        rows = [[name, *(values.get(name, _MISSING) for _, values in columns)] for name in differing]
        parts.append(table(["differs", *labels], rows))
    values = columns[0][1]
    first = [[name, values[name]] for name in names if name in shared and name in changed]
    if first:
        parts.append(table(["not as recommended", ""], first))
    if rest := [[name, values[name]] for name in names if name in shared and name not in changed]:
        caption = ("other settings" if first else "settings") + (" of all runs" if len(columns) > 1 else "")
        parts.append(f"<details><summary>{len(rest)} {caption}</summary>{table((), rest)}</details>")
    return "\n".join(parts)


def _plot(caption: str, file: Path) -> str:
    # As an image, not as inline markup: the ids of two SVGs on a page would collide.
    image = f'<img alt="{text(caption)}" src="{_embedded(file)}">'
    if narrow(file).exists():
        source = f'<source media="(max-width: 720px)" srcset="{_embedded(narrow(file))}">'
        image = f"<picture>{source}{image}</picture>"
    kind = "card paper" if file.suffix.lower() == ".png" else "card"
    return f'<figure><figcaption>{text(caption)}</figcaption><div class="{kind}">{image}</div></figure>'


def _embedded(file: Path) -> str:
    kind = _TYPES.get(file.suffix.lower())
    if kind is None:
        raise ValueError(f"cannot show plot {file}: a plot is .svg or .png")
    try:
        data = base64.b64encode(file.read_bytes()).decode("ascii")
    except OSError as error:
        raise RunFolderError(f"cannot read plot {file}: {error.strerror or error}; draw it again") from error
    return f"data:{kind};base64,{data}"


def flat(settings: Mapping[str, Any]) -> dict[str, str]:
    """Nested settings by their dotted names, as text."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, default=str)
        for name, value in dotted(settings)
    }


def _setting(run: ReportRun, name: str) -> str:
    for key, value in flat(run.settings).items():
        if key.rpartition(".")[2] == name:
            return value
    return _MISSING


def _or(value: float, other: float) -> float:
    return value if math.isfinite(value) else other


def _number(value: float) -> str:
    # Message counts: all digits would not fit their tile.
    return f"{value / 1e6:,.4g}M" if 1e6 <= abs(value) < math.inf else number(value, _MISSING)


_STYLE = """\
:root { --best: #d6efe3; }
@media (prefers-color-scheme: dark) { :root { --best: #17402f; } }
table.runs { width: 100%; }
.runs td, .runs thead th + th { text-align: right; }
.runs tbody th { font-weight: 600; white-space: normal; overflow-wrap: break-word; min-width: 11em; }
.best { background: var(--best); font-weight: 600; }
.command { overflow-wrap: anywhere; color: var(--soft); }
.card { border: 1px solid var(--line); border-radius: 8px; padding: 8px; }
.paper { background: #ffffff; }
.card img { display: block; width: 100%; height: auto; }
@media (max-width: 720px) {
  .runs thead { display: none; }
  .runs, .runs tbody, .runs tr, .runs th, .runs td { display: block; }
  .runs tr { background: var(--panel); border-radius: 8px; margin-bottom: 12px; padding: 4px 0; }
  .runs tr > :last-child { border-bottom: 0; }
  .runs td { display: flex; min-width: 0; justify-content: space-between; gap: 16px; padding: 5px 12px; }
  .runs td::before { content: attr(data-name); color: var(--soft); font-weight: 400; text-align: left; }
}
"""
