"""Ranks of one run: who they are, what each does, and how the failure of one ends all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from amphw.host.config import RunConfig
from amphw.host.controller import Trainer
from amphw.host.modes import training_mode
from amphw.host.run_model import RunModel
from amphw.host.trace import Trace
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import Device
from amphw.replicas.ako.settings import WHOLE, ako, check_ako
from amphw.replicas.async_servers.strategy import AsyncServers
from amphw.replicas.average import Average
from amphw.replicas.group import Group
from amphw.replicas.outer import Outer
from amphw.replicas.replica import Replica
from amphw.replicas.strategy import Strategy
from amphw.replicas.synchronous import Synchronous
from amphw.replicas.threads import ThreadGroup
from amphw.replicas.transport import RankLostError, Transport
from amphw.replicas.uses import check_uses

STRATEGIES: dict[str, Callable[[RunConfig[Any]], Strategy]] = {
    "hybrid": lambda cfg: _synchronous("hybrid", cfg, serves_sparse=True),
    "allreduce": lambda cfg: _synchronous("allreduce", cfg),
    "servers": lambda cfg: _synchronous("servers", cfg, serves_dense=True, serves_sparse=True),
    "servers-async": lambda cfg: AsyncServers(
        cfg.replicas.servers, cfg.replicas.staleness, cfg.train.mode == "async"
    ),
    "average": lambda cfg: Average(),
    "group": lambda cfg: Group(),
    "ako": ako,
    "all-to-all": lambda cfg: ako(cfg, WHOLE),
    "outer": lambda cfg: Outer(cfg.replicas.outer_lr, cfg.replicas.outer_momentum),
}


def _synchronous(
    name: str, cfg: RunConfig[Any], serves_dense: bool = False, serves_sparse: bool = False
) -> Synchronous:
    return Synchronous(
        name,
        serves_dense,
        serves_sparse,
        servers=cfg.replicas.servers,
        machine=cfg.replicas.machine_ranks,
        average_dense=cfg.replicas.average_dense,
        average_sparse=cfg.replicas.average_sparse,
        sparse_from=cfg.replicas.sparse_from,
        clip_norm=cfg.train.clip_norm,
    )


def _check_servers(ranks: int, strategy: Strategy, cfg: RunConfig[Any]) -> None:
    """The same of what is said about servers, and of what there cannot be with them."""
    serves = strategy.serves
    if serves and cfg.replicas.servers >= ranks:
        raise ConfigError(
            f"replicas.servers is {cfg.replicas.servers}, and there are {ranks} ranks; take fewer servers, "
            "as at least one rank has to train"
        )
    if serves and cfg.train.average:
        raise ConfigError(
            f"train.average={cfg.train.average} is of all parameters, of which with "
            f"replicas.strategy={strategy.name} no rank has the latest; write "
            "--set replicas.strategy=allreduce, or leave train.average out"
        )
    if serves and strategy.in_step and cfg.train.live_valid:  # else ranks hold everything
        raise ConfigError(
            "train.live_valid validates beside training, at any time, and with "
            f"replicas.strategy={strategy.name} ranks hold the rows of their own instances alone; write "
            "--set train.live_valid=0, or --set replicas.strategy=allreduce"
        )


def check_ranks(ranks: int, cfg: RunConfig[Any], besides: Collection[str] = ()) -> None:
    """Raise ConfigError for what these ranks cannot be trained with, with the reason and what can be done.

    besides: as in `uses.check_uses`."""
    check_uses(cfg.replicas, besides)
    strategy = STRATEGIES[cfg.replicas.strategy](cfg)
    if strategy.in_step and cfg.train.mode == "async":
        others = " or ".join(name for name, make in STRATEGIES.items() if not make(cfg).in_step)
        raise ConfigError(
            f"replicas.strategy={strategy.name} adds up the gradients of {ranks} ranks at each update, and "
            "with train.mode=async every node updates on its own, not as often on one rank as on another; "
            f"write --set train.mode=pipeline (or sync), or --set replicas.strategy={others}"
        )
    _check_servers(ranks, strategy, cfg)
    check_ako(cfg)
    if isinstance(strategy, AsyncServers) and cfg.device.replicate_every:
        raise ConfigError(
            f"device.replicate_every={cfg.device.replicate_every} brings the copies of a node together on a "
            f"rank's device, and with replicas.strategy={strategy.name} servers have what all go on from; "
            "leave it out: copies meet at the end of an epoch all the same"
        )
    if cfg.train.average and not strategy.in_step:
        raise ConfigError(
            f"train.average={cfg.train.average} is the average over updates that all ranks make together, "
            f"and with replicas.strategy={strategy.name} each rank updates on its own between exchanges; "
            "leave train.average out, or write --set replicas.strategy=allreduce"
        )


def instances_between(cfg: RunConfig[Any]) -> int | None:
    """Instances of a rank between two exchanges, where ranks do not go in step; 0: nobody has said. None:
    what its nodes make of them decides, as they update on their own."""
    if not cfg.replicas.every_updates:
        return cfg.replicas.every
    mode = training_mode(cfg.train)
    return cfg.replicas.every_updates * mode.window if mode.barrier else None


def replica(transport: Transport, cfg: RunConfig[Any]) -> Replica:
    strategy, every = STRATEGIES[cfg.replicas.strategy](cfg), instances_between(cfg)
    updates = cfg.replicas.every_updates if every is None else 0
    clip_norm, trace, wire = cfg.train.clip_norm, cfg.train.trace, cfg.replicas.wire
    return Replica(transport, strategy, every or 0, clip_norm, trace, wire, updates)


def follow(
    model: RunModel,
    cfg: RunConfig[Any],
    device: Device,
    transport: Transport,
    resume: Path | None = None,
    guarded: Callable[[Trainer], AbstractContextManager[Any]] = nullcontext,
) -> None:
    """What every rank but the first does: it trains its share, and writes and tells nothing.

    guarded: what is entered while it trains, such as the handling of signals.
    """
    mine = replica(transport, cfg)
    try:
        # All others together keep about as much as the first rank does.
        trace = Trace(Trace().limit // transport.ranks) if cfg.train.trace else None
        trainer = Trainer(model, cfg, device, None, trace=trace, replication=mine)
        with guarded(trainer):
            trainer.run(resume)
        mine.synchronised(trainer.spent.seconds.get("training", 0.0), trace)
    finally:
        device.close()


@contextmanager
def in_threads(ranks: int, follows: Callable[[Transport], None]) -> Iterator[Transport]:
    """Ranks of this process: the first is the caller, the others are threads in which `follows` is called.

    An error in one of them ends all: the others stop at their next exchange, and the first error is raised
    here.
    """
    transports = ThreadGroup(ranks).transports()
    errors: list[BaseException] = []

    def run(transport: Transport) -> None:
        try:
            follows(transport)
        except BaseException as error:  # whatever it is, the others wait for this rank
            errors.append(error)
            transport.fail(error)

    threads = [threading.Thread(target=run, args=(t,), name=f"rank {t.rank}") for t in transports[1:]]
    for thread in threads:
        thread.start()
    try:
        yield transports[0]
    except BaseException as error:
        errors.append(error)
        transports[0].fail(error)
        raise
    finally:
        for thread in threads:
            thread.join()
        causes = [error for error in errors if not isinstance(error, RankLostError)]
        if causes:
            raise causes[0]
