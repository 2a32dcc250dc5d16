"""The controller: trains a model on a device, epoch by epoch, and leaves a run folder.

An epoch is: pump the training instances; drain; have every node apply what gradients it still holds, so that
none outlives its epoch; average replicas; validate; record; save. Validation therefore runs on one consistent
set of parameters (with `train.average` their moving average), in parallel over the infer slots, and never at
the same time as training. Training time is the first four of these steps. With `train.live_valid`, validation
instances run beside the training instances as well, for an estimate that is shown and recorded and decides
nothing.

A checkpoint is taken on a drained device only. One taken at the end of an epoch holds no gradients; one taken
inside an epoch, because somebody asked the run to stop or because the last one is `train.checkpoint_minutes`
old, holds those that no update has taken yet. Going on
from either gives what an uninterrupted run gives wherever the device itself is deterministic, in mode "sync"
and with one active key: the same bits, but for gradients that were waiting for an update, whose sum is then
taken in two parts.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from amphw.host import snapshots
from amphw.host.checkpointing import CHECKPOINT, Checkpoints
from amphw.host.config import RunConfig
from amphw.host.divergence import diverged
from amphw.host.epochs import PhaseFigures, Phases, RunLog
from amphw.host.live_validation import LiveValidation
from amphw.host.lost_device import Kept, let_go, parts_lost, stopped, went_on
from amphw.host.memory import planned_memory
from amphw.host.meters import Tally, percentile
from amphw.host.placed import fitting, where
from amphw.host.progress import Progress
from amphw.host.records import (
    DATA,
    EPOCHS,
    INTERRUPT,
    PATIENCE,
    TARGET,
    THEN,
    EpochRecord,
    RunSummary,
    first_reaching,
)
from amphw.host.replication import Replication
from amphw.host.run_folder import CONFIG, METRICS, SUMMARY, RunFolder
from amphw.host.run_model import InstanceSet, RunModel
from amphw.host.run_state import RunState
from amphw.host.session import Session
from amphw.host.spent import Spent
from amphw.host.trace import Trace
from amphw.host.watching import Watching
from amphw.ir.averaging import MovingAverage
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import Degrades, Device, Explains, StartsSlowly
from amphw.ir.errors import DeviceLostError, NonFiniteError


class Trainer:
    """Trains a model on a device that the caller made and closes.

    folder: where config.toml, metrics.json, summary.json and the checkpoints go; None writes nothing.
    progress, trace: kept up to date while training goes on; writing the trace is the caller's business.
    spare: makes the device that the run goes on on if its own is lost; the trainer closes it. Without one the
    run then ends with a checkpoint of its last consistent state. clock: in seconds, for the age of the last
    checkpoint. spent: where the run's time goes; what went before may be in it already. log: takes the
    device's service log, which ends where the device is lost. replication: what the run has in common with
    its replicas, if there are others.
    """

    def __init__(
        self,
        model: RunModel,
        cfg: RunConfig[Any],
        device: Device,
        folder: RunFolder | None,
        progress: Progress | None = None,
        trace: Trace | None = None,
        spare: Callable[[], Device] | None = None,
        clock: Callable[[], float] = time.monotonic,
        spent: Spent | None = None,
        log: RunLog | None = None,
        replication: Replication | None = None,
    ) -> None:
        self.model, self.cfg, self.device, self.folder = model, cfg, device, folder
        self.progress, self.trace, self.spare, self._log = progress, trace, spare, log
        self.spent = spent or Spent()
        self._replication = replication
        self._devices = [device]
        self._spared = False
        average = MovingAverage(cfg.train.average) if cfg.train.average else None
        self.state = RunState(Tally.of(model), average=average)
        self.told: Callable[[EpochRecord], None] = lambda record: None  # of each epoch, once it is saved
        self.began = False  # whether everything was there to train, so that the run is one to go on with
        self._stop = self._ended = False
        self._checkpoints = Checkpoints(folder, cfg, model.name, clock)

    def stop(self) -> None:
        """Ask the run to end early: what is in flight is finished and saved. Safe in a signal handler."""
        self._stop = True

    def run(self, resume: Path | None = None) -> RunSummary:
        """Train until the target, the end of patience or of the epochs, or `stop` -> the summary.

        resume: a checkpoint, or the run folder that holds one; the run goes on from there, with this
        configuration. Raises ConfigError and GraphError before anything runs; CheckpointError for a
        checkpoint that does not fit; DivergedError for a NaN or an infinity; DeviceLostError for a device
        that fails, without a spare; ExecutionError for one that loses messages; WriteError for a disk that
        refuses.
        """
        # Overflow is found by checks that name the node; numpy's warnings would only say it less well.
        with np.errstate(all="ignore"):
            try:
                self._begin_somewhere(resume)
                # The data set is here to stay: the collector need not look through it again and again.
                gc.freeze()
                return self._rest_somewhere()
            finally:
                gc.unfreeze()
                if self._replication is not None:
                    self._replication.close()
                for spare in self._devices[1:]:
                    spare.close()

    def _begin_somewhere(self, resume: Path | None) -> None:
        """On the device or, while it is lost before anything is trained, on what stands in for it."""
        while True:
            try:
                return self._begin(resume)
            except DeviceLostError as error:
                if not self._replaced():
                    raise
                self._warn(error, 1)

    def _rest_somewhere(self) -> RunSummary:
        lost: DeviceLostError | None = None
        while True:
            try:
                if lost is None:
                    return self._rest()
                self._go_on(lost)
                lost = None
            except NonFiniteError as error:
                approach = self.phases.approach()
                raise diverged(error, self.state.epoch + 1, self._checkpoints.last, approach) from error
            except DeviceLostError as error:  # also of a second one, while the run goes back
                lost = error
                if not self._replaced():
                    if self._replication is None:
                        saved = self._checkpoints.save_kept(self._kept, self.session.graph)
                    elif self.folder is None:
                        raise  # the first rank knows what is saved
                    else:
                        saved = self._checkpoints.saved()
                    raise stopped(error, self.state.epoch + 1, saved) from error

    def _rest(self) -> RunSummary:
        """What is left of the run."""
        while (reason := self._finished()) is None:
            self._epoch()
            self._keep()
        return self._end(reason)

    # --- begin and end ----------------------------------------------------------------------------

    def _begin(self, resume: Path | None) -> None:
        train = self.cfg.train
        # A checkpoint has its own values for all of them.
        with self.spent.on("data"):
            self._start = self.model.initial(self.cfg.model) if resume is None else None
        self._open()
        if resume is not None:
            path = resume / CHECKPOINT if resume.is_dir() else resume
            with self.spent.on("checkpoint"):
                self._checkpoints.restore(path, self.state, self.device, self.session.graph)
                if self._replication is not None and not self._replication.leads:
                    snapshots.forget_gradients(self.device)  # which would otherwise count once for each rank
        with self.spent.on("data"):
            self.model.prepare(self.cfg.model, train.seed)
            self.validation = self.model.validation(self.cfg.model, train.seed, train.valid_instances)
            training = self._training()
        for what, held in (("train", training), ("validate", self.validation)):
            if not len(held) and (what == "train" or self.model.validates):
                raise ConfigError(f"the model {self.model.name} has no instances to {what} on")
        if self._replication is not None and len(training) < self._replication.ranks:
            raise ConfigError(
                f"there are {self._replication.ranks} ranks, and {len(training)} instances to train on "
                "(batches, where the model has them); take fewer ranks"
            )
        if self._replication is not None:
            place = self.state.epoch, self.state.position
            self._replication.begin(self.device, place, self.session.graph, self.session.rules)
        self._make_phases()
        self._begin_stretch()
        self._keep()
        if self.folder is not None:
            self.folder.write_text(CONFIG, self._checkpoints.config)
        self.began = True
        self._checkpoints.begin()
        self._tell(new=resume is None)

    def _open(self) -> None:
        slow = self.device.slow_start() if isinstance(self.device, StartsSlowly) else ""
        if slow and self.progress is not None:
            self.progress.note(slow)
        # A spare device has none of the labels that the settings may name.
        cfg = fitting(self.cfg, self.device)[0] if self._spared else self.cfg
        with self.spent.on("device"):
            log = self._log is not None
            self.session = Session(self.model, cfg, self.device, self.trace, self._start, log)

    def _begin_stretch(self) -> None:
        """From here on throughput is that of the device as it is now."""
        self._stretch = self.state.size, self.state.seconds
        self.state.goes_on(where(self.device))

    def _make_phases(self) -> None:
        tally, keys = self.state.tally, self.cfg.train.live_valid
        live = LiveValidation(self.session.infer_pump, self.validation, keys, tally.node, tally.names)
        self.phases = Phases(
            self.session,
            self.state,
            live,
            stopped=lambda: self._stop,
            saved=lambda: self._checkpoints.last,
            progress=self.progress,
            trace=self.trace,
            log=self._log,
            replication=self._replication,
            watching=Watching(self.folder.path) if self.folder is not None else None,
        )

    def _keep(self) -> None:
        """The state that the run goes back to where its device is lost; replicas do not go back."""
        if self._replication is None:
            self._kept = Kept.of(self.state, self.device)

    def _replaced(self) -> bool:
        """Whether there is another device for the one that is lost.

        Replicas would have to go back with this one: they end with it, and the run is resumed.
        """
        lost = self.device
        alone = self._replication is None
        rest = lost.spare() if alone and isinstance(lost, Degrades) else None
        let_go(lost)
        if not alone:
            return False
        if rest is None:
            if self.spare is None or self._spared:
                return False
            self._spared, rest = True, self.spare()
            self._lost = lost.capabilities().name
        else:
            self._lost = parts_lost(lost.capabilities().name, rest.capabilities().name)
        self.device = rest
        self._devices.append(rest)
        return True

    def _go_on(self, error: DeviceLostError) -> None:
        """From the last consistent state, on the device that is there now."""
        self._log = None  # it is that of one device
        self._open()
        self._kept.restore(self.state, self.device)
        self._begin_stretch()
        self._make_phases()
        self._warn(error, self._kept.epoch)
        self._explain()

    def _warn(self, error: DeviceLostError, epoch: int) -> None:
        if self.progress is not None:
            self.progress.warn(went_on(error, self._lost, self.device.capabilities().name, epoch))

    def _training(self) -> InstanceSet:
        """The instances of the epoch that comes next."""
        train, epoch = self.cfg.train, self.state.epoch + 1
        return self.model.training(self.cfg.model, train.seed, epoch, train.train_instances)

    def _tell(self, new: bool) -> None:
        if self.progress is None:
            return
        for note in self.model.notes(self.cfg.model) if new else ():
            self.progress.note(note)
        self._explain()
        keys = self.cfg.train.max_infer_keys
        line = planned_memory(self.device, self._training(), self.session.mode.window, self.validation, keys)
        if line is not None:
            self.progress.note(line)

    def _explain(self) -> None:
        if self.progress is None:
            return
        for each in (self.device, self._replication):
            if isinstance(each, Explains):
                for note in each.explained():
                    self.progress.note(note)

    def _finished(self) -> str | None:
        state, train = self.state, self.cfg.train
        # What replicas have reached is the same number on each; that somebody asked to stop is known to one.
        stop = self._stop
        if self._replication is not None:
            stop = self._replication.total([stop])[0] > 0
        if train.target is not None and first_reaching(state.history, self.model.metric, train.target):
            return TARGET
        if state.epoch >= train.epochs:
            return EPOCHS
        if train.patience and state.best is not None and state.epoch - state.best_epoch >= train.patience:
            return PATIENCE
        if stop:
            return INTERRUPT
        return DATA if self._ended else None

    def _end(self, reason: str) -> RunSummary:
        state = self.state
        self._save(final=True)
        size, seconds = self._stretch if state.size > self._stretch[0] else (0, 0.0)
        summary = RunSummary(
            model=self.model.name,
            device=THEN.join(device.capabilities().name for device in self._devices),
            epochs=state.epoch,
            instances_per_s=_rate(state.size - size, state.seconds - seconds),
            target_reached=reason == TARGET,
            valid=dict(state.history[-1].valid) if state.history else {},
            staleness={"p50": percentile(state.staleness, 0.5), "p99": percentile(state.staleness, 0.99)},
            messages={
                "forward": state.forward,
                "backward": state.backward,
                "lost": state.forward - state.backward,
            },
            run_dir=str(self.folder.path) if self.folder is not None else "",
            history=list(state.history),
            stopped_by=reason,
            metric=self.model.metric,
            target=self.cfg.train.target,
            ran=list(state.ran),
            counted=self.model.counted,
            staleness_rows=dict(state.staleness_rows),
        )
        if self.folder is not None:
            self.folder.write_json(SUMMARY, summary)
        return summary

    # --- one epoch --------------------------------------------------------------------------------

    def _epoch(self) -> None:
        state = self.state
        number = state.epoch + 1
        with self.spent.on("data"):
            instances = self._training()
        if not len(instances):  # of what may end
            self._ended = True
            return
        with self.spent.on("training"):
            figures = self.phases.train(instances, self._checkpoints.due, self._save)
        if state.position < len(instances):
            return  # asked to stop
        with self.spent.on("validation"):
            valid = self.phases.validate(self.validation)
        if valid is None:
            return  # asked to stop; going on validates again
        record = self._record(number, valid, figures)
        best = state.validated(self.model.metric, valid, number)
        state.finish_epoch(record)
        if self.progress is not None:
            self.progress.epoch(record)
        if self.folder is not None:
            self.folder.write_json(METRICS, state.history)
        self._save(best=best)
        self.told(record)

    def _record(self, number: int, valid: dict[str, float], figures: PhaseFigures) -> EpochRecord:
        state = self.state
        train = state.tally.means()
        return EpochRecord(
            epoch=number,
            instances=state.size,
            seconds=state.seconds,
            train_loss=train.pop("loss", math.nan),
            train=train,
            valid=valid,
            instances_per_s=_rate(state.epoch_size, state.epoch_seconds),
            staleness_p50=figures.staleness_p50,
            staleness_p99=figures.staleness_p99,
            staleness_nodes=figures.staleness_nodes,
            utilisation=figures.utilisation,
            keys_in_flight=figures.keys_in_flight,
            live=dict(state.live),
            ranks=figures.ranks,
        )

    def _save(self, *, best: bool = False, final: bool = False) -> None:
        if names := self._checkpoints.wanted(self.state, best, final):
            with self.spent.on("checkpoint"):
                self._checkpoints.save(names, self.state, self.device, self.session.graph)


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else math.nan
