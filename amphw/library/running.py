"""One run, from a resolved configuration to the files that it leaves: what all that train have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from amphw.host.records import INTERRUPT
from amphw.host.spent import Spent
from amphw.library.artifacts import write_artifacts
from amphw.library.interrupt import stopping
from amphw.library.large_settings import naming_large_settings

if TYPE_CHECKING:
    from amphw.host.config import RunConfig
    from amphw.host.log_file import LogWriter
    from amphw.host.progress import Progress
    from amphw.host.records import EpochRecord, RunSummary
    from amphw.host.run_folder import RunFolder
    from amphw.host.trace import Trace
    from amphw.ir.device import Device, Findings
    from amphw.library.tracking import Tracked, Tracker
    from amphw.replicas.replica import Replica, Synchronised


class Told(Protocol):
    """What is told of each epoch. stop: asks the run to stop."""

    def __call__(self, record: EpochRecord, /, *, stop: Callable[[], None]) -> None: ...


@dataclass(frozen=True)
class Watched:
    """Who sees a run go on. show: where its progress is drawn, else on stderr. told: of each epoch. report:
    whether it leaves a report, plots and a trace when it has ended."""

    show: Progress | None = None
    told: Told | None = None
    trackers: Sequence[Tracker] = ()
    report: bool = True


NO_SPARE = "none"
"""In the place of a spare device: a run whose device is lost saves its state and stops."""


@dataclass
class Outcome:
    """A finished run. written: paths by kind (report, gantt, ...).

    findings: what the device has to say beyond its statistics. spent: seconds by what they went into.
    changed: settings that are not those recommended for the device. synchronised: what keeping several ranks
    together took. members: those of a run whose members come and go (`elastic.report.members`).
    """

    folder: RunFolder
    summary: RunSummary
    trace: Trace | None
    written: dict[str, Path]
    findings: Findings
    spent: dict[str, float]
    changed: list[str]
    synchronised: Synchronised | None = None
    members: list[dict[str, Any]] | None = None

    @property
    def interrupted(self) -> bool:
        return self.summary.stopped_by == INTERRUPT


@dataclass(frozen=True)
class Ready:
    """A run that nothing stands in the way of: its device, and the time that it took to find that out."""

    device: Device
    spent: Spent


def ready(
    model: Any, cfg: RunConfig[Any], device: str, tell: Callable[[str], None], resumed: bool = False
) -> Ready:
    """Find out what stands in the way of a run before its folder exists, and make its device.

    A mistyped node, a data set that cannot be had, an unknown device or one that cannot run the model leaves
    no empty run behind. tell: takes a sentence that its user should know.
    """
    from amphw.host.session import graph_of, update_rules
    from amphw.ir.config_fields import ConfigError
    from amphw.ir.device import ChecksAhead

    spent = Spent()
    if not model.validates and (cfg.train.target is not None or cfg.train.patience):
        raise ConfigError(
            "train.target and train.patience are about validation, and there is nothing to validate on"
        )
    made = opened(device, tell)
    with naming_large_settings(model, cfg):
        with spent.on("model"):
            graph = graph_of(model, cfg)
            rules = update_rules(cfg, graph)
        if isinstance(made, ChecksAhead):
            with spent.on("device"):
                made.check(graph, rules)
        with spent.on("data"):
            model.prepare(cfg.model, cfg.train.seed)
            if not resumed:
                model.initial(cfg.model)  # which may read a file
    return Ready(made, spent)


def opened(device: str, tell: Callable[[str], None]) -> Device:
    """The device that was asked for, or what the environment puts in its place, which is then told."""
    from amphw.engine.environment import ENGINE
    from amphw.host.devices import make_device, stands_for

    made = make_device(device)
    if (other := stands_for(device)) != device:
        tell(f"{ENGINE}={other}: the device {other!r} runs in place of {device!r}")
    return made


def opened_checkpoint(path: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """The header of a checkpoint; that it could not be checked is then told. Raises CheckpointError."""
    from amphw.host.checkpoint import load_checkpoint, unchecked

    _, header = load_checkpoint(path, None)
    if note := unchecked(path, header):
        tell(note)
    return header


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """While inside, BLAS has one thread, as frames are what runs in parallel; a program's own products have
    theirs back afterwards."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(limits=1):
        yield


