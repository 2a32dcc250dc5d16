"""The program `amphw`: what commands there are, and in which order the help lists them.

Each command lives in a file of its own and imports what it runs inside its function, so that `amphw --help`
and a mistyped option are answered at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

import amphw
from amphw.cli.bench import bench
from amphw.cli.check import check
from amphw.cli.codesign import codesign
from amphw.cli.compare import compare
from amphw.cli.demo import demo
from amphw.cli.devices import devices
from amphw.cli.elastic import join
from amphw.cli.errors import ReportingGroup
from amphw.cli.estimate.command import estimate
from amphw.cli.flash import flash
from amphw.cli.graph import graph
from amphw.cli.members import ledger, ranks
from amphw.cli.models import models
from amphw.cli.opencl import opencl
from amphw.cli.option_groups import GroupedCommand
from amphw.cli.place import place
from amphw.cli.predict import predict
from amphw.cli.replay import replay
from amphw.cli.rtl import rtl
from amphw.cli.train import train
from amphw.cli.watch import watch

app = typer.Typer(
    name="amphw",
    cls=ReportingGroup,
    help="Asynchronous model-parallel training of dynamic neural networks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a traceback of an unexpected error is for a bug report: plain text
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    train,
    watch,
    compare,
    join,
    ranks,
    ledger,
    predict,
    replay,
    demo,
    graph,
    estimate,
    place,
    opencl,
    rtl,
    codesign,
    flash,
    models,
    devices,
    check,
    bench,
):
    app.command(cls=GroupedCommand)(command)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"amphw {amphw.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Asynchronous model-parallel training of dynamic neural networks."""
