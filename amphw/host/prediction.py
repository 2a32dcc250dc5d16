"""Inference from a checkpoint: what a trained model's sinks say of given instances."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from amphw.host import snapshots
from amphw.host.checkpoint import CheckpointError
from amphw.host.checkpointing import BEST, CHECKPOINT
from amphw.host.config import RunConfig, UpdateConfig
from amphw.host.meters import Tally
from amphw.host.pumping import PumpHooks
from amphw.host.run_model import RunModel
from amphw.host.session import Session
from amphw.ir.device import Device, Mode, Report
from amphw.ir.errors import AmphwError
from amphw.ir.given_order import GivenOrder
from amphw.ir.instance import Instance
from amphw.ir.told import FIGURES


class PredictionError(AmphwError):
    """What the model says of an input is no prediction; the message names the input, and what to do."""


class Predictor:
    """A device with the parameters of a checkpoint, which infers as often as it is asked to.

    checkpoint: a file, or a run folder, of which the best checkpoint is taken, else the latest. The device
    is the caller's, who closes it. Raises CheckpointError, also for a checkpoint of another model.
    """

    def __init__(self, model: RunModel, cfg: RunConfig[Any], device: Device, checkpoint: Path) -> None:
        self.path = find_checkpoint(checkpoint)
        self._model = model
        # Nothing is updated: the device need neither have the optimiser nor keep its state.
        # And nothing is searched for: what is placed stays, the others take turns.
        own = replace(cfg.device, placing="heuristic")
        self._session = Session(
            model, replace(cfg, update=UpdateConfig(), node_updates={}, device=own), device
        )
        snapshots.load(self.path, device, self._session.graph, values_only=True)
        self._order = GivenOrder(self._session.graph)

    def predict(self, instances: Sequence[Instance]) -> list[Report]:
        """The report of each instance, in their order, with the outputs of its sinks by row.

        Instances get their position as their number. Raises InstanceError for an instance that breaks the
        schema, and PredictionError for an output that is not finite, figures of instances without answers
        apart.
        """
        reports: dict[int, Report] = {}
        self._infer(instances, Mode.PREDICT, lambda r: reports.update({r.number: r}))
        for number, instance in enumerate(instances):
            _check_finite(reports[number], self.path, () if instance.answered else FIGURES)
            reports[number].outputs = self._order.of(instance, reports[number].outputs)
        return [reports[number] for number in range(len(instances))]

    def evaluate(self, instances: Iterable[Instance]) -> dict[str, float]:
        """Means of the model's figures over the rows of all instances, by name.

        A figure that is not finite is told as it is. Raises as `predict` does.
        """
        tally = Tally.of(self._model)
        self._infer(instances, Mode.INFER, tally.add)
        return tally.means()

    def _infer(self, instances: Iterable[Instance], mode: Mode, reported: Callable[[Report], Any]) -> None:
        def numbered() -> Iterator[Instance]:
            for number, instance in enumerate(instances):
                instance.number = number
                yield instance

        with np.errstate(all="ignore"):
            hooks = PumpHooks(lambda instance, report: reported(report))
            self._session.infer_pump.run(numbered(), mode, hooks)


def predict(
    model: RunModel, cfg: RunConfig[Any], device: Device, checkpoint: Path, instances: Sequence[Instance]
) -> list[Report]:
    """What a `Predictor` predicts, once."""
    return Predictor(model, cfg, device, checkpoint).predict(instances)


def evaluate(
    model: RunModel, cfg: RunConfig[Any], device: Device, checkpoint: Path, instances: Iterable[Instance]
) -> dict[str, float]:
    """What a `Predictor` evaluates to, once."""
    return Predictor(model, cfg, device, checkpoint).evaluate(instances)


def _check_finite(report: Report, path: Path, meaningless: Collection[str]) -> None:
    for node, outputs in report.outputs.items():
        for name, values in outputs.items():
            if name not in meaningless and not np.isfinite(values).all():
                answer = (
                    "; or the answer that was given is beyond what the loss allows: without one, the rest is "
                    "predicted"
                )
                raise PredictionError(
                    f"no prediction for input {report.number + 1}: the output '{name}' of node '{node}' is "
                    f"not finite, and so means nothing. The parameters in {path} are too large for this "
                    "device's arithmetic, or damaged; use an earlier checkpoint" + answer * (name in FIGURES)
                )


def find_checkpoint(path: Path) -> Path:
    """`path` itself or, where it is a run folder, its best checkpoint, else its latest."""
    path = Path(path)
    if not path.is_dir():
        return path
    for name in (BEST, CHECKPOINT):
        if (path / name).is_file():
            return path / name
    raise CheckpointError(
        f"the run folder {path} holds no checkpoint ({BEST}, {CHECKPOINT}); "
        "train with train.checkpoint_every above 0, or name a file"
    )
