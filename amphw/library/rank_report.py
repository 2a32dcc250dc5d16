"""What the report of a run says of its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amphw.host.report import ReportTable
    from amphw.host.run_folder import RunFolder
    from amphw.replicas.replica import Synchronised

RANKS = "ranks.json"
STEP_TIMES = "step-times.svg"
CAPTION = "Where a step's time goes: compute, wait, transfer"


def write_ranks(folder: RunFolder, found: Synchronised) -> dict[str, Path]:
    """The figures as JSON, and a bar for each rank as SVG and PNG. Paths by kind."""
    from amphw.host.rank_plots import step_times
    from amphw.host.report import narrow

    written = {"ranks": folder.write_json(RANKS, figures_of(found))}
    if found.per_rank and found.steps:
        path = folder.file(STEP_TIMES)
        for each in (path, path.with_suffix(".png")):
            step_times(found.per_rank, found.steps, each)
        step_times(found.per_rank, found.steps, narrow(path), narrow=True)
        written["step times"] = path
    return written


def rank_tables(found: Synchronised, counted: str) -> list[ReportTable]:
    """What each rank did, and bytes by parameter beside the formula."""
    from amphw.host.progress import rank_cells
    from amphw.host.report import ReportTable

    tables = []
    if found.per_rank:
        cells = [rank_cells(each, counted) for each in found.per_rank]
        tables.append(
            ReportTable(
                f"{found.ranks} ranks, {found.strategy}",
                list(cells[0]),
                [list(each.values()) for each in cells],
                [
                    "Bytes and seconds are of all training since the run began or went on; staleness, "
                    "p50 and p99 in versions, is of the last epoch."
                ],
            )
        )
    tables.append(
        ReportTable(
            "Bytes of an exchange",
            ["parameter", "exchanged", "sent", "received", "formula", "difference"],
            [_parameter(found, name) for name in found.bytes],
            [
                f"Of one rank and one of {found.steps:,} exchanges, on average. The formula is that of "
                "Parallax (arXiv 1808.02621, Table 3), each way, with the share of rows (alpha) that "
                "was measured.",
                *(f"{name} is a table and dense: {why}." for name, why in found.dense.items()),
            ],
        )
    )
    return tables


def _parameter(found: Synchronised, name: str) -> list[str]:
    from amphw.page.numbers import percent, size

    sent, received = found.bytes[name]["sent"], found.bytes[name]["received"]
    by_rows, formula = found.alpha.get(name), found.formula.get(name)
    how = "whole" if by_rows is None else f"by rows, {100 * by_rows:.3g} %"
    beside = ["–", "–"]
    if formula is not None:
        off = (sent + received) / 2 / formula - 1 if formula else 0.0
        beside = [size(formula), percent(off) if abs(off) >= 0.005 else "none"]
    return [name, how, size(sent), size(received), *beside]


def _members(clocks: Sequence[int]) -> list[dict[str, Any]]:
    """Ranks that train as members of a job are told, among which nobody comes or goes."""
    return [
        {"member": rank, "incarnation": 0, "state": "left", "rounds": rounds}
        for rank, rounds in enumerate(clocks)
    ]


def figures_of(found: Synchronised) -> dict[str, Any]:
    """For programs."""
    from amphw.host.records import json_safe

    return {
        "ranks": found.ranks,
        "strategy": found.strategy,
        "exchanges": found.steps,
        "bytes": found.bytes,
        "seconds": found.seconds,
        "alpha": found.alpha,
        "parameter_bytes": found.parameter_bytes,
        "formula": found.formula,
        "dense_tables": found.dense,
        **found.own,
        **({"members": _members(found.own["clocks"])} if found.own else {}),
        "per_rank": [
            {**json_safe(each), "instances_per_s": json_safe(each.instances_per_s)} for each in found.per_rank
        ],
    }
