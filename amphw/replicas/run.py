"""Train a model on several ranks of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from amphw.host.config import RunConfig
from amphw.host.controller import Trainer
from amphw.host.progress import Progress
from amphw.host.records import RunSummary
from amphw.host.run_folder import RunFolder
from amphw.host.run_model import RunModel
from amphw.ir.device import Device
from amphw.replicas.replica import Replica
from amphw.replicas.strategy import Strategy
from amphw.replicas.threads import ThreadGroup
from amphw.replicas.transport import RankLostError, Transport


def train_in_threads(
    ranks: int,
    model: RunModel,
    cfg: RunConfig[Any],
    make_device: Callable[[int], Device],
    strategy: Callable[[], Strategy],
    folder: RunFolder | None = None,
    progress: Progress | None = None,
) -> RunSummary:
    """Train with ranks that are threads -> the summary of rank 0, which alone writes and tells.

    make_device: a rank's own device, which is closed here. An error of one rank ends all; it is raised.
    """
    transports = ThreadGroup(ranks).transports()
    summaries: dict[int, RunSummary] = {}
    errors: dict[int, BaseException] = {}

    def run(transport: Transport) -> None:
        leads = transport.rank == 0
        try:
            device = make_device(transport.rank)
            try:
                trainer = Trainer(
                    model,
                    cfg,
                    device,
                    folder if leads else None,
                    progress if leads else None,
                    replication=Replica(transport, strategy()),
                )
                summaries[transport.rank] = trainer.run()
            finally:
                device.close()
        except BaseException as error:  # whatever it is, the others wait for this rank
            errors[transport.rank] = error
            transport.fail(error)

    threads = [threading.Thread(target=run, args=(t,), name=f"rank {t.rank}") for t in transports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    causes = [e for e in errors.values() if not isinstance(e, RankLostError)] or list(errors.values())
    if causes:
        raise causes[0]
    return summaries[0]
