"""One replica among others, as the host knows it (`host.replication.Replication`)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from amphw.host.gradients import Clipping
from amphw.host.replication import Share
from amphw.host.run_model import InstanceSet
from amphw.ir.device import Device
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from amphw.replicas.agree import check_alike
from amphw.replicas.collectives import all_reduce, ranges
from amphw.replicas.group import EVERY, Rounds
from amphw.replicas.packed import Traffic
from amphw.replicas.strategy import Strategy
from amphw.replicas.transport import Transport

STOP, PAUSE, THROUGH = range(3)


class Windows:
    """A share whose instances can be looked at, a window at a time, before they are pumped."""

    def __init__(self, share: Share, window: int):
        self._share, self._window, self._begun = share, window, 0
        self._built: dict[int, Instance] = {}

    def __iter__(self) -> Iterator[Instance]:
        return map(self._instance, range(len(self._share)))

    def next(self) -> Iterator[Instance]:
        """Those of the next window; none where there is none. They are built when they are looked at."""
        begin, self._begun = self._begun, min(self._begun + self._window, len(self._share))
        self._built = {k: instance for k, instance in self._built.items() if k >= begin}
        return map(self._instance, range(begin, self._begun))

    def _instance(self, k: int) -> Instance:
        if k not in self._built:
            self._built[k] = self._share.at(self._share.places[k])
        return self._built[k]


@dataclass(frozen=True)
class Synchronised:
    """What keeping together took, of one rank and one step, on average over all.

    bytes: sent and received, by parameter. seconds: by what they were for. alpha: of tables that are
    exchanged by rows, the share of rows that a rank touches in a step (Parallax, Table 1).
    """

    ranks: int
    strategy: str
    steps: int
    bytes: dict[str, dict[str, float]]
    seconds: dict[str, float]
    alpha: dict[str, float]


class Replica:
    """Ranks make the same exchanges in the same order; a rank that has run out of instances takes part with
    zero rows.

    every: of a strategy whose ranks do not go in step, the instances of one rank between two exchanges; 0:
    its share of an epoch or, where ranks go at their own pace, `group.EVERY`. clip_norm: of such a strategy,
    too: `train.clip_norm`, for a rank's own gradients. wire: as in `wire.encode`.
    """

    def __init__(
        self,
        transport: Transport,
        strategy: Strategy,
        every: int = 0,
        clip_norm: float = 0.0,
        wire: str = "full",
    ):
        self.transport, self.strategy, self._every = transport, strategy, every
        self._clip_norm, self._clipping = clip_norm, Clipping()
        self.leads, self.ranks = transport.rank == 0, transport.ranks
        working = strategy.working(self.ranks)
        self._working, self._works = len(working), transport.rank in working
        self.traffic = Traffic(wire=wire)
        self._rounds: Rounds | None = None
        self._waited = self._transferred = 0.0
        self._wants = np.zeros(3, np.int64)
        self._agreed = np.zeros(3, np.int64)

    def begin(
        self, device: Device, place: Sequence[int], graph: Graph, rules: Mapping[str, UpdateRule]
    ) -> None:
        check_alike(self.transport, {"place": str(list(place)), **_held(device)})
        self._clipping = Clipping(self._clip_norm, rules)
        self.strategy.begin(device, self.transport, graph, rules)

    def moved(self, device: Device) -> None:
        self.strategy.moved(device)

    def share(
        self, device: Device, instances: InstanceSet, start: int, window: int, first: int
    ) -> Iterable[Instance]:
        end = len(instances)
        if self.strategy.own_pace:
            self._agreed = np.zeros(3, np.int64)
            every = self._every or EVERY
            self._rounds = Rounds(instances, start, every, self.transport.rank, self.ranks, first)
            return self._rounds
        if self._every and not self.strategy.in_step:
            end = min(end, start + self._every * self.ranks)
        self._agreed = np.zeros(3, np.int64)  # what was agreed on before these instances is done with
        if not self.strategy.in_step:
            return self._part(instances, start, end, first)
        # The windows of all working ranks together are one window of the instances in their order.
        begins = range(start + self.transport.rank * window, end, self._working * window)
        blocks = [range(at, min(at + window, end)) for at in (begins if self._works else ())]
        mine = Share(instances, [place for block in blocks for place in block], first)
        self._windows = Windows(mine, window)
        self.strategy.fetch(device, self.transport, self.traffic, self._windows.next())
        return self._windows

    def validating(self, device: Device, instances: InstanceSet) -> Share:
        share = self._part(instances, 0, len(instances), 0)
        self.strategy.fetch(device, self.transport, Traffic(), share)  # belongs to no step
        return share

    def _part(self, instances: InstanceSet, start: int, end: int, first: int) -> Share:
        """Of as many equal parts of `instances[start:end]` as there are working ranks, this rank's."""
        part = ranges(end - start, self._working)[self.transport.rank] if self._works else slice(0, 0)
        return Share(instances, range(start + part.start, start + part.stop), first)

    def update(self, device: Device) -> None:
        if self.strategy.in_step:
            self._exchange(device, through=False)
        else:
            self._clipping.update(device)

    def goes_on(self, device: Device, stop: bool, pause: bool) -> bool:
        if self._rounds is None:
            return False
        self.stopping(stop)
        self.pausing(pause)
        began, waited = time.perf_counter(), self.traffic.waited
        asks, rounds = bool(self._wants.any()), self._rounds
        more = self.strategy.pass_on(device, self.transport, self.traffic, rounds.done, rounds.total, asks)
        self._spent(time.perf_counter() - began, self.traffic.waited - waited)
        self.traffic.steps += 1
        return more

    def _spent(self, seconds: float, waited: float) -> None:
        """On an exchange, of which it has waited for so long."""
        self._waited += waited
        self._transferred += seconds - waited

    def settle(self, device: Device, updated: Callable[[], None]) -> None:
        through = False
        while not through:
            through = self._exchange(device, through=True)
            updated()
        self.strategy.gather(device, self.transport)

    def _exchange(self, device: Device, through: bool) -> bool:
        """One step of all ranks -> whether all of them are through with their instances."""
        upcoming = self._windows.next() if self.strategy.in_step else ()
        plan = self.strategy.plan(device, self.transport, upcoming)
        told = np.concatenate([self._wants, plan])
        told[THROUGH] = through
        began = time.perf_counter()
        all_reduce(self.transport, told)  # whoever comes first waits here
        met = time.perf_counter()
        # A wish that was granted holds until the next share: ranks come here more than once on the way there.
        self._agreed, self._wants = self._agreed | told[:3], np.zeros(3, np.int64)
        self._waited += met - began
        all_through = int(told[THROUGH]) == self.transport.ranks
        if all_through and self.strategy.in_step:
            return True  # every window has been updated with
        waited = self.traffic.waited
        self.strategy.exchange(device, self.transport, self.traffic, told[3:])
        self._spent(time.perf_counter() - met, self.traffic.waited - waited)
        self.traffic.steps += 1
        return all_through

    def stopping(self, wanted: bool) -> bool:
        self.transport.check()  # between instances, too: the next exchange may be far
        self._wants[STOP] = self._wants[STOP] or wanted
        return bool(self._agreed[STOP])

    def pausing(self, wanted: bool) -> bool:
        agreed = bool(self._agreed[PAUSE])
        self._wants[PAUSE] = self._wants[PAUSE] or (wanted and self.leads and not agreed)
        return agreed

    def total(self, values: Sequence[float]) -> list[float]:
        sums = np.array(values, np.float64)
        all_reduce(self.transport, sums)
        return [float(v) for v in sums]

    def synchronised(self, training: float) -> Synchronised:
        """What it took until now; all ranks call this. training: seconds that this rank has spent on it."""
        names = sorted(self.traffic.sent)
        steps = max(1, self.traffic.steps)
        of_all = self.ranks * steps
        counts = [n for name in names for n in (self.traffic.sent[name], self.traffic.received[name])]
        spent = [max(0.0, training - self._waited - self._transferred), self._waited, self._transferred]
        tables = sorted(self.traffic.touched)
        touched = [self.traffic.touched[name] / steps / self._working for name in tables]
        totals = self.total([*counts, *spent, *touched])
        pairs = zip(totals[: 2 * len(names) : 2], totals[1 : 2 * len(names) : 2], strict=True)
        times = totals[2 * len(names) :][:3]
        return Synchronised(
            self.ranks,
            self.strategy.name,
            self.traffic.steps,
            {n: {"sent": a / of_all, "received": b / of_all} for n, (a, b) in zip(names, pairs, strict=True)},
            dict(zip(("compute", "wait", "transfer"), (t / of_all for t in times), strict=True)),
            dict(zip(tables, totals[2 * len(names) + 3 :], strict=True)),
        )


def _held(device: Device) -> dict[str, str]:
    """A device's parameters: the kinds of numbers, which it chooses for itself, shapes, and values."""
    return {
        f"{node}.{name}": f"{v.dtype}{list(v.shape)} ({hashlib.sha256(v.tobytes()).hexdigest()[:10]})"
        for node, p in sorted(device.parameters().items())
        for name, v in sorted(p.values.items())
    }
