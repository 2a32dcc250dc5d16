"""`amphw flash`: a circuit into an FPGA board."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from amphw.cli.output import remarks


def flash(
    what: Annotated[
        Path,
        typer.Argument(
            metavar="BITSTREAM|DIR", help="A bitstream, or the folder that amphw rtl --bitstream has written."
        ),
    ],
    board: Annotated[
        str | None,
        typer.Option("--board", metavar="BOARD", help="What it is for; a folder of amphw rtl knows that."),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Write it into the board's flash memory, so that it is there after power was off."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command that would be run, and do nothing.")
    ] = False,
) -> None:
    """Configure an FPGA board with a circuit, by openFPGALoader. What was in the board is lost."""
    from amphw.rtl.build.flash import command, find
    from amphw.rtl.build.flash import flash as put

    bitstream, on = find(what, board)
    if dry_run:
        print(shlex.join(command(bitstream, on, keep)))
        return
    put(bitstream, on, keep)
    remarks().print(f"{bitstream} is in the board {on.name}")
