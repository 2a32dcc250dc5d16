"""One replica among others, as the host knows it (`host.replication.Replication`)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from amphw.host.gradients import Clipping
from amphw.host.rank_trace import RankTrace
from amphw.host.records import RankFigures
from amphw.host.replication import Share
from amphw.host.run_model import InstanceSet
from amphw.host.trace import Trace
from amphw.ir.device import Device, Weighs
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.sparse import dense_tables, sparse_parameters
from amphw.ir.update import UpdateRule
from amphw.replicas.agree import check_alike
from amphw.replicas.collectives import all_reduce, ranges
from amphw.replicas.packed import Traffic, add_up
from amphw.replicas.rounds import Rounds
from amphw.replicas.strategy import Strategy
from amphw.replicas.trace import Recorded, Recorder, gather_traces
from amphw.replicas.transport import Transport
from amphw.replicas.windows import Windows
from amphw.replicas.wire import coded_kind

STOP, PAUSE, THROUGH = range(3)
SPENT = ("compute", "wait", "transfer", "gather")
"""What a rank spends seconds on; the last is bringing all that servers own to the first rank, to be saved."""


@dataclass(frozen=True)
class Synchronised:
    """What keeping together took, of one rank and one step, on average over all.

    bytes: sent and received, by parameter. seconds: by what they were for. alpha: of tables that are
    exchanged by rows, the share of rows that a rank touches in a step (Parallax, Table 1). parameter_bytes:
    the room that parameters take on a rank: on its device, the most while it trained (0: it does not say),
    and as a server, with the optimisers' arrays. per_rank: what each did in all, since the run began or went
    on. traces: of each, on the first rank; none without `train.trace`. formula: bytes each way, of the
    parameters that the strategy has one for. dense: tables that are exchanged whole, and why. own:
    `Strategy.told`.
    """

    ranks: int
    strategy: str
    steps: int
    bytes: dict[str, dict[str, float]]
    seconds: dict[str, float]
    alpha: dict[str, float]
    parameter_bytes: dict[str, float]
    per_rank: list[RankFigures]
    traces: list[RankTrace]
    formula: dict[str, float]
    dense: dict[str, str]
    own: dict[str, Any]


class Replica:
    """Ranks make the same exchanges in the same order; a rank that has run out of instances takes part with
    zero rows.

    every: of a strategy whose ranks do not go in step, the instances of one rank between two exchanges; 0:
    its share of an epoch or, where ranks go at their own pace, `Strategy.usual_every`. updates: of such a
    strategy, too, and in place of `every`: how often a node has updated between two exchanges, on average
    over nodes. clip_norm: the same: `train.clip_norm`, for a rank's own gradients. traces: whether messages
    and exchanges are noted. wire: as in `wire.encode`.
    """

    def __init__(
        self,
        transport: Transport,
        strategy: Strategy,
        every: int = 0,
        clip_norm: float = 0.0,
        traces: bool = False,
        wire: str = "full",
        updates: int = 0,
    ):
        self._recorded = Recorded(transport) if traces else None
        self._recorder = Recorder() if traces else None
        self.transport: Transport = self._recorded or transport
        self.strategy, self._every, self._updates = strategy, every, updates
        self._clip_norm, self._clipping = clip_norm, Clipping()
        self.leads, self.ranks = transport.rank == 0, transport.ranks
        working = strategy.working(self.ranks)
        self._working, self._works = len(working), transport.rank in working
        self.traffic = Traffic(wire=wire)
        if self._recorder is not None:
            self.traffic.note = self._note
        self._rounds: Rounds | None = None
        self._waited = self._transferred = self._gathered = 0.0
        self._held = 0  # bytes of the device's parameters, at most
        self._told = np.zeros(
            5
        )  # what this rank had waited, transferred, sent, received, gathered at `figures`
        self._per_rank: list[RankFigures] = []
        self._wants = np.zeros(3, np.int64)
        self._agreed = np.zeros(3, np.int64)

    def begin(
        self, device: Device, place: Sequence[int], graph: Graph, rules: Mapping[str, UpdateRule]
    ) -> None:
        check_alike(self.transport, {"place": str(list(place)), **_held(device)})
        self._clipping = Clipping(self._clip_norm, rules)
        self._know(device, graph)
        self.strategy.begin(device, self.transport, graph, rules)

    def _know(self, device: Device, graph: Graph) -> None:
        """What there is to say of parameters when the run has ended."""
        inside = {node for group in graph.replicas for node in group}  # averaged by each rank, as well
        self._sizes = {
            f"{node}.{name}": a.size * coded_kind(a.dtype, self.traffic.wire).itemsize
            for node, p in device.parameters().items()
            for name, a in p.tensors().items()
            if node not in inside
        }
        self._dense = dense_tables(graph)
        if not self.strategy.in_step:
            why = f"{self.strategy.name} exchanges whole {self.strategy.moves_whole}"
            self._dense |= {f"{p.node}.{p.name}": why for p in sparse_parameters(graph)}

    def moved(self, device: Device) -> None:
        self.strategy.moved(device)

    def share(
        self,
        device: Device,
        instances: InstanceSet,
        start: int,
        window: int,
        first: int,
        updated: Callable[[], float],
    ) -> Iterable[Instance]:
        self._agreed = np.zeros(3, np.int64)  # what was agreed on before these instances is done with
        end = len(instances)
        if self.strategy.own_pace or self._updates:
            every = self._updates or self._every or self.strategy.usual_every(window)
            measure = updated if self._updates else None
            rank, asks = self.transport.rank if self._works else None, lambda: bool(self._wants.any())
            self._rounds = rounds = Rounds(instances, start, every, rank, self._working, first, measure, asks)
            self.strategy.pumping(device, self.transport, self.traffic, rounds)
            return rounds
        if self._every and not self.strategy.in_step:
            end = min(end, start + self._every * self.ranks)
        if not self.strategy.in_step:
            return self._part(instances, start, end, first)
        rank = self.transport.rank if self._works else None
        look = self.strategy.look_ahead
        self._windows = Windows(instances, start, window, first, rank, self._working, look)
        for _ in range(2):  # whoever pumps looks ahead into the window after the next
            sizes = self._windows.sizes()
            self._meet(sizes)
            self._windows.deal(sizes)
        upcoming = self._windows.next()
        with self._moving("fetch"):
            self.strategy.place(device, self.transport, upcoming)
            self.strategy.fetch(device, self.transport, self.traffic, upcoming)
        return self._windows

    def validating(self, device: Device, instances: InstanceSet) -> Share:
        share = self._part(instances, 0, len(instances), 0)
        self.strategy.fetch(device, self.transport, Traffic(), share)  # belongs to no step
        self.transport.flush()
        return share

    def _part(self, instances: InstanceSet, start: int, end: int, first: int) -> Share:
        """Of as many equal parts of `instances[start:end]` as there are working ranks, this rank's."""
        part = ranges(end - start, self._working)[self.transport.rank] if self._works else slice(0, 0)
        return Share(instances, range(start + part.start, start + part.stop), first)

    def update(self, device: Device) -> None:
        if self.strategy.in_step:
            self._exchange(device, through=False)
        else:
            self.strategy.update(device, self._clipping)

    def look(self) -> None:
        began = time.perf_counter()
        if self.strategy.look(self.transport, self.traffic):
            self._transferred += time.perf_counter() - began

    def goes_on(self, device: Device, stop: bool, pause: bool) -> bool:
        rounds = self._rounds
        if rounds is None:
            return False
        self.stopping(stop)
        self.pausing(pause)
        if self.strategy.own_pace:
            began, waited = time.perf_counter(), self.traffic.waited
            asks = bool(self._wants.any())
            self.strategy.pass_on(device, self.transport, self.traffic, rounds, asks)
            self._spent(began, self.traffic.waited - waited)
            if rounds.more():
                self.strategy.pumping(device, self.transport, self.traffic, rounds)
        elif rounds.limit is None:  # all meet where the rank is that needs the most instances
            taken = np.zeros(self.ranks, np.int64)
            taken[self.transport.rank] = rounds.done
            self._meet(taken)
            rounds.limit = int(taken.max())
        return rounds.more()

    def retired(self) -> None:
        if self._rounds is not None:
            self._rounds.retired()

    def _spent(self, began: float, waited: float) -> None:
        """On an exchange since then, of which it has waited for so long."""
        self.transport.flush()
        done = time.perf_counter()
        self._waited += waited
        self._transferred += done - began - waited
        self._note("transfer", began, done)

    def settle(self, device: Device, updated: Callable[[], None]) -> None:
        through = False
        while not through:
            through = self._exchange(device, through=True)
            if self.strategy.in_step and not through:
                updated()
        began = time.perf_counter()
        self.strategy.gather(device, self.transport)
        self.transport.flush()
        if self.strategy.in_step:
            self.total([])  # the others wait until the first rank has it all, which is their part of it
        ended = time.perf_counter()
        self._gathered += ended - began
        self._note("gather", began, ended)

    def _meet(self, told: np.ndarray) -> float:
        """Wait until all ranks are here -> when that is. told: becomes the sum over all ranks."""
        began = time.perf_counter()
        add_up(self.transport, told)
        met = time.perf_counter()
        self._waited += met - began
        self._note("wait", began, met, moves=False)
        return met

    @contextmanager
    def _moving(self, what: str) -> Iterator[None]:
        """Inside, parameters come to this rank, or leave it, outside of an exchange."""
        began = time.perf_counter()
        yield
        self.transport.flush()
        ended = time.perf_counter()
        self._transferred += ended - began
        self._note(what, began, ended)

    def _note(self, what: str, began: float, ended: float, moves: bool = True) -> None:
        """For the trace. moves: whether bytes were moved."""
        if self._recorder is not None:
            self._recorder.add(what, began, ended, self.traffic.moved() if moves else None)

    def _exchange(self, device: Device, through: bool) -> bool:
        """One step of all ranks -> whether all of them are through with their instances."""
        in_step = self.strategy.in_step
        if in_step:
            self._windows.next()
        plan = self.strategy.plan(device, self.transport)
        sizes = self._windows.sizes() if in_step else np.zeros(0, np.int64)
        told = np.concatenate([self._wants, sizes, plan])
        told[THROUGH] = through
        met = self._meet(told)  # whoever comes first waits here
        # A wish that was granted holds until the next share: ranks come here more than once on the way there.
        self._agreed, self._wants = self._agreed | told[:3], np.zeros(3, np.int64)
        all_through = int(told[THROUGH]) == self.transport.ranks
        if in_step:
            if all_through:
                return True  # every window has been updated with
            self._windows.deal(told[3:][: len(sizes)])
        waited = self.traffic.waited
        self.strategy.exchange(device, self.transport, self.traffic, told[3 + len(sizes) :])
        self._spent(met, self.traffic.waited - waited)
        self.traffic.steps += 1
        if isinstance(device, Weighs):
            self._held = max(self._held, device.parameter_bytes())
        return all_through

    def stopping(self, wanted: bool) -> bool:
        self.strategy.check(self.transport)  # between instances, too: the next exchange may be far
        self._wants[STOP] = self._wants[STOP] or wanted
        return bool(self._agreed[STOP])

    def pausing(self, wanted: bool) -> bool:
        agreed = bool(self._agreed[PAUSE])
        self._wants[PAUSE] = self._wants[PAUSE] or (wanted and self.leads and not agreed)
        return agreed

    def total(self, values: Sequence[float]) -> list[float]:
        sums = np.array(values, np.float64)
        all_reduce(self.transport, sums)
        self.transport.flush()
        return [float(v) for v in sums]

    def figures(self, instances: float, seconds: float, staleness: tuple[float, float]) -> list[RankFigures]:
        sent, received = sum(self.traffic.sent.values()), sum(self.traffic.received.values())
        moved = self._transferred + self._gathered
        so_far = np.array([self._waited, moved, sent, received, self._gathered], np.float64)
        waited, transferred, sent, received, gathered = so_far - self._told
        self._told = so_far
        compute = max(0.0, seconds - waited - transferred)
        mine = [instances, compute, waited, transferred, sent, received, *staleness, gathered]
        everybody = np.zeros((self.ranks, len(mine)))
        everybody[self.transport.rank] = mine
        rows = np.reshape(self.total(everybody.reshape(-1).tolist()), everybody.shape).tolist()
        found = [RankFigures(rank, *row) for rank, row in enumerate(rows)]
        before = self._per_rank
        self._per_rank = [b.after(a) for a, b in zip(before, found, strict=True)] if before else found
        return found

    def explained(self) -> list[str]:
        return self.strategy.explained()

    def close(self) -> None:
        self.strategy.close()

    def synchronised(self, training: float, trace: Trace | None = None) -> Synchronised:
        """What it took until now; all ranks call this. training: seconds that this rank has spent on it.
        trace: of its workers."""
        names = sorted(self.traffic.sent)
        steps = max(1, self.traffic.steps)
        of_all = self.ranks * steps
        counts = [n for name in names for n in (self.traffic.sent[name], self.traffic.received[name])]
        apart = [self._waited, self._transferred, self._gathered]
        spent = [max(0.0, training - sum(apart)), *apart]
        tables = sorted(self.traffic.touched)
        touched = [self.traffic.touched[name] / steps / self._working for name in tables]
        room = [self._held / self.ranks, self.strategy.owned_bytes / self.ranks]
        *totals, held, owned = self.total([*counts, *spent, *touched, *room])
        pairs = zip(totals[: 2 * len(names) : 2], totals[1 : 2 * len(names) : 2], strict=True)
        times = totals[2 * len(names) :][: len(SPENT)]
        alpha = dict(zip(tables, totals[2 * len(names) + len(SPENT) :], strict=True))
        known = {n: self._sizes[n] for n in names if n in self._sizes}
        formula = {n: self.strategy.moves(self.ranks, size, alpha.get(n)) for n, size in known.items()}
        return Synchronised(
            self.ranks,
            self.strategy.name,
            self.traffic.steps,
            {n: {"sent": a / of_all, "received": b / of_all} for n, (a, b) in zip(names, pairs, strict=True)},
            dict(zip(SPENT, (t / of_all for t in times), strict=True)),
            alpha,
            {"device": held, "servers": owned},
            self._per_rank,
            self._traces(trace),
            {name: size for name, size in formula.items() if size is not None},
            {**self._dense, **self.strategy.whole},
            self.strategy.told(self.transport),
        )

    def _traces(self, trace: Trace | None) -> list[RankTrace]:
        if self._recorded is None:
            return []
        messages = list(self._recorded.messages)
        slices = trace.slices() if trace is not None and not self.leads else []  # the first writes its own
        phases = list(self._recorder.phases) if self._recorder is not None else []
        mine = RankTrace(self.transport.rank, slices, phases, messages)
        return gather_traces(self.transport, mine)


def _held(device: Device) -> dict[str, str]:
    """A device's parameters: the kinds of numbers, which it chooses for itself, shapes, and values."""

    def digest(v: np.ndarray) -> str:
        return hashlib.sha256(np.ascontiguousarray(v).data).hexdigest()[:10]

    return {
        f"{node}.{name}": f"{v.dtype}{list(v.shape)} ({digest(v)})"
        for node, p in sorted(device.parameters().items())
        for name, v in sorted(p.values.items())
    }
