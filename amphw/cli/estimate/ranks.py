"""`amphw estimate MODEL --ranks N`: several ranks that train together, in simulated time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from amphw.cli.option_groups import written
from amphw.cli.output import emit_json, results, table
from amphw.cli.running import opened
from amphw.page.numbers import number, percent, seconds, size

if TYPE_CHECKING:
    from amphw.estimate.outcome import Origin
    from amphw.host.config import RunConfig
    from amphw.replicas.rehearsal import Simulated


@dataclass(frozen=True)
class Ranks:
    """Ranks that train together, each on such a network (of one device); not with a search or a report"""

    ranks: Annotated[
        int | None, typer.Option("--ranks", metavar="N", help="How many, in simulated time.", min=1, max=256)
    ] = None
    strategy: Annotated[
        str | None,
        typer.Option("--strategy", metavar="NAME", help="As replicas.strategy, such as hybrid."),
    ] = None
    nic: Annotated[
        str | None,
        typer.Option(
            "--nic",
            metavar="RATE",
            help="Of a machine's network interface, each way, such as 100Gb/s or 100Gb/s+20us; else none.",
        ),
    ] = None
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="RATE", help="Of one rank alone, such as 100/s; else estimated."),
    ] = None
    handling: Annotated[
        str | None,
        typer.Option(
            "--handling",
            metavar="RATE",
            help="At which a machine packs and unpacks rows and what is served, such as 5GB/s.",
        ),
    ] = None

    carrier: Annotated[
        str | None,
        typer.Option(
            "--carrier",
            metavar="RATE",
            help="Bytes from other machines that a rank's processor takes, such as 400MB/s; else no limit.",
        ),
    ] = None
    measure: Annotated[
        str | None,
        typer.Option(
            "--measure",
            metavar="DEVICE",
            help="Train one rank here, on this device, and measure what exchanges take its processor.",
        ),
    ] = None
    beside: Annotated[
        Path | None,
        typer.Option(
            "--beside", metavar="FILE", help="What `amphw train --ranks N --json` printed, to compare with."
        ),
    ] = None

    @property
    def known(self) -> bool:
        """Whether it is said how fast a rank is, or will be measured."""
        return self.rate is not None or self.measure is not None

    def check(self, *others: object) -> None:
        """Raises typer.BadParameter for options that would seem to be in the result. others: what says how
        fast a rank is."""
        for each in fields(self):
            if self.ranks is None and getattr(self, each.name) is not None:
                raise typer.BadParameter(f"--{each.name} is for --ranks", param_hint=f"--{each.name}")
        for option in ("rate", "measure") if self.known else ():
            others_said = [text.split()[0] for text in written(*others).values()]
            others_said += ["--rate"] * (option == "measure" and self.rate is not None)
            if getattr(self, option) is not None and others_said:
                raise typer.BadParameter(
                    f"{others_said[0]} is not for --{option}, which says how fast a rank is",
                    param_hint=f"--{option}",
                )


@dataclass(frozen=True)
class Answer:
    """alone: instances a second of one rank. window: instances of a rank between two updates, or averages.
    measured: instances a second of ranks that trained, to compare with."""

    model: str
    counted: str
    ranks: int
    machines: int
    strategy: str
    window: int
    alone: float
    found: Simulated
    origin: dict[str, Origin]
    measured: float | None = None

    @property
    def efficiency(self) -> float:
        """Of what ranks would do that never met, the share that they do."""
        return self.found.instances_per_s / (self.ranks * self.alone)

    @property
    def error(self) -> float | None:
        """By how much it differs from what was measured, of that."""
        return None if self.measured is None else self.found.instances_per_s / self.measured - 1.0


def settings(asked: Ranks) -> list[str]:
    """That the options stand for, in the form of --set."""
    return [] if asked.strategy is None else [f"replicas.strategy={asked.strategy}"]


def answer(asked: Ranks, found: Any, cfg: RunConfig[Any], alone: Callable[[int], float]) -> Answer:
    """The ranks in simulated time. alone: instances a second of one rank, from how many are in flight.

    Raises ConfigError for what these ranks cannot be trained with, and AmphwError for an option's text."""

    from dataclasses import replace

    from amphw.cli.estimate.network import given
    from amphw.replicas.measured import played, work_of
    from amphw.replicas.rehearsal import Pace, check_played, rehearse
    from amphw.replicas.run import STRATEGIES, check_ranks, instances_between

    assert asked.ranks is not None
    cfg, mode = _in_step(cfg)
    check_ranks(asked.ranks, cfg, besides=("machine_ranks",))  # neighbours share an interface
    check_played(STRATEGIES[cfg.replicas.strategy](cfg))
    machines, origin = _machines(asked, cfg)
    beside = None if asked.beside is None else _trained(asked.beside, found.name, asked.ranks, cfg)
    work = work_of(found, cfg)
    in_step, window = STRATEGIES[cfg.replicas.strategy](cfg).in_step, work.window
    every = 0 if in_step else instances_between(cfg) or max(1, len(work.instances) // asked.ranks)
    if asked.measure is not None:
        device = asked.measure
        result, pace = played(found, cfg, lambda: opened(device), work, every, asked.ranks, machines)
    else:
        pace = Pace(1.0 / (given("--rate", asked.rate, "instances a second") or alone(window)))
        make, work = STRATEGIES[cfg.replicas.strategy], replace(work, pace=pace)
        result = rehearse(asked.ranks, lambda: make(cfg), work, every, wire=cfg.replicas.wire).on(machines)
    return Answer(
        found.name,
        found.counted,
        asked.ranks,
        len(set(machines.of)),
        cfg.replicas.strategy,
        every or window,
        1.0 / pace.seconds,
        result,
        {**_rate_origin(asked), **origin, "window": mode},
        beside,
    )


def _trained(path: Path, model: str, ranks: int, cfg: RunConfig[Any]) -> float:
    """Instances a second of a run, between the ends of its epochs. Raises AmphwError for another one."""
    import json

    from amphw.ir.errors import AmphwError

    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        ran = {"model": found["model"], "ranks": found["ranks"], "strategy": found["strategy"]}
        spent = sum(each for name, each in found["seconds"].items() if name != "gather")
        instances = sum(float(each["instances"]) for each in found["per_rank"])
        throughput = instances / found["exchanges"] / spent
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise AmphwError(
            f"--beside {path} is not what `amphw train MODEL --ranks N --json` prints: {error!r}"
        ) from None
    for what, here in {"model": model, "ranks": ranks, "strategy": cfg.replicas.strategy}.items():
        if ran[what] != here:
            raise AmphwError(f"--beside {path}: its {what} is {ran[what]}, and {here} is estimated")
    return throughput


def _in_step(cfg: RunConfig[Any]) -> tuple[RunConfig[Any], Origin]:
    """Windows are those of training; ranks in step have a pipeline where nodes would update on their own."""
    from dataclasses import replace

    from amphw.estimate.outcome import Origin
    from amphw.ir.config_fields import ConfigError
    from amphw.replicas.run import STRATEGIES, instances_between

    if not STRATEGIES[cfg.replicas.strategy](cfg).in_step:
        every, updates = cfg.replicas.every, cfg.replicas.every_updates
        if instances_between(cfg) is None:
            raise ConfigError(
                f"replicas.every_updates={updates} with train.mode=async: how many instances that takes is "
                "known once nodes have updated; write --set replicas.every=N, or --set train.mode=pipeline"
            )
        how = f"replicas.every={every}" if every else "a rank's share of an epoch"
        how = f"replicas.every_updates={updates}" if updates else how
        return cfg, Origin("stated", how)
    if cfg.train.mode == "async":
        depth = cfg.train.pipeline_depth
        how = f"train.mode=pipeline with pipeline_depth={depth}, as {cfg.replicas.strategy} goes in step"
        return replace(cfg, train=replace(cfg.train, mode="pipeline")), Origin("assumed", how)
    return cfg, Origin("stated", f"train.mode={cfg.train.mode}")


def _machines(asked: Ranks, cfg: RunConfig[Any]) -> tuple[Any, dict[str, Origin]]:
    from math import inf

    from amphw.cli.estimate.network import given
    from amphw.estimate.outcome import Origin
    from amphw.ir.device import LinkRate
    from amphw.ir.errors import AmphwError
    from amphw.replicas.simulated import Machines

    try:
        nic = None if asked.nic is None else LinkRate.parse(asked.nic)
    except AmphwError as error:
        raise AmphwError(f"--nic: {error}") from None
    handling = given("--handling", asked.handling, "bits a second")
    carrier = given("--carrier", asked.carrier, "bits a second")
    per_machine = cfg.replicas.machine_ranks
    of = [rank // per_machine for rank in range(asked.ranks or 0)]
    origin = {
        "machines": Origin("stated", f"replicas.machine_ranks={per_machine}"),
        "nic": _said("--nic", asked.nic),
        "handling": _said("--handling", asked.handling),
        "carrier": _said("--carrier", asked.carrier),
        "exchange": _exchange_origin(asked),
    }
    machines = Machines(
        of,
        nic.bits_per_s / 8 if nic else inf,
        nic.latency if nic else 0.0,
        handling=handling / 8 if handling else inf,
        carrying=[(0.0, 0.0), (carrier / 8, 1.0)] if carrier else (),
    )
    return machines, origin


def _said(option: str, text: str | None) -> Origin:
    from amphw.estimate.outcome import Origin

    return Origin("assumed", "no limit") if text is None else Origin("stated", f"{option} {text}")


def _rate_origin(asked: Ranks) -> dict[str, Origin]:
    from amphw.estimate.outcome import Origin

    if asked.rate is not None:
        return {"rate": Origin("stated", f"--rate {asked.rate}")}
    if asked.measure is not None:
        return {"rate": Origin("measured", f"one rank on {asked.measure} here, under the same strategy")}
    return {"rate": Origin("counted", "what the same command estimates without --ranks, with --devices 1")}


def _exchange_origin(asked: Ranks) -> Origin:
    """What packing, adding up and looking rows up take a processor."""
    from amphw.estimate.outcome import Origin

    if asked.measure is None:
        return Origin("assumed", "no time of a processor, but for --handling and --carrier")
    return Origin("measured", "the processor's time here, of the same messages")


def say(of: Answer, as_json: bool) -> None:
    """The answer, as tables or for other programs."""
    if as_json:
        emit_json(ranks_json(of))
        return
    out, found = results(), of.found
    out.print(
        f"{of.model}: {of.ranks} ranks on {of.machines} machine{'s' * (of.machines > 1)}, "
        f"strategy {of.strategy}, {of.window} instances of a rank between two exchanges"
    )
    out.print(
        f"\nThroughput: {number(found.instances_per_s)} instances/s, {percent(of.efficiency)} of {of.ranks} "
        f"times the {number(of.alone)} of one rank"
    )
    if of.measured is not None and of.error is not None:
        out.print(
            f"Trained: {number(of.measured)} instances/s; the estimate is {percent(abs(of.error))} "
            f"{'above' if of.error > 0 else 'below'} that"
        )
    out.print(f"\nOf one step, which takes {seconds(found.step)}, on average over ranks:")
    rows = table("", "seconds", "share", right=("seconds", "share"))
    for what, spent in found.seconds.items():
        rows.add_row(what, seconds(spent), percent(spent / found.step))
    out.print(rows)
    out.print(_bytes(found))
    out.print("\nHow numbers are known:")
    for name, each in of.origin.items():
        out.print(f"{name}: {each.origin}: {each.how}")


def _bytes(found: Simulated) -> Any:
    numbers: Sequence[str] = ("sent", "received", "rows touched")
    rows = table("parameter", *numbers, right=tuple(numbers))
    for name, each in sorted(found.bytes.items(), key=lambda pair: -pair[1]["sent"]):
        touched = percent(found.alpha[name]) if name in found.alpha else ""
        rows.add_row(name, size(each["sent"]), size(each["received"]), touched)
    return rows


def ranks_json(of: Answer) -> dict[str, Any]:
    """Version 1. throughput, alone: instances a second, of all ranks and of one alone. step_s, seconds,
    bytes: of one rank and one step, on average. efficiency: throughput over ranks times alone. measured: the
    throughput of `--beside`; error: throughput over that, less 1."""
    return {
        "version": 1,
        "model": of.model,
        "ranks": of.ranks,
        "machines": of.machines,
        "strategy": of.strategy,
        "window": of.window,
        "throughput": of.found.instances_per_s,
        "counted": of.counted,
        "alone": of.alone,
        "efficiency": of.efficiency,
        "step_s": of.found.step,
        "seconds": dict(of.found.seconds),
        "bytes": {name: dict(each) for name, each in of.found.bytes.items()},
        "alpha": dict(of.found.alpha),
        **({} if of.measured is None else {"measured": of.measured, "error": of.error}),
        "origin": {name: asdict(each) for name, each in of.origin.items()},
    }
