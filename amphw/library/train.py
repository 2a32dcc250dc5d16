"""`amphw.train`: from a function and instances to a `Run`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amphw.data.cache import DataError
from amphw.frontend import Spec
from amphw.host.config import RunConfig, resolve
from amphw.host.config_toml import to_toml
from amphw.host.devices import make_device
from amphw.host.progress import Progress
from amphw.host.records import EpochRecord
from amphw.host.run_folder import MODEL, RunFolder
from amphw.ir.config_fields import ConfigError
from amphw.library.data import Data
from amphw.library.function_model import FunctionModel
from amphw.library.notebook import NotebookProgress, Silent, shows
from amphw.library.resuming import how_far, on_these_devices, saved_settings
from amphw.library.run import Run
from amphw.library.running import Watched, one_blas_thread, ready, run_once, spare_device
from amphw.library.saving import Scratch, written_model
from amphw.library.tracking import TensorBoard, Tracker, TrackerError, trackers
from amphw.models import Model, get_model

SHARE = 0.1
"""Of the data, to validate on."""


@dataclass(frozen=True)
class Epoch:
    """What a callback is told: an epoch has ended. stop: asks the run to stop, as Ctrl-C does."""

    record: EpochRecord
    stop: Callable[[], None]


Callback = Callable[[Epoch], object]
"""Is called after every epoch, when its checkpoint is written. What it raises ends the run."""


def train(
    model: Any,
    data: Data | None = None,
    *,
    spec: Spec | None = None,
    valid: float | Data | None = SHARE,
    device: str = "cpu",
    seed: int | None = None,
    callbacks: Callback | Iterable[Callback] = (),
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    report: bool = True,
    track: str | Tracker | Iterable[str | Tracker] = (),
    **settings: Any,
) -> Run:
    """Train a model. An interrupt (Ctrl-C) ends training in good order; the run is what it was by then.

    model: a function of the model language, what `fe.compile` made of one, the name of a model that amphw
    has, a file with one (`mine.py`), or a `Model`. data: instances of a function's `spec`, plain Python and
    numpy: a list, a data set, a data frame, a dict of columns, a generator, or a function that makes one; a
    stream needs `train_instances`, how many are an epoch. valid: a share of the data to validate on,
    instances for it, or None. device: as `--device` takes it (`amphw devices` lists them). seed: of initial
    parameters and the order of data (masks of dropout hang on an instance's number in the run); 0, or that of
    the run that goes on. callbacks: are told of
    every epoch. out: the run's folder; without it, one that goes with the `Run`. resume: go on with the run
    in `out`, whose settings hold; the data have to be the same. progress: whether it is shown. report:
    whether a report and its plots are written at the end, which takes seconds; `trace=False` leaves out the
    trace alone. track: who is told of the run, by name (tensorboard, wandb, trackio) or of your own.

    settings: those of `amphw train MODEL --help-config`, by their names: `epochs=5, lr=0.01`; in full where a
    name is not unique, `**{"update.nodes.head.lr": 0.001}`, or as tables, `update={"lr": 0.01}`.

    Raises ConfigError for settings, DataError and InstanceError for data, FrontendError for a function that
    cannot work, DivergedError where the loss becomes infinite, and what devices raise.
    """
    told_of, tracked = _each(callbacks), trackers(track)
    made = model_of(model, data, spec)
    scratch = Scratch() if out is None else None
    place = scratch.path if scratch is not None else Path(out).expanduser()  # type: ignore[arg-type]
    if scratch is not None and any(isinstance(each, TensorBoard) for each in tracked):
        raise TrackerError("TensorBoard reads a run's folder, and this one's is temporary; name one: out=...")
    had = _resumed(place, scratch is not None) if resume else None
    cfg = config_of(made, device, seed, settings, had)
    if isinstance(made, FunctionModel):
        assert data is not None
        made.give(data, valid, cfg)
    saved = how_far(had, made.name, warnings.warn)[1] if had is not None else None
    about = written_model(made)
    runner = ready(made, cfg, device, warnings.warn, resumed=saved is not None)
    found = had or RunFolder.create(place, made.name, to_toml(cfg))

    def told(record: EpochRecord, /, *, stop: Callable[[], None]) -> None:
        for callback in told_of:
            callback(Epoch(record, stop))

    with found.held() as folder, one_blas_thread():
        if about and had is None:
            folder.write_text(MODEL, about)
        watched = Watched(_progress(made, cfg, progress), told, tracked, report)
        run_once(made, cfg, runner, folder, made.name, saved, spare_device("cpu"), watched=watched)
    return Run(made, cfg, folder, device, scratch=scratch)


def _each(callbacks: Callback | Iterable[Callback]) -> list[Callback]:
    """One, or several. Raises ConfigError for what cannot be called."""
    given = [callbacks] if callable(callbacks) else list(callbacks)
    for each in given:
        if not callable(each):
            raise ConfigError(f"a callback is called with what is known of an epoch; got {each!r}")
    return given


def model_of(model: Any, data: Any, spec: Spec | None) -> Model[Any]:
    """The model that is meant, which a function's data are yet to be given to. Raises as `train` does."""
    if isinstance(model, str | Model):
        found = get_model(model) if isinstance(model, str) else model
        if data is not None or spec is not None:
            raise DataError(f"the model {found.name} has data of its own; leave data and spec= out")
        return found
    if data is None:
        raise DataError("what is it trained on? Give instances: amphw.train(function, instances, spec=...)")
    return FunctionModel.of(model, spec)


def config_of(
    model: Model[Any],
    device: str,
    seed: int | None,
    settings: dict[str, Any],
    had: RunFolder | None = None,
) -> RunConfig[Any]:
    """The settings of a run. had: the run that goes on. Raises ConfigError."""
    given = settings if seed is None else {"train.seed": seed, **settings}
    usual = saved_settings(had) if had is not None else model.recommended(make_device(device).capabilities())
    cfg = resolve(model.config, usual, given=given)
    if had is not None:
        cfg = on_these_devices(cfg, device, had, warnings.warn)
    if not cfg.train.checkpoint_every:
        raise ConfigError(
            "checkpoint_every is 0, and a Run has its parameters from checkpoints; leave it out"
        )
    return cfg


def _resumed(place: Path, scratch: bool) -> RunFolder:
    if scratch:
        raise ConfigError("resume goes on with the run in a folder; name it: out=...")
    return RunFolder.open(place).single()


def _progress(model: Model[Any], cfg: RunConfig[Any], wanted: bool) -> Progress:
    """On stderr, in the output of a notebook's cell, or nowhere."""
    about = cfg.train.epochs, model.name, model.counted
    if not wanted:
        return Silent(*about)
    shown = shows()
    return NotebookProgress(shown, *about) if shown is not None else Progress(None, *about)
