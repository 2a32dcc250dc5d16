"""A logged run repeated: the same job on a device that takes the logged decisions, compared as it goes on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from amphw.host.checkpoint import load_checkpoint
from amphw.host.checkpointing import CHECKPOINT
from amphw.host.config import RunConfig
from amphw.host.controller import Trainer
from amphw.host.log_file import Reported, ServiceLogFile
from amphw.host.progress import Progress
from amphw.host.run_model import RunModel
from amphw.ir.device import Device, Report
from amphw.ir.instance import Instance
from amphw.ir.service_log import Event, LogEnded, ReplayDiffers

RELATIVE, ABSOLUTE = 1e-3, 1e-4
"""What rounding may make of a loss, and of a tensor's root mean square, on another device."""


@dataclass(frozen=True)
class Difference:
    """Where two executions first differ. kind: "forward", "backward" or "infer" of a firing that cannot run;
    "loss" of what a sink reported; "parameters" of what a node ended with. what: in words."""

    node: str | None
    kind: str
    instance: int | None
    state: list[int] | None
    what: str


@dataclass(frozen=True)
class Repeated:
    """equal: within rounding. same_bits: every loss and every parameter. steps: frames that were repeated."""

    equal: bool
    same_bits: bool
    steps: int
    device: str
    first_difference: Difference | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class _Differs(Exception):
    def __init__(self, difference: Difference) -> None:
        super().__init__(difference.what)
        self.difference = difference


class Comparing:
    """Takes the place of a log's writer: what instances report is held against what they reported then."""

    def __init__(self, reports: list[Reported]) -> None:
        self._wanted = {(number, mode, k): sums for k, (number, mode, sums) in _counted(reports)}
        self._seen: dict[tuple[int, str], int] = {}
        self.same_bits = True

    def take(self, log: list[Event]) -> None:
        """The log of the repetition, which nobody wants."""

    def reported(self, report: Report, instance: Instance) -> None:
        run = report.number, report.mode.value
        count = self._seen[run] = self._seen.get(run, -1) + 1
        wanted = self._wanted.get((*run, count))
        if wanted is None:
            return  # the run was stopped before it was told of this one
        self.same_bits = self.same_bits and report.sums == wanted
        for node, sums in report.sums.items():
            # The first is the loss. What else a sink reports may be whole numbers, which rounding can change.
            name, value = next(iter(sums.items()))
            was = wanted.get(node, {}).get(name, float("nan"))
            if not np.isclose(value, was, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True):
                what = (
                    f"'{name}' of instance {report.number} is {value:.8g} at node '{node}', and was {was:.8g}"
                )
                raise _Differs(Difference(node, "loss", report.number, None, what))


def _counted(reports: list[Reported]) -> list[tuple[int, Reported]]:
    """How often an instance of this number and mode was there before: validation has its numbers again."""
    seen: dict[tuple[int, str], int] = {}
    out = []
    for report in reports:
        run = report[0], report[1]
        seen[run] = seen.get(run, -1) + 1
        out.append((seen[run], report))
    return out


def cut(events: list[Event], until: int | None) -> list[Event]:
    """The events up to the frame with this number."""
    if until is None:
        return events
    for k, event in enumerate(events):
        if event[0] == "start" and event[1] > until:
            return events[:k]
    return events


def repeat(
    model: RunModel,
    cfg: RunConfig[Any],
    device: Device,
    log: ServiceLogFile,
    until: int | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Repeated:
    """Train once more on a device that goes by `cut(log.events, until)`, without writing anything.

    folder: of the run; the parameters of its last checkpoint are those that the repetition is to end with.
    """
    comparing, difference, ended = Comparing(log.reports), None, False
    trainer = Trainer(model, replace(cfg), device, None, progress, log=comparing)
    try:
        trainer.run()
    except LogEnded:
        ended = True
    except ReplayDiffers as error:
        state = list(error.state) if error.state is not None else None
        difference = Difference(error.node, error.kind or "order", error.instance, state, str(error))
    except _Differs as found:
        difference = found.difference
    same = comparing.same_bits
    checkpoint = folder / CHECKPOINT if folder is not None else None
    if difference is None and not ended and until is None and checkpoint is not None and checkpoint.exists():
        difference, alike = _parameters(device, checkpoint)
        same = same and alike
    equal = difference is None
    steps = sum(event[0] == "start" for event in cut(log.events, until))
    return Repeated(equal, equal and same, steps, device.capabilities().name, difference)


def _parameters(device: Device, checkpoint: Path) -> tuple[Difference | None, bool]:
    """The first node whose parameters are not those of the checkpoint, and whether all bits are the same.

    A tensor is judged as a whole. Where the gradients of one weight cancel to almost nothing, Adam divides
    rounding by the root of a vanishing second moment, and that weight alone may go a whole step elsewhere.
    """
    tensors, _ = load_checkpoint(checkpoint, None)
    same = True
    for node, p in device.parameters().items():
        for name, value in p.values.items():
            wanted = tensors.get(f"{node}.{name}")
            if wanted is None:
                continue
            same = same and np.array_equal(value, wanted)
            apart = _root_mean_square(value - wanted)
            if not apart <= ABSOLUTE + RELATIVE * _root_mean_square(wanted):  # also where it is not a number
                ends = f"'{name}' of node '{node}' ends {apart:.3g} away"
                what = f"{ends} (root mean square) from what the run ended with"
                return Difference(node, "parameters", None, None, what), False
    return None, same


def _root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if values.size else 0.0
