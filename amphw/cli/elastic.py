"""`amphw train --carrier ray` and `amphw join`: a job whose members come and go."""

from __future__ import annotations

import contextlib
import itertools
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from amphw.cli.errors import INTERRUPTED, complain
from amphw.cli.options import DeviceOption, OnlySetOption
from amphw.cli.output import remark
from amphw.host.records import INTERRUPT
from amphw.library.interrupt import stopping
from amphw.library.running import NO_SPARE, Outcome, spare_device

SPARE = "cpu"
"""Where members go on whose device is lost, unless another one is named."""
LEAVES = "leaving: the round is finished and what is owed is sent; Ctrl-C again to go without that"
"""What is said where a member is asked to."""

if TYPE_CHECKING:
    from amphw.cli.ranks import RankOptions
    from amphw.host.run_folder import RunFolder
    from amphw.replicas.elastic.job import Cluster


def train_elastic(
    model: Any,
    typed: str,
    cfg: Any,
    device: str,
    folder: RunFolder,
    as_json: bool,
    spare: str,
    about: RankOptions,
) -> None:
    """Train with members that Ray supervises, and say what came of it. typed: the model as it was named.

    folder: of the run, held by the caller; where there is a journal in it, the job goes on.
    """
    from amphw.cli.outcome import report_outcome
    from amphw.replicas.elastic.report import Follower, stopped

    follower = Follower(folder.path)
    follower.news()  # of a job that goes on
    had = follower.table.seconds
    try:
        with _cluster(about.ranks) as cluster:
            before = _run(cluster, follower, model, _absolute(typed), cfg, device, folder, spare, about)
    except BaseException:
        if not follower.table.begun:
            _abandon(folder)
        raise
    spent = {"training": follower.table.seconds - had}  # as epochs count it
    outcome = _outcome(follower, model, folder, device, spent)
    report_outcome(outcome, as_json)
    if outcome.interrupted:
        command = _resuming(typed, device, spare, about, folder)
        remark(f"{stopped(follower.table, before, command)}")
        raise typer.Exit(INTERRUPTED)


def _resuming(typed: str, device: str, spare: str, about: RankOptions, folder: RunFolder) -> str:
    """The command that goes on with the same members."""
    options = {"--ranks": str(about.ranks), "--device": device, "--resume": str(folder.path)}
    if spare != SPARE:
        options["--spare"] = spare
    if about.minimum > 1:
        options["--minimum"] = str(about.minimum)
    return shlex.join(["amphw", "train", typed, "--carrier", "ray", *itertools.chain(*options.items())])


def check_wanted(about: RankOptions) -> None:
    """Raise ConfigError for options of ranks that do not go with members that come and go."""
    from amphw.ir.config_fields import ConfigError
    from amphw.replicas.elastic.settings import check_installed

    if about.hosts is not None or about.restarts or about.fewer:
        raise ConfigError(
            "--hosts, --restarts and --fewer are for ranks that all end with one of them; with --carrier ray "
            "a member that is lost comes back by itself, and others join with amphw join: leave them out"
        )
    check_installed()


@contextlib.contextmanager
def _cluster(members: int, address: str = "") -> Iterator[Cluster]:
    from amphw.replicas.elastic.settings import authenticate, quieten

    quieten()
    authenticate(address)
    from amphw.replicas.elastic.job import Cluster

    cluster = Cluster(members, address)
    try:
        yield cluster
    finally:
        cluster.close()


def _run(
    cluster: Cluster,
    follower: Any,
    model: Any,
    typed: str,
    cfg: Any,
    device: str,
    folder: RunFolder,
    spare: str,
    about: RankOptions,
) -> Mapping[str, Any]:
    """-> what was saved when the user had it stop, or at the end."""
    from amphw.host.config_toml import to_toml
    from amphw.host.progress import Progress
    from amphw.host.run_folder import CONFIG, METRICS
    from amphw.host.watching import Watching
    from amphw.models import get_model
    from amphw.replicas.agree import identity
    from amphw.replicas.elastic.job import Watch, run, task_of
    from amphw.replicas.elastic.standing import live

    path = folder.path.absolute()
    train = cfg.train
    job = {
        "model": typed,
        "settings": to_toml(cfg),
        "folder": str(path),
        "epochs": train.epochs,
        "metric": model.metric,
        "target": train.target,
        "patience": train.patience,
        "minimum": about.minimum,
        "start": about.ranks,
        "identity": identity(model, cfg),  # so that no stranger who comes first says what the job is
    }
    board = cluster.coordinate(path)
    folder.write_text(CONFIG, to_toml(cfg))  # where another job is there, the folder stays as it was
    board.open(job)
    asked, saved = threading.Event(), follower.table.saved
    watched = Watching(path)
    with Progress(None, train.epochs, model.name, model.counted) as progress:

        def follow() -> None:
            said, records = follower.news()
            for text in said:
                progress.note(text)
            for record in records:
                progress.epoch(record)
            if records:
                folder.write_json(METRICS, follower.table.history)
            if watched.wanted() and (stats := live(follower.table)) is not None:
                watched.update(stats)

        def stop() -> None:
            nonlocal saved
            follow()
            saved = follower.table.saved
            board.stop(INTERRUPT)

        progress.note(f"others may join with: {cluster.invitation}")
        watch = Watch(board, progress.note)
        task = task_of(job, path, get_model)
        with stopping(asked.set, progress.note):
            for number, where in enumerate(cluster.spread(about.ranks)):
                watch.start(number, cluster.member(task, device, _spare(spare), where))
            try:
                run(watch, asked.is_set, stop, follow)
            finally:
                follow()
    return saved


