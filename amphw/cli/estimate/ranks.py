"""`amphw estimate MODEL --ranks N`: several ranks that train together, in simulated time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from amphw.cli.estimate.ranks_said import Answer
from amphw.cli.option_groups import written
from amphw.cli.output import remark
from amphw.library.running import opened

if TYPE_CHECKING:
    from amphw.estimate.outcome import Origin
    from amphw.host.config import RunConfig
    from amphw.replicas.rehearsal import Simulated
    from amphw.replicas.splits import Split


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

    best_split: Annotated[
        bool | None,
        typer.Option(
            "--best-split",
            help="For servers-async: try splits into ranks that train and ranks that serve.",
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
                option = f"--{each.name.replace('_', '-')}"
                raise typer.BadParameter(f"{option} is for --ranks", param_hint=option)
        for option in ("rate", "measure") if self.known else ():
            others_said = [text.split()[0] for text in written(*others).values()]
            others_said += ["--rate"] * (option == "measure" and self.rate is not None)
            if getattr(self, option) is not None and others_said:
                raise typer.BadParameter(
                    f"{others_said[0]} is not for --{option}, which says how fast a rank is",
                    param_hint=f"--{option}",
                )


def settings(asked: Ranks) -> list[str]:
    """That the options stand for, in the form of --set."""
    return [] if asked.strategy is None else [f"replicas.strategy={asked.strategy}"]


def answer(asked: Ranks, found: Any, cfg: RunConfig[Any], alone: Callable[[int], float]) -> Answer:
    """The ranks in simulated time. alone: instances a second of one rank, from how many are in flight.

    Raises ConfigError for what these ranks cannot be trained with, and AmphwError for an option's text."""

    from dataclasses import replace

    from amphw.library.estimating.network import given
    from amphw.replicas.measured import played, work_of
    from amphw.replicas.rehearsal import Pace, rehearse
    from amphw.replicas.run import STRATEGIES, check_ranks, instances_between

    assert asked.ranks is not None
    cfg, mode = _in_step(cfg)
    check_ranks(asked.ranks, cfg, besides=("machine_ranks",))  # neighbours share an interface
    _check_pace(asked, cfg)
    machines, origin = _machines(asked, cfg)
    beside = None if asked.beside is None else _trained(asked.beside, found.name, asked.ranks, cfg)
    work = work_of(found, cfg)
    one, window = STRATEGIES[cfg.replicas.strategy](cfg), work.window
    splits: list[Split] = []
    usual = one.usual_every(window) if one.own_pace else max(1, len(work.instances) // asked.ranks)
    every = 0 if one.in_step else instances_between(cfg) or usual
    if asked.measure is not None:
        device = asked.measure
        result, pace = played(found, cfg, lambda: opened(device, remark), work, every, asked.ranks, machines)
    else:
        pace = Pace(1.0 / (given("--rate", asked.rate, "instances a second") or alone(window)))
        make, work = STRATEGIES[cfg.replicas.strategy], replace(work, pace=pace)
        if one.own_pace:
            result, splits = _at_own_pace(asked, cfg, work, machines, every)
        else:
            found_acts = rehearse(asked.ranks, lambda: make(cfg), work, every, wire=cfg.replicas.wire)
            result = found_acts.on(machines)
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
        splits,
    )


def _check_pace(asked: Ranks, cfg: RunConfig[Any]) -> None:
    """Raises ConfigError for options that do not suit how ranks of this strategy go."""
    from amphw.ir.config_fields import ConfigError
    from amphw.replicas.run import STRATEGIES

    strategy = STRATEGIES[cfg.replicas.strategy](cfg)
    if strategy.own_pace and asked.measure is not None:
        raise ConfigError(
            f"--measure {asked.measure} counts what exchanges take between windows, and ranks of "
            f"replicas.strategy={strategy.name} exchange when they like; say how fast one is with --rate"
        )
    if asked.best_split and strategy.name != "servers-async":
        raise ConfigError(
            f"--best-split chooses how many ranks serve, and ranks of replicas.strategy={strategy.name} are "
            "not at their own pace, or have no servers; write --strategy servers-async, or leave it out"
        )


def _at_own_pace(
    asked: Ranks, cfg: RunConfig[Any], work: Any, machines: Any, every: int
) -> tuple[Simulated, list[Split]]:
    """As they are asked for, or with the best split, and what was tried for that."""
    from amphw.host.modes import training_mode
    from amphw.replicas.at_own_pace import play_at_own_pace
    from amphw.replicas.run import STRATEGIES
    from amphw.replicas.splits import best_split, with_servers

    ranks, barrier = asked.ranks, training_mode(cfg.train).barrier
    assert ranks is not None

    def simulated(cfg: RunConfig[Any]) -> Simulated:
        make = STRATEGIES[cfg.replicas.strategy]
        return play_at_own_pace(ranks, lambda: make(cfg), work, machines, every, barrier, cfg.replicas.wire)

    if not asked.best_split:
        return simulated(cfg), []
    found = best_split(ranks, lambda servers: simulated(with_servers(cfg, servers)))
    return found.found, found.tried


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

    strategy = STRATEGIES[cfg.replicas.strategy](cfg)
    if not strategy.in_step:
        own_pace = strategy.own_pace
        every, updates = cfg.replicas.every, cfg.replicas.every_updates
        if instances_between(cfg) is None:
            raise ConfigError(
                f"replicas.every_updates={updates} with train.mode=async: how many instances that takes is "
                "known once nodes have updated; write --set replicas.every=N, or --set train.mode=pipeline"
            )
        usual = "as many as are in flight, or group's 50" if own_pace else "a rank's share of an epoch"
        how = f"replicas.every={every}" if every else usual
        how = f"replicas.every_updates={updates}" if updates else how
        return cfg, Origin("stated", how)
    if cfg.train.mode == "async":
        depth = cfg.train.pipeline_depth
        how = f"train.mode=pipeline with pipeline_depth={depth}, as {cfg.replicas.strategy} goes in step"
        return replace(cfg, train=replace(cfg.train, mode="pipeline")), Origin("assumed", how)
    return cfg, Origin("stated", f"train.mode={cfg.train.mode}")


def _machines(asked: Ranks, cfg: RunConfig[Any]) -> tuple[Any, dict[str, Origin]]:
    from math import inf

    from amphw.estimate.outcome import Origin
    from amphw.ir.device import LinkRate
    from amphw.ir.errors import AmphwError
    from amphw.library.estimating.network import given
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
