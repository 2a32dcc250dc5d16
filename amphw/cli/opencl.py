"""`amphw opencl`: the OpenCL C that a model becomes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amphw.cli.options import ConfigOption, ModelArgument, SetOption
from amphw.cli.output import remark, remarks

if TYPE_CHECKING:
    from amphw.opencl.codegen.forms import Form
    from amphw.opencl.codegen.variants import Tune


def opencl(
    model: ModelArgument,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", help="Folder for the sources, one .cl file per unit."),
    ],
    config: ConfigOption = None,
    settings: SetOption = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="Whose kernels: `amphw devices` lists them. By default those of opencl:0, or, where there "
            "is no OpenCL device, as they would be on a CPU.",
        ),
    ] = None,
) -> None:
    """Write the programs that an OpenCL device runs for a model: one source file per unit of its graph."""
    name, _, argument = (device or "opencl").partition(":")
    if name != "opencl":
        raise typer.BadParameter(
            f"{device}: expected an OpenCL device, such as opencl:0", param_hint="--device"
        )
    from amphw.host.config import resolve
    from amphw.host.session import update_rules
    from amphw.models import get_model
    from amphw.opencl.dump import dump

    found = get_model(model)
    cfg = resolve(found.config, found.defaults, config, settings or ())
    graph = found.graph(cfg.model)
    form, tune, about = _forms(argument, must_exist=device is not None)
    written = dump(graph, update_rules(cfg, graph), out, form, tune, about)
    for path in written:
        print(path)
    remarks().print(f"wrote {len(written)} files for {about}")


def _forms(argument: str, must_exist: bool) -> tuple[Form, Tune, str]:
    """The forms of kernels of a device, and its name; of any CPU, where there is none and none must be."""
    from amphw.opencl.codegen.forms import CPU_FORM
    from amphw.opencl.codegen.variants import untuned
    from amphw.opencl.platform import platforms
    from amphw.opencl.tuning import Tuner

    try:
        (device, *_) = platforms.choose(argument)
        platforms.check_usable(device)
    except platforms.OpenCLError as error:
        if must_exist:
            raise
        remark(f"kernels for any CPU, in a form that nobody has measured: {error}")
        return CPU_FORM, untuned(CPU_FORM), "any CPU"
    base = platforms.default_form(device)
    return base, Tuner(device, base).forms, device.name
