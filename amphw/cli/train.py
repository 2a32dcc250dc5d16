"""`amphw train`: one run, or the same run with several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from amphw.cli.blas import pin_blas
from amphw.cli.errors import INTERRUPTED
from amphw.cli.models import show_settings
from amphw.cli.option_groups import grouped
from amphw.cli.options import ConfigOption, DeviceOption, JsonOption, ModelArgument, SetOption
from amphw.cli.outcome import report_outcome
from amphw.cli.output import remark
from amphw.cli.ranks import Carrier, Place, RankOptions, following, launched, leading, told
from amphw.library.estimating.proposal import searched

if TYPE_CHECKING:
    from amphw.host.log_file import LogWriter
    from amphw.replicas.transport import Transport


@grouped
def train(
    model: ModelArgument,
    about_ranks: RankOptions,
    config: ConfigOption = None,
    settings: SetOption = None,
    device: DeviceOption = "cpu",
    seeds: Annotated[
        int,
        typer.Option("--seeds", min=1, max=1000, help="Run this many seeds and report median and spread."),
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder of the run; without it, runs/MODEL-TIME."),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="DIR", help="Go on with the run in this folder, with its settings."),
    ] = None,
    spare: Annotated[
        str,
        typer.Option(
            "--spare", metavar="DEVICE", help="Where to go on if the device is lost; none: save and stop."
        ),
    ] = "cpu",
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="On fixed, verilator and board: refuse weights outside of their format; --set strict=true.",
        ),
    ] = False,
    log: Annotated[
        bool,
        typer.Option("--log", help="Keep the order of what the device did, for `amphw replay`."),
    ] = False,
    track: Annotated[
        list[str] | None,
        typer.Option(
            "--track",
            metavar="NAME",
            help="Tell a tracker of the run: tensorboard, wandb, trackio; repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
    help_config: Annotated[
        bool, typer.Option("--help-config", help="List every setting of the model and exit.")
    ] = False,
) -> None:
    """Train a model. Ctrl-C once finishes what is in flight, saves and stops; twice aborts."""
    from amphw.models import get_model

    found = get_model(model)
    if help_config:
        show_settings(found, as_json)
        return
    if resume is not None and (out is not None or config is not None or seeds > 1):
        raise typer.BadParameter(
            "goes on in the same folder with the settings saved there; it cannot be combined with --out, "
            "--config or --seeds (--set is allowed, for example --set epochs=40)",
            param_hint="--resume",
        )
    if log and (resume is not None or seeds > 1):
        raise typer.BadParameter("is for one run, from its beginning", param_hint="--log")
    if about_ranks.restarts and (seeds > 1 or log):
        raise typer.BadParameter("goes on with one run; leave --seeds and --log out", param_hint="--restarts")
    if strict:
        settings = [*(settings or ()), "device.strict=true"]
    if track and (seeds > 1 or about_ranks.carrier is Carrier.RAY):
        raise typer.BadParameter(
            "is for one run, of one process or of ranks that MPI starts; leave it out", param_hint="--track"
        )
    pin_blas()
    if about_ranks.carrier is Carrier.RAY:
        if seeds > 1 or log:
            raise typer.BadParameter("is one run; leave --seeds and --log out", param_hint="--carrier ray")
        _train_elastic(
            found, model, config, settings, device, out, resume, as_json, spare, about_ranks
        )  # fmt: skip
        return
    with launched(about_ranks, Place(out, resume, config), found.name) as (count, transport):
        place = told(Place(out, resume, config))
        out, resume, config = place.out, place.resume, place.config
        if count > 1 and seeds > 1:
            raise typer.BadParameter("is for one run; leave --seeds out", param_hint="--ranks")
        if count > 1 and log:
            raise typer.BadParameter("keeps the order of one device; leave --ranks out", param_hint="--log")
        if seeds > 1:
            from amphw.cli.seeds import train_seeds

            cfg = searched(found, _resolve(found, config, settings, device), device, remark)
            train_seeds(found, cfg, device, seeds, out, as_json, spare)
            return
        if transport is not None and transport.rank > 0:
            _follow(found, config, settings, device, resume, transport)
            return
        about = Ranks(count, transport, track or ())
        _train_one(found, model, config, settings, device, out, resume, as_json, spare, log, about)


def _train_elastic(
    model: Any,
    typed: str,
    config: Path | None,
    settings: list[str] | None,
    device: str,
    out: Path | None,
    resume: Path | None,
    as_json: bool,
    spare: str,
    about: RankOptions,
) -> None:
    """Train with members that come and go, in a new run's folder or in that of one that goes on."""
    from amphw.cli.elastic import check_wanted, train_elastic
    from amphw.host.config_toml import to_toml
    from amphw.host.run_folder import RunFolder
    from amphw.library.running import ready
    from amphw.replicas.elastic.settings import check_elastic, check_goes_on

    check_wanted(about)
    had = RunFolder.open(resume).single() if resume is not None else None
    cfg = searched(model, _resolve(model, config, settings, device, saved=had), device, remark)
    check_elastic(about.ranks, cfg)
    if had is not None:
        check_goes_on(had.path)
    ready(model, cfg, device, remark).device.close()  # what stands in the way is said once, here
    with (had or RunFolder.create(out, model.name, to_toml(cfg))).held() as folder:
        train_elastic(model, typed, cfg, device, folder, as_json, spare, about)


