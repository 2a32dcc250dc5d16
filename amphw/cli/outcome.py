"""What `train` says of a run that has ended."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from amphw.cli.output import BEGAN, NOISE, emit_json, remarks, results, table
from amphw.cli.ranks import rows_of
from amphw.library.rank_report import figures_of
from amphw.page.numbers import duration, number, size


def summary_json(outcome: Any) -> dict[str, Any]:
    """The summary for other programs: every field of `RunSummary` but the history, what the device found, and
    the files by kind."""
    summary = {key: value for key, value in outcome.summary.to_json().items() if key != "history"}
    summary["spent"] = {what: round(seconds, 3) for what, seconds in outcome.spent.items()}
    summary |= outcome.findings.figures
    if outcome.synchronised is not None:
        summary |= figures_of(outcome.synchronised)
    if outcome.members is not None:
        summary |= {"members": outcome.members, **_paced(outcome.members)}
    return summary | {"files": {kind: str(path) for kind, path in outcome.written.items()}}


def _paced(members: list[dict[str, Any]]) -> dict[str, Any]:
    """Of members that come and go, as of ranks: partitions and bound of the last one, the rounds of the
    newest incarnation of each, and how far ahead of the slowest other one any has been, and how often."""
    newest = {each["member"]: each for each in members}
    rounds = Counter[int]()
    for each in members:
        rounds.update({int(lead): times for lead, times in each["leads"].items()})
    last = max(members, key=lambda each: each["rounds"], default={})
    return {
        "partitions": last.get("partitions", 0),
        "bound": last.get("bound", 0),
        "clocks": [each["rounds"] for _, each in sorted(newest.items())],
        "staleness_max": max((each["lead"] for each in members), default=0),
        "staleness_rounds": dict(sorted(rounds.items())),
    }


def report_outcome(outcome: Any, as_json: bool) -> None:
    """Print what came of a run; as JSON, the same for people goes to stderr."""
    summary = outcome.summary
    rows = table("", "")
    rows.show_header = False
    for name, value in summary.valid.items():
        rows.add_row(f"validation {name}", number(value))
    if summary.target is not None:
        at = summary.reached_at()
        when = f"in epoch {at.epoch}, after {at.seconds:.1f} s of training" if at else "not reached"
        rows.add_row(f"target {number(summary.target)}", when)
    rows.add_row("time", _time(outcome.spent))
    rows.add_row("epochs", f"{summary.epochs}, stopped by {summary.stopped_by or 'nothing recorded'}")
    rows.add_row(
        "throughput",
        f"{number(summary.instances_per_s)} {summary.counted}/s on {summary.last_device} ({NOISE})",
    )
    stale = summary.staleness
    rows.add_row("staleness", f"p50 {number(stale.get('p50'))}, p99 {number(stale.get('p99'))} versions")
    sent = summary.messages
    rows.add_row(
        "messages",
        f"{number(sent.get('forward'))} forward, {number(sent.get('backward'))} backward, "
        f"{sent.get('lost', 0)} lost",
    )
    if outcome.synchronised is not None:
        for name, text in rows_of(outcome.synchronised).items():
            rows.add_row(name, text)
    if outcome.members is not None:
        rows.add_row("members", _members(outcome.members))
    rows.add_row("run folder", str(outcome.folder.path))
    for kind, path in outcome.written.items():
        rows.add_row(kind, str(path))
    to = remarks() if as_json else results()
    to.print(rows)
    _show_findings(outcome.findings, to)
    if as_json:
        emit_json(summary_json(outcome))


def _members(members: list[dict[str, Any]]) -> str:
    """Who has trained, in words."""
    numbers = {each["member"] for each in members}
    lost = sum(each["state"] == "lost" for each in members)
    rounds = sum(each["rounds"] for each in members)
    sent = sum(each["sent"] for each in members)
    gone = f"; {lost} were lost" if lost else ""
    return f"{len(numbers)}{gone}; {rounds:,} rounds, {size(sent)} sent"


def _time(spent: dict[str, float]) -> str:
    """That of the whole command, and what it went into, most first; the rest is Python and its modules."""
    whole = time.perf_counter() - BEGAN
    parts = {what: s for what, s in sorted(spent.items(), key=lambda part: -part[1]) if s > 0.01 * whole}
    parts["the rest"] = max(0.0, whole - sum(parts.values()))
    return f"{duration(whole)}: " + ", ".join(f"{duration(s)} {what}" for what, s in parts.items())


def _show_findings(findings: Any, to: Any) -> None:
    """The device's table, in which all columns but the first two hold numbers, and its remarks."""
    if findings.rows:
        shown = table(*findings.columns, right=findings.columns[2:])
        for row in findings.rows:
            shown.add_row(*row)
        to.print(f"\n{findings.heading}:")
        to.print(shown)
    for remark in findings.remarks:
        to.print(remark)
