"""One rank measured here, so that several can be played (`simulated`) that there are no machines for.

A rank trains under its strategy with no other one: it computes, looks rows up, hands gradients to itself and
updates what it serves. What several ranks do beyond that is the difference between two rehearsals, with as
many and with one, of which the processor's time is counted. Then it trains once more, and is idle between
windows for as long as it would wait for the others: a processor that was idle computes slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from amphw.host.config import RunConfig
from amphw.host.controller import Trainer
from amphw.host.run_model import InstanceSet, RunModel
from amphw.ir.device import Device
from amphw.ir.instance import Instance
from amphw.replicas.rehearsal import Pace, Rehearsed, Simulated, Work, rehearse
from amphw.replicas.replica import Replica
from amphw.replicas.run import STRATEGIES, in_threads
from amphw.replicas.simulated import Machines
from amphw.replicas.windows import size_of

FIRST, SECONDS = 20, 3.0
"""Exchanges of a first run, which warms up and tells how many take so many seconds."""
STEPS = 40
"""That are rehearsed: what a processor takes varies."""
NAP = 5e-4
"""Seconds: an idle rank wakes up as often to look for messages."""


def training(model: RunModel, cfg: RunConfig[Any]) -> Any:
    """The instances of the first epoch."""
    model.prepare(cfg.model, cfg.train.seed)
    return model.training(cfg.model, cfg.train.seed, 1, cfg.train.train_instances)


def played(
    model: RunModel,
    cfg: RunConfig[Any],
    make: Callable[[], Device],
    work: Work,
    every: int,
    ranks: int,
    machines: Machines,
) -> tuple[Simulated, Pace]:
    """So many ranks, each as fast as one is here alone, which is also told. work: its pace is not looked at.
    every: as in `rehearse`. Takes about three times `SECONDS`."""
    between, idle = every or work.window, 0.0
    for _ in range(2):
        pace = alone(model, cfg, make, between, idle)
        of_all = _rehearsed(ranks, cfg, replace(work, pace=_without_exchange(cfg, work, every, pace)), every)
        found = of_all.on(machines)
        idle = max(0.0, found.step - found.seconds["compute"])
    return found, pace


def alone(
    model: RunModel, cfg: RunConfig[Any], make: Callable[[], Device], between: int, idle: float = 0.0
) -> Pace:
    """Of one rank that trains under the strategy of `cfg`, without what is done when an epoch ends. between:
    instances between two exchanges, after which it is idle for so many seconds, which do not count."""
    size, asked = len(training(model, cfg)), FIRST
    cfg = _single(cfg)
    for _ in range(2):
        count = max(between, min(asked * between, size // between * between))
        epochs = -(-asked * between // count)
        train = replace(
            cfg.train, train_instances=count, epochs=epochs, target=None, valid_instances=1, live_valid=0
        )
        its = replace(cfg, train=replace(train, trace=False, checkpoint_every=0))
        found = _run(model, its, make, between, idle)
        asked = max(FIRST, int(SECONDS / (found.seconds * between + idle)))
    return found


def _run(model: RunModel, cfg: RunConfig[Any], make: Callable[[], Device], between: int, idle: float) -> Pace:
    device = make()
    try:
        with in_threads(1, lambda t: None) as only:
            mine = _Timed(only, cfg, between, idle)
            Trainer(model, cfg, device, None, replication=mine).run()
    finally:
        device.close()
    whole = min(len(mine.took), len(mine.sizes))
    took, sizes = np.array(mine.took[:whole]), np.array(mine.sizes[:whole])
    each = (took / sizes) / (took.sum() / sizes.sum())
    return Pace(float(took.mean() / between), float(sizes.mean() / between), tuple(each.tolist()))


class _Timed(Replica):
    """took: seconds of each window, with its exchange. sizes: of each, of all its instances."""

    def __init__(self, transport: Any, cfg: RunConfig[Any], between: int, idle: float):
        strategy = STRATEGIES[cfg.replicas.strategy](cfg)
        every = 0 if strategy.in_step else between
        super().__init__(transport, strategy, every, cfg.train.clip_norm, False, cfg.replicas.wire)
        self._between, self._idle = between, idle
        self.took: list[float] = []
        self.sizes: list[float] = []
        self._since = 0.0

    def share(
        self,
        device: Device,
        instances: InstanceSet,
        start: int,
        window: int,
        first: int,
        updated: Callable[[], float],
    ) -> Iterable[Instance]:
        pumped = super().share(device, instances, start, window, first, updated)
        self._since = time.perf_counter()
        return self._sized(pumped)

    def _sized(self, pumped: Iterable[Instance]) -> Iterable[Instance]:
        for number, instance in enumerate(pumped):
            if number % self._between == 0:
                self.sizes.append(0.0)
            self.sizes[-1] += size_of(instance)
            yield instance

    def update(self, device: Device) -> None:
        super().update(device)
        if self.strategy.in_step:
            self._stamp()

    def settle(self, device: Device, updated: Callable[[], None]) -> None:
        super().settle(device, updated)
        if not self.strategy.in_step:
            self._stamp()

    def _stamp(self) -> None:
        now = time.perf_counter()
        self.took.append(now - self._since)
        while time.perf_counter() < now + self._idle:
            time.sleep(NAP)
        self._since = time.perf_counter()


def _without_exchange(cfg: RunConfig[Any], work: Work, every: int, pace: Pace) -> Pace:
    """What one rank does for an exchange is in a rehearsal of several, too."""
    one = _rehearsed(1, _single(cfg), replace(work, pace=Pace(0.0)), every)
    in_exchange = one.on(Machines([0])).step * one.steps / one.instances
    return replace(pace, seconds=max(0.0, pace.seconds - in_exchange))


def _rehearsed(ranks: int, cfg: RunConfig[Any], work: Work, every: int) -> Rehearsed:
    make = STRATEGIES[cfg.replicas.strategy]
    return rehearse(ranks, lambda: make(cfg), work, every, STEPS, cfg.replicas.wire, time.thread_time)


def _single(cfg: RunConfig[Any]) -> RunConfig[Any]:
    """For one rank, which is its own server and its own machine."""
    return replace(cfg, replicas=replace(cfg.replicas, servers=0, machine_ranks=1))
