"""How far a job is, as its table tells: what its members have done together, and whether that is its end."""

from __future__ import annotations

import math
from typing import Any

from amphw.host.progress import LiveStats
from amphw.host.records import EpochRecord, first_reaching, higher_is_better
from amphw.replicas.elastic.table import Table


def reached(table: Table) -> str:
    """Which end of the job the epochs that were validated have come to, as `Table.ended` has it; "": none."""
    job, history = table.job, _history(table)
    if not history:
        return ""
    if job["target"] is not None and first_reaching(history, job["metric"], job["target"]):
        return "target"
    if len(history) >= job["epochs"]:
        return "epochs"
    if job["patience"] and len(history) - _best(history, job["metric"])[0] >= job["patience"]:
        return "patience"
    return ""


def progress(table: Table) -> dict[str, Any]:
    """As `Coordinator.progress`."""
    history = _history(table)
    best, value = _best(history, table.job["metric"])
    return {
        "epoch": len(history),
        "number": sum(table.leases.epochs[k].size for k in range(1, len(history) + 1)),
        "history": table.history,
        "best": best == len(history),
        "best_epoch": best,
        "best_value": value,
        "state": table.state(),
    }


def together(table: Table, seconds: float) -> dict[str, Any]:
    """Of the next epoch's record, what hangs on all members. seconds: that the job has trained for."""
    epoch = table.validated + 1
    every = [seen.figures for seen in table.seen.values()]
    size = int(table.size)
    losses = [each["losses"][str(epoch)] for each in every if str(epoch) in each.get("losses", {})]
    rows, total = sum(a for a, _ in losses), sum(b for _, b in losses)
    before = table.history[-1] if table.history else {"instances": 0, "seconds": 0.0}
    spent = seconds - before["seconds"]
    return {
        "epoch": epoch,
        "instances": size,
        "seconds": seconds,
        "train_loss": total / rows if rows else None,
        "instances_per_s": (size - before["instances"]) / spent if spent > 0 else None,
    }


def live(table: Table) -> LiveStats | None:
    """Where the job stands in the epoch that is not validated yet; None before it has begun.

    Members say what they have done with every lease that is through, so it is behind by less than a lease of
    each. Staleness and how busy workers are is not known of an epoch that goes on.
    """
    epoch = table.validated + 1
    if table.ended or epoch not in table.leases.epochs:
        return None
    shared = together(table, table.seconds)
    loss, rate = (shared[name] for name in ("train_loss", "instances_per_s"))
    return LiveStats(
        epoch=epoch,
        done=table.leases.trained(epoch),
        total=table.leases.epochs[epoch].size,
        loss=math.nan if loss is None else loss,
        rate=math.nan if rate is None else rate,
        valid=dict(table.history[-1]["valid"]) if table.history else {},
    )


def _history(table: Table) -> list[EpochRecord]:
    return [EpochRecord.from_json(each) for each in table.history]


def _best(history: list[EpochRecord], metric: str) -> tuple[int, float | None]:
    """The epoch with the best value, the first of those, and the value; 0: there is none."""
    found = [(each.valid.get(metric, math.nan), each.epoch) for each in history]
    found = [(value, epoch) for value, epoch in found if not math.isnan(value)]
    if not found:
        return 0, None
    pick = max if higher_is_better(metric) else min
    best = pick(value for value, _ in found)
    return next(epoch for value, epoch in found if value == best), best
