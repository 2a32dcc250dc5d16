"""Trackers: what shows the course of many runs side by side, such as TensorBoard.

Nothing is told to any of them unless it is asked for by name. A package of its own adds one with an entry
point of the group `amphw.trackers`, which names a function that takes nothing and makes a `Tracker`.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Protocol

from amphw.host.config import RunConfig
from amphw.host.config_toml import dotted, to_toml
from amphw.host.records import EpochRecord, RunSummary
from amphw.host.run_folder import ENVIRONMENT, RunFolder
from amphw.ir.errors import AmphwError

GROUP = "amphw.trackers"
PROJECT = "amphw"
"""Under which Weights & Biases and Trackio show runs."""


class TrackerError(AmphwError):
    """There is no such tracker, or it cannot be used; the message says what to do."""


class Tracker(Protocol):
    """What it raises is told once, and it is left alone from then on: training goes on."""

    def begin(self, model: str, settings: Mapping[str, Any], folder: RunFolder) -> None:
        """A run begins, or goes on. settings: by their full names."""
        ...

    def epoch(self, figures: Mapping[str, float], record: EpochRecord) -> None:
        """An epoch has ended. figures: by names such as valid/accuracy, those that are finite."""
        ...

    def end(self, summary: RunSummary | None) -> None:
        """The run has ended; without a summary by an error."""
        ...


class TensorBoard:
    """Writes event files into the folder `tensorboard` of the run's: `tensorboard --logdir runs`."""

    def __init__(self) -> None:
        writer = _imported("tensorboard", "tensorboard.summary.writer.event_file_writer")
        self._open = writer.EventFileWriter
        self._summary = _imported("tensorboard", "tensorboard.compat.proto.summary_pb2")
        self._event = _imported("tensorboard", "tensorboard.compat.proto.event_pb2")
        self._writer: Any = None

    def begin(self, model: str, settings: Mapping[str, Any], folder: RunFolder) -> None:
        self._writer = self._open(str(folder.file("tensorboard")))

    def epoch(self, figures: Mapping[str, float], record: EpochRecord) -> None:
        import time

        values = [self._summary.Summary.Value(tag=name, simple_value=x) for name, x in figures.items()]
        summary = self._summary.Summary(value=values)
        self._writer.add_event(
            self._event.Event(wall_time=time.time(), step=record.instances, summary=summary)
        )
        self._writer.flush()

    def end(self, summary: RunSummary | None) -> None:
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases:
    """Sends to Weights & Biases, or where its own settings say (`WANDB_MODE=offline`)."""

    package = "wandb"

    def __init__(self) -> None:
        self._api = _imported(self.package, self.package)
        self._run: Any = None

    def begin(self, model: str, settings: Mapping[str, Any], folder: RunFolder) -> None:
        name = f"{model} {folder.path.name} {identity(folder)[:6]}"
        self._run = self._api.init(
            project=PROJECT, name=name, config=dict(settings), **self._going_on(folder)
        )

    def _going_on(self, folder: RunFolder) -> dict[str, Any]:
        """What tells it that a run with the same folder is the same run."""
        return {"id": identity(folder), "resume": "allow"}

    def epoch(self, figures: Mapping[str, float], record: EpochRecord) -> None:
        self._api.log({"epoch": record.epoch, **figures}, step=record.epoch)

    def end(self, summary: RunSummary | None) -> None:
        if self._run is not None:
            self._finish(failed=summary is None)

    def _finish(self, failed: bool) -> None:
        self._api.finish(exit_code=int(failed))


class Trackio(WeightsAndBiases):
    """Keeps records on this machine, for `trackio show`; its calls are those of Weights & Biases."""

    package = "trackio"

    def _going_on(self, folder: RunFolder) -> dict[str, Any]:
        return {"resume": "allow"}  # it goes by names

    def _finish(self, failed: bool) -> None:
        self._api.finish()  # and knows no failures


BUILT_IN: Mapping[str, Callable[[], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "trackio": Trackio,
}


def tracker(name: str) -> Tracker:
    """The tracker of that name. Raises TrackerError listing the names, and where its package is missing."""
    if name in BUILT_IN:
        return BUILT_IN[name]()
    others = {point.name: point for point in entry_points(group=GROUP)}
    if name not in others:
        raise TrackerError(f"there is no tracker {name!r}; there are {', '.join([*BUILT_IN, *others])}")
    try:
        made: Tracker = others[name].load()()
    except Exception as error:  # of somebody else's package
        raise TrackerError(f"the tracker {name!r} ({others[name].value}) cannot be made: {error}") from error
    return made


def figures_of(record: EpochRecord) -> dict[str, float]:
    """An epoch's figures by their names, those that are finite."""
    found = {
        "train/loss": record.train_loss,
        **{f"train/{name}": value for name, value in record.train.items()},
        **{f"valid/{name}": value for name, value in record.valid.items()},
        "instances": float(record.instances),
        "instances_per_s": record.instances_per_s,
        "seconds": record.seconds,
        "staleness/p50": record.staleness_p50,
        "staleness/p99": record.staleness_p99,
        "keys_in_flight": record.keys_in_flight,
        "busy": record.busy,
    }
    return {name: value for name, value in found.items() if math.isfinite(value)}


def settings_of(cfg: RunConfig[Any]) -> dict[str, Any]:
    """All settings by their full names, such as train.epochs."""
    return dict(dotted(tomllib.loads(to_toml(cfg))))


def identity(folder: RunFolder) -> str:
    """The same for the same run, wherever its folder is moved to, and another one for every other run."""
    found = folder.read_json(ENVIRONMENT)
    return str(found.get("run") or hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16])


class Tracked:
    """All trackers of a run; one that fails is told of, and left out from then on."""

    def __init__(self, trackers: Iterable[Tracker], tell: Callable[[str], None] = warnings.warn) -> None:
        self._trackers, self._tell = list(trackers), tell

    @contextmanager
    def following(
        self, model: str, cfg: RunConfig[Any], folder: RunFolder
    ) -> Iterator[Callable[[RunSummary], None]]:
        """While inside, the run is under way -> what takes its summary."""
        summaries: list[RunSummary] = []
        settings = settings_of(cfg)
        self._each(lambda t: t.begin(model, settings, folder))
        try:
            yield summaries.append
        finally:
            self._each(lambda t: t.end(summaries[-1] if summaries else None))

    def epoch(self, record: EpochRecord) -> None:
        figures = figures_of(record) if self._trackers else {}
        self._each(lambda t: t.epoch(figures, record))

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for each in list(self._trackers):
            try:
                call(each)
            except Exception as error:  # whatever it is, training goes on
                self._trackers.remove(each)
                kind = type(each).__name__
                self._tell(
                    f"the tracker {kind} has failed and is told no more: {type(error).__name__}: {error}"
                )


def trackers(named: str | Tracker | Iterable[str | Tracker]) -> list[Tracker]:
    """Those of these names, each once, and those that are given as they are. Raises TrackerError."""
    each = named if isinstance(named, Iterable) and not isinstance(named, str) else [named]
    return [tracker(one) if isinstance(one, str) else one for one in dict.fromkeys(each)]


def _imported(package: str, module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise TrackerError(
            f"the tracker needs the package {package} ({error}): pip install 'amphw[{package}]'"
        ) from None
