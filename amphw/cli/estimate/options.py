"""The options of `amphw estimate`, by what they are about, and which of them do not go together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from amphw.cli.option_groups import written
from amphw.cli.options import ConfigOption, SetOption
from amphw.cli.output import remark
from amphw.library.estimating.proposal import INSTANCES
from amphw.library.estimating.said import Said, SaidError, default, option

NETWORK, EVENTS, SLEEP = METHODS = ("network", "events", "sleep")
DEFAULT = default(option)


@dataclass(frozen=True)
class Devices:
    """Devices: one of --flops, --lanes, --network and --like; else like cpu"""

    flops: Annotated[
        str | None, typer.Option("--flops", metavar="RATE", help="Of a device, such as 1TFLOPS.")
    ] = None
    utilisation: Annotated[
        float | None,
        typer.Option(
            "--utilisation", metavar="SHARE", help="With --flops: of that rate, what is put to use (1)."
        ),
    ] = None
    lanes: Annotated[
        int | None,
        typer.Option("--lanes", metavar="N", help="Of a device that is a circuit.", min=2),
    ] = None
    clock: Annotated[
        str | None,
        typer.Option(
            "--clock", metavar="RATE", help="Of circuits, such as 90MHz; else that of large ones on a board."
        ),
    ] = None
    formats: Annotated[
        str | None,
        typer.Option("--formats", metavar="FORMATS", help="Of circuits, as for `amphw rtl` (q4.12)."),
    ] = None
    listed: Annotated[
        Path | None,
        typer.Option("--network", metavar="FILE", help="Devices and links one by one, as TOML lists them."),
    ] = None
    like: Annotated[
        str | None,
        typer.Option(
            "--like", metavar="DEVICE", help="As fast as one that is here, which is timed; else cpu."
        ),
    ] = None
    devices: Annotated[
        int | None,
        typer.Option(
            "--devices", metavar="N", help="How many; else one for each node with parameters.", min=1
        ),
    ] = None
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="SIZE", help="Of a device, such as 8GB; else no limit.")
    ] = None

    def by_default(self, known: bool, timed: bool) -> bool:
        """Whether nothing says how fast devices are, so that they are like the cpu.

        known: a rate is known without them. timed: devices may be like one that is timed. Raises
        typer.BadParameter for options that say something twice, or too little.
        """
        try:
            alone = Said(**asdict(self)).by_default(option, known, timed)
        except SaidError as error:
            raise typer.BadParameter(str(error), param_hint=error.name) from None
        if not alone:
            return False
        remark(f"devices are taken to be like {DEFAULT}")
        return True


@dataclass(frozen=True)
class Links:
    """Links between devices; not for --method sleep"""

    link: Annotated[
        str | None,
        typer.Option(
            "--link", metavar="RATE", help="From a device to another, such as 10Gb/s; else no limit."
        ),
    ] = None
    latency: Annotated[
        str | None, typer.Option("--latency", metavar="TIME", help="Of a message, such as 1us; else none.")
    ] = None
    credits: Annotated[
        int | None,
        typer.Option(
            "--credits", metavar="N", help="Forward messages under way on a link; else any number.", min=1
        ),
    ] = None


@dataclass(frozen=True)
class Copies:
    """Instances and copies of nodes; not for --method sleep"""

    keys: Annotated[
        int | None,
        typer.Option("--keys", metavar="K", help="Instances in flight; else max_active_keys.", min=1),
    ] = None
    replicas: Annotated[
        int | None,
        typer.Option("--replicas", metavar="R", help="Of each node with parameters (1).", min=1),
    ] = None


@dataclass(frozen=True)
class Settings:
    """The model"""

    instances: Annotated[
        int, typer.Option("--instances", metavar="N", help="Training instances to count on.", min=1)
    ] = INSTANCES
    config: ConfigOption = None
    settings: SetOption = None


@dataclass(frozen=True)
class Method:
    """How it is estimated"""

    method: Annotated[
        str,
        typer.Option(
            "--method",
            metavar="NAME",
            help="network: calculate; events: play it through in simulated time, too; sleep: run, with "
            "layers that wait as long as the devices would take.",
        ),
    ] = NETWORK
    case: Annotated[
        str | None,
        typer.Option(
            "--case", metavar="NAME", help="Instead, a paper's own calculation, such as `paper` for ggnn."
        ),
    ] = None


@dataclass(frozen=True)
class Sleep:
    """For --method sleep"""

    epochs: Annotated[
        int | None, typer.Option("--epochs", metavar="E", help="Until the target (1).", min=1)
    ] = None
    seconds: Annotated[float | None, typer.Option("--seconds", help="Of each measurement (2).", min=0.01)] = (
        None
    )


@dataclass(frozen=True)
class Search:
    """Search for a network, instead of giving it: --target, --budget or both; or --grow"""

    target: Annotated[
        str | None,
        typer.Option("--target", metavar="RATE", help="Instances a second to reach, such as 20k/s."),
    ] = None
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="LIMITS",
            help="The most of it: devices=8,link=10Gb/s,memory=8GB,dsps=56, or some of them.",
        ),
    ] = None
    grow: Annotated[
        bool, typer.Option("--grow", help="How throughput grows with the devices, up to 1,000.")
    ] = False


@dataclass(frozen=True)
class Page:
    """More about a given network: not with a search, --case or --method sleep"""

    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a report, played through and compared."),
    ] = None
    compare: Annotated[
        bool,
        typer.Option("--compare", help="With what doubling one thing buys, and with other placements."),
    ] = False


_LINKS, _SLEEP, _PAGE = ("link", "latency", "credits"), ("epochs", "seconds"), ("html", "compare")
REFUSED = {
    "--method network": _SLEEP,
    "--method events": (*_SLEEP, "case", "ranks"),
    "--method sleep": (
        *(*_LINKS, "keys", "replicas", "lanes", "listed", "like"),
        *(*_PAGE, "target", "budget", "grow", "case", "ranks"),
    ),
    "--ranks": ("target", "budget", "grow", "case", *_PAGE),
    "--grow": ("target", "budget", "case", *_PAGE, "listed", "devices"),
    "--target": ("case", *_PAGE, "listed"),
    "--budget": ("case", *_PAGE, "listed"),
    "--case": (*_PAGE, "lanes", "listed", "like"),
}
"""Fields whose options have no meaning where this is asked for: they would seem to be in the result."""


def check(method: Method, search: Search, *others: object) -> None:
    """Raises typer.BadParameter for a method that there is none of, and for options that are `REFUSED`."""
    if method.method not in METHODS:
        raise typer.BadParameter(
            f"'{method.method}': expected one of {', '.join(METHODS)}", param_hint="--method"
        )
    options = {field: text.split()[0] for field, text in written(method, search, *others).items()}
    asked = {f"--method {method.method}", *options.values()}
    for what, refused in REFUSED.items():
        for other in (options[field] for field in refused if what in asked and field in options):
            raise typer.BadParameter(f"{other} is not for {what}", param_hint=other)