@dataclass(frozen=True)
class Ranks:
    """How many ranks train; transport: to those that a launcher has started. track: who is told of the run,
    by name."""

    count: int
    transport: Transport | None
    track: Sequence[str] = ()

    def leading(self, model: Any, cfg: Any, device: str, resume: Path | None) -> Any:
        return leading(self.count, self.transport, model, cfg, device, resume)


def _follow(
    model: Any,
    config: Path | None,
    settings: list[str] | None,
    device: str,
    resume: Path | None,
    transport: Transport,
) -> None:
    """Be another rank than the first: with the same settings, and from the same checkpoint."""
    from amphw.host.run_folder import RunFolder
    from amphw.library.resuming import how_far, on_these_devices
    from amphw.library.running import ready

    saved = None
    if resume is not None:
        folder = RunFolder.open(resume).single()
        _, saved = how_far(folder, model.name, remark)
        cfg = _resolve(model, None, settings, device, saved=folder)
        cfg = searched(model, on_these_devices(cfg, device, folder, remark), device, remark)
    else:
        cfg = searched(model, _resolve(model, config, settings, device), device, remark)
    runner = ready(model, cfg, device, remark, resumed=saved is not None)
    following(transport, model, cfg, runner.device, saved)


def _train_one(
    model: Any,
    typed: str,
    config: Path | None,
    settings: list[str] | None,
    device: str,
    out: Path | None,
    resume: Path | None,
    as_json: bool,
    spare: str,
    log: bool,
    ranks: Ranks,
) -> None:
    """typed: the model as it was named, which may be a file. log: whether the run keeps one."""
    from amphw.host.config_toml import to_toml
    from amphw.host.run_folder import RunFolder
    from amphw.library.resuming import how_far, on_these_devices
    from amphw.library.running import Watched, ready, run_once, spare_device
    from amphw.library.tracking import trackers

    other, watched = spare_device(spare), Watched(trackers=trackers(ranks.track))
    if resume is not None:
        with RunFolder.open(resume).single().held() as folder:
            had, saved = how_far(folder, model.name, remark)
            cfg = _resolve(model, None, settings, device, saved=folder)
            cfg = searched(model, on_these_devices(cfg, device, folder, remark), device, remark)
            runner = ready(model, cfg, device, remark, resumed=saved is not None)
            joined = ranks.leading(model, cfg, device, saved)
            about: dict[str, Any] = {"ranks": joined, "watched": watched}
            outcome = run_once(model, cfg, runner, folder, model.name, saved, other, **about)
    else:
        had = None
        cfg = searched(model, _resolve(model, config, settings, device), device, remark)
        runner = ready(model, cfg, device, remark)
        joined = ranks.leading(model, cfg, device, None)
        with RunFolder.create(out, model.name, to_toml(cfg)).held() as folder:
            with _writer(folder, typed, device) if log else nullcontext() as writer:
                about = {"log": writer, "ranks": joined, "watched": watched}
                outcome = run_once(model, cfg, runner, folder, model.name, None, other, **about)
    report_outcome(outcome, as_json)
    if outcome.summary.epochs == had and not outcome.interrupted:
        remark(
            f"nothing was left to train: the run has its {had} epochs, stopped by "
            f"{outcome.summary.stopped_by}; for more: --set epochs={had + 1} or above, --set target=none"
        )
    if outcome.interrupted:
        if cfg.train.checkpoint_every:
            command = f"amphw train {typed} --device {device} --resume {folder.path}"
            remark(f"stopped and saved; go on with: {command}")
        else:
            remark("stopped; nothing to go on from was saved (train.checkpoint_every is 0)")
        raise typer.Exit(INTERRUPTED)


def _writer(folder: Any, model: str, device: str) -> LogWriter:
    from amphw.host.log_file import LOG, LogWriter

    return LogWriter(folder.file(LOG), model, device)


def _resolve(
    model: Any, config: Path | None, settings: list[str] | None, device: str, saved: Any = None
) -> Any:
    from amphw.host.config import resolve
    from amphw.host.devices import make_device
    from amphw.library.resuming import saved_settings

    if saved is None:
        defaults = model.recommended(make_device(device).capabilities())
    else:
        defaults = saved_settings(saved)
    return resolve(model.config, defaults, config, settings or ())
