"""The two phases of an epoch, training and validation, each from the first instance to a drained device."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from amphw.host import snapshots
from amphw.host.copies import Copies
from amphw.host.divergence import Approach, diagnosed
from amphw.host.gradients import Clipping, readable
from amphw.host.live_validation import LiveValidation
from amphw.host.meters import DeviceMeter, KeysInFlight, Tally, percentile
from amphw.host.modes import pump_policy
from amphw.host.progress import LiveStats, Progress
from amphw.host.pumping import PumpHooks
from amphw.host.records import RankFigures
from amphw.host.replication import Alone, Replication
from amphw.host.run_model import InstanceSet
from amphw.host.run_state import RunState
from amphw.host.session import Session
from amphw.host.trace import Trace
from amphw.host.watching import Watching
from amphw.ir.device import Mode, Report
from amphw.ir.errors import DeviceLostError, ExecutionError
from amphw.ir.instance import Instance
from amphw.ir.service_log import Event
from amphw.ir.update import NodeParameters


class RunLog(Protocol):
    """Who is told what a device logs, and what its instances report."""

    def take(self, log: list[Event]) -> None:
        """All that there is by now; it may be taken away."""
        ...

    def reported(self, report: Report, instance: Instance) -> None: ...


@dataclass(frozen=True)
class PhaseFigures:
    """What the device did in a training phase; fields as in `EpochRecord`."""

    staleness_p50: float
    staleness_p99: float
    staleness_nodes: dict[str, tuple[float, float]]
    utilisation: list[float]
    keys_in_flight: float
    ranks: list[RankFigures]


@dataclass(frozen=True)
class _Before:
    """What a run had counted when a training phase began."""

    seconds: float
    epoch_seconds: float
    forward: int
    backward: int
    staleness: Counter[int]

    @classmethod
    def of(cls, state: RunState) -> _Before:
        counted = state.seconds, state.epoch_seconds, state.forward, state.backward
        return cls(*counted, Counter(state.staleness))


class Phases:
    """Runs phases on a session and keeps `state` up to date.

    live: the validation that runs beside training. stopped: whether somebody asked to stop. saved: the last
    good checkpoint, for the error of a divergence.
    """

    def __init__(
        self,
        session: Session,
        state: RunState,
        live: LiveValidation,
        stopped: Callable[[], bool],
        saved: Callable[[], Path | None],
        progress: Progress | None,
        trace: Trace | None,
        log: RunLog | None = None,
        replication: Replication | None = None,
        watching: Watching | None = None,
    ) -> None:
        self._session, self._state, self._live = session, state, live
        clip_norm = session.cfg.train.clip_norm
        self._replication = replication or Alone(Clipping(clip_norm, session.rules))
        nodes, every = session.graph.parameterised, session.cfg.device.replicate_every
        groups = [group for group in session.graph.replicas if all(node in nodes for node in group)]
        self._copies = Copies(session.device, groups, every, session.mode.barrier)
        # What is done with parameters or gradients at an update finds nothing in flight.
        watched = clip_norm > 0 or state.average is not None or self._copies.at_updates
        self._quiet = self._replication.ranks > 1 or watched
        self._versions: dict[str, int] = {}  # of the last update that the average has taken up
        self._stopped, self._saved = stopped, saved
        self._progress, self._trace, self._log, self._watching = progress, trace, log, watching
        self._meter = DeviceMeter(session.device)
        self._approach = Approach(session.model.loss_node)
        intervals = {node: rule.interval for node, rule in session.rules.items()}
        self._policy = pump_policy(session.cfg.train, self._meter, intervals)

    def train(
        self,
        instances: InstanceSet,
        due: Callable[[], bool] = lambda: False,
        save: Callable[[], None] = lambda: None,
    ) -> PhaseFigures:
        """Train on the rest of the epoch, from `state.position` on; a stop leaves the position in between.

        Where it is `due` in between, the device is drained for `save`, which finds `state` up to date. At the
        epoch's end nodes apply what they still hold and replicas are averaged. Raises DivergedError and, for
        lost messages, ExecutionError.
        """
        session, state, replicas = self._session, self._state, self._replication
        self._meter.start()
        self._copies.since = state.unmet
        self._began = time.perf_counter()
        self._size_before, self._trained = state.size, state.position
        self._size, self._tally = 0, state.tally.empty()
        self._own_size = 0  # of this replica, in the whole phase
        self._before = _Before.of(state)
        if state.average is not None:
            self._versions = _versions(session.device.parameters())
        keys = KeysInFlight(self._began)
        bad: list[Instance] = []

        def report(instance: Instance, report: Report) -> None:
            size = session.model.size(instance)
            self._size, self._own_size = self._size + size, self._own_size + size
            # The others are about as far.
            self._trained = min(self._trained + replicas.ranks, len(instances))
            self._meter.retired()
            self._copies.retired()
            replicas.retired()
            self._approach.retired(report)
            self._reported(report, instance)
            if not self._tally.add(report):
                bad.append(instance)

        def changed(count: int) -> None:
            now = time.perf_counter()
            keys.change(count, now)
            if self._trace is not None:
                self._trace.count_keys(now * 1e6, count)

        hooks = PumpHooks(report, changed, lambda: self._tick(instances), self._moved, replicas.look)
        first = state.number - state.position
        while True:
            share = replicas.share(
                session.device, instances, state.position, session.mode.window, first, self._updated
            )
            pumped, more = 0, True
            while more:
                pumped += self._pump(
                    share,
                    hooks,
                    stopped=lambda: bool(bad) or replicas.stopping(self._stopped()),
                    paused=lambda: replicas.pausing(due()),
                )
                more = not bad and replicas.goes_on(session.device, self._stopped(), due())
            if replicas.ranks > 1:
                self._check(bad)  # before others take it over
            replicas.settle(session.device, self._follow_update)
            self._include(pumped, first)
            # After a resumption right at the epoch's end, the estimate is the one that was saved.
            state.live = self._live.means() or state.live
            session.device.drain()  # nothing is in flight, but an update may still be under way
            self._meter.collect()
            self._check(bad)
            self._count()
            # A stream may have ended before the position that a run was resumed at.
            if state.position >= len(instances) or replicas.stopping(self._stopped()):
                break
            if replicas.pausing(due()):
                began = time.perf_counter()
                save()
                self._began += time.perf_counter() - began  # which is no training
        if state.position >= len(instances):
            session.device.update()
            session.device.drain()
            snapshots.average_replicas(session.device, session.graph.replicas, state.average)
            self._copies.since = state.unmet = 0
            replicas.moved(session.device)
        self._write_log()
        self._count_time()
        return self._figures(keys)

    def _pump(
        self,
        share: Iterable[Instance],
        hooks: PumpHooks,
        stopped: Callable[[], bool],
        paused: Callable[[], bool],
    ) -> int:
        """Train on a share -> how many instances were pumped; see `Pump.run`."""
        session, pumped = self._session, 0
        for stretch in self._copies.stretches(share):
            if pumped and (stopped() or paused()):
                break
            pumped += session.train_pump.run(
                stretch,
                Mode.TRAIN,
                hooks,
                window=session.mode.window,
                barrier=session.mode.barrier,
                policy=self._policy,
                stopped=stopped,
                paused=paused,
                aside=self._live.aside(),
                update=self._update,
                quiet=self._quiet,
            )
        return pumped

    def validate(self, instances: InstanceSet) -> dict[str, float] | None:
        """Means of the metrics over the validation set, by the average of the parameters where there is one;
        None where somebody asked to stop meanwhile."""
        session = self._session
        tally = self._state.tally.empty()
        bad: list[Instance] = []

        def report(instance: Instance, report: Report) -> None:
            self._reported(report, instance)
            if not tally.add(report):
                bad.append(instance)

        share = self._replication.validating(session.device, instances)
        with snapshots.shown(session.device, self._state.average):
            pumped = session.infer_pump.run(
                share,
                Mode.INFER,
                PumpHooks(report, moved=self._moved),
                stopped=lambda: bool(bad) or self._stopped(),
            )
            self._write_log()
            self._check(bad)
        (everything,) = self._replication.total([pumped])
        tally = reduced(tally, self._replication)
        return tally.means() if everything == len(instances) else None

    def _update(self) -> None:
        self._replication.update(self._session.device)
        self._follow_update()

    def _follow_update(self) -> None:
        """All nodes have updated, as they do with a barrier."""
        self._average()
        self._copies.updated(self._session.mode.window)

    def _average(self) -> None:
        """Take up in the average what an update has made of the parameters, if it has applied anything."""
        average, device = self._state.average, self._session.device
        if average is None:
            return
        device.drain()  # the update may still be under way
        parameters = device.parameters()
        versions = _versions(parameters)
        if versions != self._versions:
            average.advance(parameters)
            self._versions = versions

    def _include(self, pumped: int, first: int) -> None:
        """Count in `state` what all replicas have trained on. first: number of the epoch's first instance."""
        state = self._state
        everything, size = map(int, self._replication.total([pumped, self._size]))
        state.position, state.size = state.position + everything, state.size + size
        state.number, state.epoch_size = first + state.position, state.epoch_size + size
        state.tally.include(reduced(self._tally, self._replication))
        self._size, self._tally = 0, state.tally.empty()

    def _tick(self, instances: InstanceSet) -> None:
        self._meter.collect()
        self._write_log()
        watching = self._watching if self._watching is not None and self._watching.wanted() else None
        shown = [each for each in (self._progress, watching) if each is not None]
        if shown:
            stats = self._standing(len(instances))
            for each in shown:
                each.update(stats)

    def _standing(self, total: int) -> LiveStats:
        """Where the epoch stands. total: its instances."""
        state, meter = self._state, self._meter
        spent = time.perf_counter() - self._began
        staleness, ranks = meter.staleness_overall(), self._replication.ranks
        size = state.size + self._size * ranks - self._size_before
        tally = state.tally.empty()
        for part in (state.tally, self._tally):
            tally.include(part)
        return LiveStats(
            epoch=state.epoch + 1,
            done=self._trained,
            total=total,
            loss=tally.means().get("loss", float("nan")),
            valid=self._live.means() or (dict(state.history[-1].valid) if state.history else {}),
            rate=size / spent if spent > 0 else float("nan"),
            keys_in_flight=self._session.train_pump.in_flight,
            staleness_p50=percentile(staleness, 0.5),
            staleness_p99=percentile(staleness, 0.99),
            utilisation=meter.utilisation_lately(),
            ranks=state.history[-1].ranks if state.history else [],
        )

    def _reported(self, report: Report, instance: Instance) -> None:
        if self._log is not None:
            self._log.reported(report, instance)

    def _write_log(self) -> None:
        if self._log is not None:
            self._log.take(self._session.device.log)  # type: ignore[attr-defined]

    def _updated(self) -> float:
        """How often nodes have updated in this phase so far, on average over those with parameters."""
        self._meter.collect()
        return self._meter.updates / max(1, len(self._session.rules))

    def _moved(self) -> int:
        self._meter.collect()
        return self._meter.forward + self._meter.backward

    def _check(self, bad: list[Instance]) -> None:
        if bad:
            session = self._session
            self._replication.close()
            session.device.drain()
            raise diagnosed(
                session.graph,
                readable(session.device),
                bad[0],
                self._state.tally.node,
                self._state.epoch + 1,
                self._saved(),
                self.approach(),
            )

    def approach(self) -> str:
        """What has led to where training is, for the error of a divergence; the device may have failed."""
        with suppress(DeviceLostError):  # then what it said before has to do
            self._meter.collect()
        return self._approach.told(self._meter.gradients)

    def _count(self) -> None:
        """Bring `state` up to date with what the phase has done so far, on a drained device."""
        state, meter, before = self._state, self._meter, self._before
        forward, backward = self._replication.total([meter.forward, meter.backward])
        state.forward, state.backward = before.forward + int(forward), before.backward + int(backward)
        state.staleness = before.staleness + meter.staleness_overall()
        state.staleness_rows = {node: dict(sorted(rows.items())) for node, rows in meter.staleness.items()}
        state.unmet = self._copies.since
        self._count_time()
        if meter.forward != meter.backward:
            raise ExecutionError(
                f"epoch {state.epoch + 1}: {meter.forward} messages went forward and {meter.backward} came "
                "back, though every instance has retired; the device "
                f"{self._session.device.capabilities().name!r} loses or repeats messages"
            )

    def _count_time(self) -> None:
        spent = time.perf_counter() - self._began
        self._state.seconds = self._before.seconds + spent
        self._state.epoch_seconds = self._before.epoch_seconds + spent

    def _figures(self, keys: KeysInFlight) -> PhaseFigures:
        overall = self._meter.staleness_overall()
        staleness = percentile(overall, 0.5), percentile(overall, 0.99)
        spent = self._state.seconds - self._before.seconds
        return PhaseFigures(
            staleness_p50=staleness[0],
            staleness_p99=staleness[1],
            staleness_nodes={
                node: (percentile(rows, 0.5), percentile(rows, 0.99))
                for node, rows in self._meter.staleness.items()
            },
            utilisation=self._meter.utilisation(),
            keys_in_flight=keys.mean(),
            ranks=self._replication.figures(self._own_size, spent, staleness),
        )


def _versions(parameters: Mapping[str, NodeParameters]) -> dict[str, int]:
    return {node: p.version for node, p in parameters.items()}


def reduced(tally: Tally, replication: Replication) -> Tally:
    """What all replicas have reported together."""
    return tally.filled(replication.total(tally.figures()))
