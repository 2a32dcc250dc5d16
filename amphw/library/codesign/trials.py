"""Trainings whose score is wanted and nothing else, several at a time, each in a process of its own."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from amphw.host.config import RunConfig, resolve
from amphw.host.config_toml import to_toml

FLOAT32 = "cpu"
"""The device of runs that formats are compared with."""


@dataclass(frozen=True)
class Trial:
    """A training. device: as for `amphw train`.

    whole: whether its score is that of a training to the end, and not one of a round that chooses.
    """

    device: str
    epochs: int
    seed: int
    whole: bool = False

    @property
    def formats(self) -> str:
        """Of the hardware's arithmetic; empty for float32."""
        return self.device.partition(":")[2]


@dataclass(frozen=True)
class Result:
    """score: the validation metric at the end, NaN for a run that broke off. seconds: of the whole run.

    held: the finest formats that would have held all that was seen; empty for float32.
    broke: why the run did not come to its end.
    """

    trial: Trial
    score: float
    seconds: float
    held: str = ""
    broke: str = ""


class Trainers:
    """As many processes as there are processors, for one model and its settings. Use it in a `with`."""

    def __init__(self, model: str, cfg: RunConfig[Any], processes: int | None = None) -> None:
        self._model = str(Path(model).resolve()) if model.partition(":")[0].endswith(".py") else model
        self._settings = to_toml(replace(cfg, device=replace(cfg.device, workers=1)))
        self.processes = processes or len(os.sched_getaffinity(0))
        # A process that is forked has threads' locks and not the threads.
        self._pool = ProcessPoolExecutor(self.processes, multiprocessing.get_context("spawn"))

    def __enter__(self) -> Trainers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def run(self, trials: Sequence[Trial]) -> Iterator[Result]:
        """Results as they come. Raises what a run raises that cannot begin."""
        waiting = [self._pool.submit(trained, self._model, self._settings, trial) for trial in trials]
        for done in as_completed(waiting):
            yield done.result()


def trained(model: str, settings: str, trial: Trial) -> Result:
    """Train once. settings: the text of a configuration file."""
    from amphw.library.running import one_blas_thread
    from amphw.models import get_model

    began = time.monotonic()
    found = get_model(model)
    cfg = resolve(found.config, tomllib.loads(settings))
    train = replace(
        cfg.train, epochs=trial.epochs, seed=trial.seed, target=None, trace=False, checkpoint_every=0
    )
    with tempfile.TemporaryDirectory() as folder, one_blas_thread():
        score, held, broke = _once(found, replace(cfg, train=train), trial.device, Path(folder) / "run")
    return Result(trial, score, time.monotonic() - began, held, broke)


def _once(model: Any, cfg: RunConfig[Any], device: str, folder: Path) -> tuple[float, str, str]:
    from amphw.host.divergence import DivergedError
    from amphw.host.progress import Progress
    from amphw.host.run_folder import RunFolder
    from amphw.library.running import Watched, ready, run_once
    from amphw.rtl.fixed.findings import JSON

    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        shown = Progress(False, cfg.train.epochs, model.name, model.counted, stream=nowhere)
        watched = Watched(shown, report=False)
        runner = ready(model, cfg, device, lambda text: None)
        try:
            outcome = run_once(
                model, cfg, runner, RunFolder.create(folder, model.name), model.name, watched=watched
            )
        except DivergedError as error:
            return math.nan, "", str(error)
    files = outcome.findings.files
    held = json.loads(files[JSON])["held"] if JSON in files else ""
    return outcome.summary.valid.get(model.metric, math.nan), held, ""