def _outcome(follower: Any, model: Any, folder: RunFolder, device: str, spent: dict[str, float]) -> Outcome:
    from amphw.host.run_folder import METRICS, SUMMARY
    from amphw.ir.device import Findings
    from amphw.library.artifacts import write_artifacts
    from amphw.replicas.elastic.report import members, summary

    found = summary(follower.table, model, folder.path, device)
    folder.write_json(METRICS, found.history)
    folder.write_json(SUMMARY, found)
    written = write_artifacts(folder, found, None, Findings())
    return Outcome(folder, found, None, written, Findings(), spent, [], members=members(follower.table))


def _abandon(folder: RunFolder) -> None:
    """Where nothing was trained, the folder is as if nothing had been there."""
    import shutil

    if folder.new:
        shutil.rmtree(folder.file("members"), ignore_errors=True)
    folder.abandon()


def _spare(name: str) -> str:
    spare_device(name)  # a mistyped name is told at once
    return "" if name == NO_SPARE else name


def _absolute(typed: str) -> str:
    """A model in a file as processes elsewhere find it."""
    path, colon, name = typed.partition(":")
    return str(Path(path).absolute()) + colon + name if path.endswith(".py") else typed


def join(
    address: Annotated[
        str,
        typer.Argument(metavar="ADDRESS", help="HOST:PORT, as the job has printed it."),
    ],
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="Refuse a job that trains another model.")
    ] = None,
    settings: OnlySetOption = None,
    device: DeviceOption = "cpu",
    spare: Annotated[
        str, typer.Option("--spare", metavar="DEVICE", help="Where to go on if the device is lost; or none.")
    ] = SPARE,
) -> None:
    """Join a job of `amphw train --carrier ray` while it trains, as another member.

    The member gets everything from the job: model, settings, and the parameters of one that trains. Ctrl-C
    leaves the job in good order: what this member owes the others is sent first. The job's token is taken
    from RAY_AUTH_TOKEN; TOKEN@HOST:PORT is understood, too, but shows it to all users of this machine.
    """
    from amphw.models import get_model
    from amphw.replicas.elastic.settings import check_installed

    check_installed()
    with _cluster(1, address) as cluster:
        from amphw.replicas.elastic.job import JobError, Watch, run, task_of

        board = cluster.board()
        job = board.job()
        if model is not None and _absolute(model) != job["model"]:
            raise JobError(f"the job at {cluster.address} trains the model {job['model']}, and not {model}")
        job["settings"] = _changed(get_model(job["model"]), job["settings"], settings or [])
        number, asked = board.reserve(), threading.Event()
        remark(f"joining the job in {job['folder']} as member {number}")
        watch = Watch(board, complain)
        with stopping(asked.set, complain, LEAVES):
            task = task_of(job, Path(job["folder"]), get_model)
            watch.start(number, cluster.member(task, device, _spare(spare), cluster.here()))
            run(watch, asked.is_set, watch.stop, _says_that_it_trains(number, Path(job["folder"])))
    how = "has left the job" if asked.is_set() else "is done: the job is over"
    remark(f"member {number} {how}")


def _says_that_it_trains(number: int, folder: Path) -> Callable[[], None]:
    """What is called now and then, and tells the user once that the member trains."""
    from amphw.replicas.elastic.report import Follower
    from amphw.replicas.elastic.table import TRAINING

    follower, said = Follower(folder), False

    def look() -> None:
        nonlocal said
        if said:
            return
        follower.news()
        if said := any(seen.me.number == number for seen in follower.table.present(TRAINING)):
            remark(f"member {number} trains; Ctrl-C has it leave the job in good order")

    return look


def _changed(model: Any, settings: str, given: list[str]) -> str:
    """The job's settings with those of the command line, which the job refuses unless they are its own."""
    import tomllib

    from amphw.host.config import resolve
    from amphw.host.config_toml import to_toml

    return to_toml(resolve(model.config, tomllib.loads(settings), None, given))
