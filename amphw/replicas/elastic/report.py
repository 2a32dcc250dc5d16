"""What there is to say of a job with members that come and go, while it trains and afterwards."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amphw.host.meters import percentile
from amphw.host.records import EpochRecord, RunSummary
from amphw.replicas.elastic.coordinator import JOURNAL
from amphw.replicas.elastic.journal import Journal
from amphw.replicas.elastic.ledger import JOB
from amphw.replicas.elastic.table import LEFT, LOST, TRAINING, Seen, Table


class Follower:
    """Follows the journal of the run in `folder`, whoever writes it."""

    def __init__(self, folder: Path):
        self._journal = Journal(folder / JOURNAL)
        self.table = Table()
        self._short = ""

    def news(self) -> tuple[list[str], list[EpochRecord]]:
        """What has happened since the last call: sentences, and epochs that were validated."""
        said, records = [], []
        for event in self._journal.read():
            self.table.apply(event)
            if event["event"] == "validated":
                records.append(EpochRecord.from_json(event["record"]))
            elif text := self._sentence(event):
                said.append(text)
        short = self._too_few()
        if short and short != self._short:
            said.append(short)
        self._short = short
        return said, records

    def _too_few(self) -> str:
        """What to say of a job that has fewer members than its minimum; empty: it has enough."""
        table = self.table
        minimum = table.job.get("minimum", 0)
        here = len(table.present(TRAINING) if table.begun else table.present())
        starts = not table.begun and minimum <= table.starting  # who was asked for is on its way
        if here >= minimum or starts or table.ended:
            return ""
        return f"{here} members are here, and {minimum} are the minimum: nobody trains until others join"

    def _sentence(self, event: Mapping[str, Any]) -> str:
        what = event["event"]
        if what == "back":
            saved = self.table.saved
            since = f"of epoch {saved['epochs']}" if saved["path"] else "there is none, so from the beginning"
            return f"nobody has the latest parameters: the job goes back to its checkpoint, {since}"
        if what not in ("joined", "ready", LOST, LEFT):
            return ""
        number = event["member"]
        if what == "joined" and self.table.begun:
            return f"member {number} is here {'again' if event['incarnation'] else 'now'}"
        if what == "ready" and event["incarnation"]:
            return f"member {number} trains again"
        if what == LOST:
            return f"member {number} was lost: {event['why']}; {self._left()}"
        if what == LEFT and event["why"] != JOB:
            why = "" if event["why"] == "left" else f" ({event['why']})"
            return f"member {number} has left{why}; {self._left()}"
        return ""

    def _left(self) -> str:
        count = len(self.table.present(TRAINING))
        return f"{count} member{'s' * (count != 1)} go{'es' * (count == 1)} on"


def stopped(table: Table, before: Mapping[str, Any], command: str) -> str:
    """What to tell a user who had a job stop. before: what was saved then (`Table.saved`). command: goes on
    with the job."""
    if table.saved is not before:
        return f"stopped and saved; go on with: {command}"
    if table.saved["path"]:
        epoch = table.saved["epochs"]
        return f"stopped without saving; go on from the checkpoint of epoch {epoch} with: {command}"
    return f"stopped, and nothing was saved; begin again with: {command}"


def members(table: Table) -> list[dict[str, Any]]:
    """Every incarnation that there was, in order, with what it has done."""
    return [_member(seen) for _, seen in sorted(table.seen.items())]


def _member(seen: Seen) -> dict[str, Any]:
    figures = seen.figures
    names = (
        "rounds",
        "instances",
        "size",
        "sent",
        "received",
        "refused",
        "blocked",
        "lead",
        "partitions",
        "bound",
    )
    return {
        "member": seen.me.number,
        "incarnation": seen.me.incarnation,
        "state": seen.state,
        "why": seen.why,
        **{name: seen.about.get(name, "") for name in ("host", "pid", "device")},
        "values_from": seen.donor.number if seen.donor is not None else None,
        **{name: figures.get(name, 0) for name in names},
        "leads": figures.get("leads", {}),
    }


def summary(table: Table, model: Any, run_dir: Path, device: str) -> RunSummary:
    """Of all members together. device: the name of theirs."""
    every = [seen.figures for seen in table.seen.values()]
    forward, backward = (sum(each.get(name, 0) for each in every) for name in ("forward", "backward"))
    staleness: Counter[int] = Counter()
    for each in every:
        staleness.update({int(behind): rows for behind, rows in each.get("staleness", {}).items()})
    history = [EpochRecord.from_json(each) for each in table.history]
    last = history[-1] if history else None
    return RunSummary(
        model=model.name,
        device=device,
        epochs=len(history),
        instances_per_s=last.instances / last.seconds if last is not None and last.seconds else math.nan,
        target_reached=table.ended == "target",
        valid=dict(last.valid) if last is not None else {},
        staleness={"p50": percentile(staleness, 0.5), "p99": percentile(staleness, 0.99)},
        messages={"forward": forward, "backward": backward, "lost": forward - backward},
        run_dir=str(run_dir),
        history=history,
        stopped_by=table.ended,
        metric=model.metric,
        target=table.job["target"],
        ran=[],
        counted=model.counted,
    )
