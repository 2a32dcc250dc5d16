"""`amphw ranks` and `amphw ledger`: who has trained a run whose members come and go, and whether all
counted."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from amphw.cli.errors import FAILED
from amphw.cli.options import JsonOption
from amphw.cli.output import emit_json, results, table

FolderArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder of a run of `amphw train --carrier ray`.")
]


def ranks(run: FolderArgument, as_json: JsonOption = False) -> None:
    """Show the members of a run, also while it trains: their clocks (rounds), and what they moved."""
    from amphw.host.run_folder import RunFolder
    from amphw.page.numbers import size
    from amphw.replicas.elastic.audit import read_table
    from amphw.replicas.elastic.report import members

    found = read_table(RunFolder.open(run).path)
    rows = members(found)
    if as_json:
        emit_json(
            {
                "revision": found.revision,
                "epochs": len(found.history),
                "ended": found.ended,
                "members": rows,
            }
        )
        return
    counted = ("rounds", "instances", "sent", "received")
    shown = table("member", "state", "device", "host", *counted, "values from", right=counted)
    for row in rows:
        told = row["state"] == "lost" or row["why"] not in ("", "job", "left")
        state = f"{row['state']}: {row['why']}" if told else row["state"]
        shown.add_row(
            f"{row['member']}.{row['incarnation']}",
            state,
            row["device"],
            row["host"],
            f"{row['rounds']:,}",
            f"{row['instances']:,}",
            size(row["sent"]),
            size(row["received"]),
            "" if row["values_from"] is None else f"member {row['values_from']}",
        )
    results().print(shown)


def ledger(run: FolderArgument, as_json: JsonOption = False) -> None:
    """Check a finished run: was any instance lost, beyond what members that failed had in flight, or doubled?

    Exit code 1 where one was.
    """
    from amphw.host.run_folder import RunFolder
    from amphw.replicas.elastic.audit import audit

    found = audit(RunFolder.open(run).path)
    if as_json:
        emit_json(asdict(found))
    else:
        rows = table("", "")
        rows.show_header = False
        rows.add_row("instances that count", f"{found.instances:,}")
        rows.add_row("undone", f"{found.undone:,}")
        rows.add_row("in flight where members failed", f"{found.in_flight:,}")
        rows.add_row("messages taken", f"{found.messages:,}")
        rows.add_row("lost", f"{found.lost:,}")
        rows.add_row("doubled", f"{found.doubled:,}")
        results().print(rows)
        for text in found.wrong:
            results().print(text)
    if found.lost or found.doubled:
        raise typer.Exit(FAILED)
