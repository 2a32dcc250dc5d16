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
from amphw.host.modes import training_mode
from amphw.host.run_model import InstanceSet, RunModel
from amphw.host.session import graph_of, update_rules
from amphw.ir.device import Device
from amphw.ir.instance import Instance
from amphw.ir.update import initial_parameters
from amphw.replicas.rehearsal import Pace, Rehearsed, Simulated, Work, rehearse
from amphw.replicas.replica import Replica
from amphw.replicas.run import STRATEGIES, in_threads
from amphw.replicas.simulated import Machines
from amphw.replicas.windows import size_of

FIRST, SECONDS = 20, 3.0
"""Windows of a first run, which tells how many take so many seconds; and of those the first, which take
longer and do not count."""
STEPS, FEW = 40, 4
"""That are rehearsed, as what a processor takes varies; and of strategies that exchange rarely."""
MOST_IDLE = 0.05
"""Seconds between two windows, after which a processor has forgotten all that it will."""
IDLE_NAP = 5e-4
"""Seconds: an idle rank wakes up as often to look for messages."""


def training(model: RunModel, cfg: RunConfig[Any]) -> Any:
    """The instances of the first epoch."""
    model.prepare(cfg.model, cfg.train.seed)
    return model.training(cfg.model, cfg.train.seed, 1, cfg.train.train_instances)


def work_of(model: RunModel, cfg: RunConfig[Any]) -> Work:
    """What a rank does in the first epoch, at no pace yet."""
    graph = graph_of(model, cfg)
    rules = update_rules(cfg, graph)
    instances = training(model, cfg)
    owners = {name: graph.nodes[name].params for name in graph.parameterised}
    parameters = initial_parameters(owners, rules, cfg.train.seed)
    return Work(graph, rules, parameters, instances, training_mode(cfg.train).window, Pace(0.0))


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
    every: as in `rehearse`. Takes about three times `SECONDS`, or some exchanges, if that is longer."""
    between, in_exchange = every or work.window, _in_exchange(cfg, work, every)

    def at(pace: Pace) -> Simulated:
        # What one rank does for an exchange is in a rehearsal of several, too.
        rest = replace(pace, seconds=max(0.0, pace.seconds - in_exchange))
        return _rehearsed(ranks, cfg, replace(work, pace=rest), every).on(machines)

    own = alone(model, cfg, make, between)
    found = at(own)
    idle = min(max(0.0, found.step - found.computing), MOST_IDLE)
    return at(alone(model, cfg, make, between, idle)), own


def alone(
    model: RunModel, cfg: RunConfig[Any], make: Callable[[], Device], between: int, idle: float = 0.0
) -> Pace:
    """Of one rank that trains under the strategy of `cfg`, without what is done when an epoch ends. between:
    instances between two exchanges, after which it is idle for so many seconds, which do not count."""
    size, asked = len(training(model, cfg)), _first(cfg, between)
    between = min(between, size)
    cfg = _single(cfg)
    for _ in range(2):
        count = max(between, min(asked * between, size // between * between))
        epochs = -(-asked * between // count)
        train = replace(cfg.train, train_instances=count, epochs=epochs, target=None, patience=0)
        train = replace(train, valid_instances=1, live_valid=0, trace=False, checkpoint_every=0)
        found = _run(model, replace(cfg, train=train), make, between, idle)
        first = _first(cfg, between)
        asked = first + max(first, int(SECONDS / (found.seconds * between + idle)))
    return found


def _first(cfg: RunConfig[Any], between: int) -> int:
    """Exchanges until `FIRST` windows have passed, or two."""
    return max(2, FIRST * training_mode(cfg.train).window // between)


def _run(model: RunModel, cfg: RunConfig[Any], make: Callable[[], Device], between: int, idle: float) -> Pace:
    device = make()
    try:
        with in_threads(1, lambda t: None) as only:
            mine = _Timed(only, cfg, between, idle)
            Trainer(model, cfg, device, None, replication=mine).run()
    finally:
        device.close()
    first = min(_first(cfg, between), len(mine.took) // 2)
    took, sizes = np.array(mine.took[first:]), np.array(mine.sizes[first:])
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
        self._pumped: list[float] = []  # sizes of windows that are pumped and have not been updated with
        self._since, self._begins = 0.0, False

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
        # What validation has left is cleared away beside an epoch's first window.
        self._begins, self._pumped = self.strategy.in_step, []
        return self._sized(pumped)

    def _sized(self, pumped: Iterable[Instance]) -> Iterable[Instance]:
        self._since = time.perf_counter()  # the first is asked for
        for number, instance in enumerate(pumped):
            if number % self._between == 0:
                self._pumped.append(0.0)
            self._pumped[-1] += size_of(instance)
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
        size = self._pumped.pop(0) if self._pumped else 0.0
        if size and not self._begins:
            self.took.append(now - self._since)
            self.sizes.append(size)
        self._begins = False
        while time.perf_counter() < now + self._idle:
            time.sleep(IDLE_NAP)
        self._since = time.perf_counter()


def _in_exchange(cfg: RunConfig[Any], work: Work, every: int) -> float:
    """Seconds of an instance that one rank alone spends on exchanging with itself."""
    one = _rehearsed(1, _single(cfg), replace(work, pace=Pace(0.0)), every)
    return one.on(Machines([0])).step * one.steps / one.instances


def _rehearsed(ranks: int, cfg: RunConfig[Any], work: Work, every: int) -> Rehearsed:
    make, steps = STRATEGIES[cfg.replicas.strategy], FEW if every else STEPS
    return rehearse(ranks, lambda: make(cfg), work, every, steps, cfg.replicas.wire, time.thread_time)


def _single(cfg: RunConfig[Any]) -> RunConfig[Any]:
    """For one rank, which is its own server and its own machine."""
    return replace(cfg, replicas=replace(cfg.replicas, servers=0, machine_ranks=1))
