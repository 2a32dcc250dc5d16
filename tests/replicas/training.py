"""A run with ranks that are threads, whose devices and trainers a test makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amphw.host.config import RunConfig
from amphw.host.controller import Trainer
from amphw.host.records import RunSummary
from amphw.host.run_folder import RunFolder
from amphw.host.run_model import RunModel
from amphw.ir.device import Device
from amphw.replicas.run import check_ranks, follow, in_threads, replica


def train_in_threads(
    ranks: int,
    model: RunModel,
    cfg: RunConfig[Any],
    make_device: Callable[[int], Device],
    folder: RunFolder | None = None,
    prepared: Callable[[Trainer], None] = lambda trainer: None,
) -> RunSummary:
    """-> the summary of the first rank, which alone writes. make_device: a rank's own, which is closed here.

    prepared: is given the first rank's trainer before it runs.
    """
    check_ranks(ranks, cfg)
    with in_threads(ranks, lambda t: follow(model, cfg, make_device(t.rank), t)) as transport:
        device, mine = make_device(0), replica(transport, cfg)
        try:
            trainer = Trainer(model, cfg, device, folder, replication=mine)
            prepared(trainer)
            summary = trainer.run()
            mine.synchronised(trainer.spent.seconds.get("training", 0.0))
            return summary
        finally:
            device.close()