def spare_device(name: str) -> Callable[[], Device] | None:
    """What makes the device that a run goes on on if its own is lost; a mistyped name is told at once."""
    from amphw.host.devices import make_device

    if name == NO_SPARE:
        return None
    made = make_device(name)  # it takes hold of nothing before it is loaded
    return lambda: made


def run_once(
    model: Any,
    cfg: RunConfig[Any],
    runner: Ready,
    folder: RunFolder,
    label: str,
    resume: Path | None = None,
    spare: Callable[[], Device] | None = None,
    log: LogWriter | None = None,
    ranks: AbstractContextManager[Replica | None] | None = None,
    watched: Watched | None = None,
) -> Outcome:
    """Train once, with Ctrl-C in two steps; closes the device.

    spare, log: as `Trainer` takes them. ranks: what makes this run one rank of several while it lasts.
    """
    from amphw.host.controller import Trainer
    from amphw.host.progress import Progress
    from amphw.host.trace import Trace
    from amphw.ir.device import Findings, Investigates
    from amphw.library.tracking import Tracked

    device, watched = runner.device, watched or Watched()
    trace = Trace() if cfg.train.trace else None
    began = False
    try:
        with watched.show or Progress(None, cfg.train.epochs, label, model.counted) as progress:
            tracked = Tracked(watched.trackers, progress.warn)
            with ranks or nullcontext() as replica:
                about: dict[str, Any] = {"spent": runner.spent, "log": log, "replication": replica}
                trainer = Trainer(model, cfg, device, folder, progress, trace, spare, **about)
                trainer.told = partial(_told, tracked, watched.told, trainer.stop)
                try:
                    with (
                        stopping(trainer.stop, progress.note),
                        naming_large_settings(model, cfg),
                        tracked.following(model.name, cfg, folder) as ended,
                    ):
                        summary = trainer.run(resume=resume)
                        ended(summary)
                finally:
                    began = trainer.began
                training = trainer.spent.seconds.get("training", 0.0)
                together = replica.synchronised(training) if replica is not None else None
            if watched.report:
                progress.note(_writing(trace))
    except BaseException:
        if not began:
            folder.abandon()
        raise
    finally:
        device.close()
    found = device.findings() if isinstance(device, Investigates) else Findings()
    with trainer.spent.on("report"):
        changed = _changed(model, cfg, device)
        from amphw.library.walk import walkthrough

        walk = partial(walkthrough, log.recent, trainer.session.graph, device) if log is not None else None
        written: dict[str, Path] = {}
        if watched.report:
            written = write_artifacts(
                folder, summary, trace, found, changed, together, walk, trainer.session.graph
            )
    return Outcome(folder, summary, trace, written, found, trainer.spent.seconds, changed, together)


def _writing(trace: Trace | None) -> str:
    """What takes some seconds now."""
    traced = f", the trace of {len(trace):,} slices" if trace is not None and len(trace) else ""
    return f"writing the report{traced} and the plots"


def _told(tracked: Tracked, told: Told | None, stop: Callable[[], None], record: EpochRecord) -> None:
    tracked.epoch(record)
    if told is not None:
        told(record, stop=stop)


def _changed(model: Any, cfg: RunConfig[Any], device: Device) -> list[str]:
    """Names of the settings that are not those recommended for the device, such as train.epochs."""
    from amphw.host.config import resolve
    from amphw.library.tracking import settings_of

    usual = resolve(model.config, model.recommended(device.capabilities()), None, ())
    chosen, recommended = settings_of(cfg), settings_of(usual)
    return [name for name, value in chosen.items() if recommended.get(name) != value]
