"""Options and arguments that several commands share, so that they mean and say the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="Name of a model; `amphw models` lists them.")
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="RUN.toml", help="Settings from a TOML file.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="One setting, such as epochs=5; may be repeated, and wins over the file.",
    ),
]
OnlySetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, such as hidden=64; may be repeated."),
]
"""`SetOption` of a command that reads no file."""
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="DEVICE", help="What runs it; `amphw devices` lists them.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout, for other programs.")
]
