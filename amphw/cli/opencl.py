"""`amphw opencl`: the OpenCL C that a model becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from amphw.cli.options import ConfigOption, ModelArgument, SetOption
from amphw.cli.output import remarks


def opencl(
    model: ModelArgument,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", help="Folder for the sources, one .cl file per unit."),
    ],
    config: ConfigOption = None,
    settings: SetOption = None,
    device: Annotated[
        str, typer.Option("--device", metavar="DEVICE", help="Whose kernels: `amphw devices` lists them.")
    ] = "opencl",
) -> None:
    """Write the kernels that an OpenCL device runs for a model: one source file per unit of its graph."""
    name, _, argument = device.partition(":")
    if name != "opencl":
        raise typer.BadParameter(
            f"{device}: expected an OpenCL device, such as opencl:0", param_hint="--device"
        )
    from amphw.host.config import resolve
    from amphw.models import get_model
    from amphw.opencl import platforms
    from amphw.opencl.dump import dump

    found = get_model(model)
    cfg = resolve(found.config, found.defaults, config, settings or ())
    chosen = platforms.choose(argument)
    form = platforms.default_form(chosen[0])
    written = dump(found.graph(cfg.model), out, form)
    for path in written:
        print(path)
    remarks().print(f"wrote {len(written)} files for {chosen[0]}")
