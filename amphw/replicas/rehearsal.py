"""Strategies at work without a model being computed: what ranks would exchange, and how long that would take.

Strategies and replicas are those of training. Their device stands in for one: it has parameters of the right
shapes, computes nothing, and says that instances have touched the rows that they look up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from amphw.host.null_device import NullDevice
from amphw.host.run_model import InstanceSet
from amphw.ir.exchange import Names, NodeGradient, Rows
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.sparse import SparseParameter, rows_read, sparse_parameters
from amphw.ir.update import Applied, NodeParameters, UpdateRule
from amphw.replicas.packed import Traffic
from amphw.replicas.recorded import Act, Recorder
from amphw.replicas.replica import Replica
from amphw.replicas.run import in_threads
from amphw.replicas.simulated import Machines, play
from amphw.replicas.strategy import Strategy
from amphw.replicas.transport import Transport
from amphw.replicas.windows import size_of

STEPS = 3
"""That are rehearsed: more than one, as a rank that is late in one step is late in the next."""
WARM_UP = 2
"""Steps before these: what is touched for the first time takes longer."""


class StandIn(NullDevice):
    """A device that hands out gradients of zeros. parameters: by node; tables: those that are looked up by
    rows. instances: what it has trained on since the last update. apart: entered by it for work that is a
    device's."""

    def __init__(
        self,
        parameters: Mapping[str, NodeParameters],
        tables: Sequence[SparseParameter],
        apart: Callable[[], AbstractContextManager[None]] = nullcontext,
    ):
        self._parameters = {node: replace(p) for node, p in parameters.items()}
        self._tables, self._apart = tables, apart
        self.instances: list[Instance] = []
        self._untold = 0

    def train(self, instance: Instance) -> None:
        self.instances.append(instance)
        self._untold += 1

    def tell(self) -> bool:
        return True

    def told(self) -> dict[str, Applied]:
        rows, self._untold = self._untold, 0
        if not rows:
            return {}
        return {
            node: Applied(rows, 1, {name: np.zeros_like(v) for name, v in p.values.items()})
            for node, p in self._parameters.items()
        }

    def update(self, nodes: Sequence[str] | None = None) -> None:
        self.instances = []

    def drain(self) -> list:  # type: ignore[type-arg]
        return []

    def gradients(self, by_rows: Names) -> dict[str, NodeGradient]:
        with self._apart():
            return self._zeros(by_rows)

    def _zeros(self, by_rows: Names) -> dict[str, NodeGradient]:
        rows = rows_read(self._tables, self.instances) if any(by_rows.values()) else ()
        read = dict(zip(self._tables, rows, strict=False))
        found = {}
        for node, p in self._parameters.items():
            tables = {
                t.name: Rows(numbers, np.zeros((len(numbers), t.shape[1]), p.values[t.name].dtype))
                for t, numbers in read.items()
                if t.node == node and t.name in by_rows.get(node, ())
            }
            arrays = {name: np.zeros_like(v) for name, v in p.values.items() if name not in tables}
            found[node] = NodeGradient(len(self.instances), arrays, tables)
        return found

    def give(self, gradients: Mapping[str, NodeGradient]) -> None:
        """Zeros change nothing."""

    def keep(self, names: Names, away: Names) -> None:
        """Nothing is updated here."""

    def put(self, values: Mapping[str, Mapping[str, np.ndarray | Rows]]) -> None:
        """Values stay as they are: nothing is computed with them."""

    def pulled(self) -> dict[str, dict[str, Rows]]:
        return {}


@dataclass(frozen=True)
class Pace:
    """How fast a rank is. seconds: of an instance, its share of the updates included; size: of such an
    instance (`windows.size_of`), with which its time grows; 0: all take as long. varies: factors by which
    windows of one size differ, to be drawn from; none: they do not."""

    seconds: float
    size: float = 0.0
    varies: Sequence[float] = ()

    def of(self, instances: Sequence[Instance] | InstanceSet, chance: np.random.Generator) -> float:
        """Seconds of these, between two exchanges."""
        count = float(len(instances))
        if self.size:
            count = sum(size_of(instances[k]) for k in range(len(instances))) / self.size
        factor = float(chance.choice(self.varies)) if len(self.varies) else 1.0
        return self.seconds * count * factor


@dataclass(frozen=True)
class Work:
    """What one rank trains. window: instances between two updates. scale: by how much the graph's parameters
    stand for larger ones."""

    graph: Graph
    rules: Mapping[str, UpdateRule]
    parameters: Mapping[str, NodeParameters]
    instances: InstanceSet
    window: int
    pace: Pace
    scale: float = 1.0


@dataclass(frozen=True)
class Rehearsed:
    """What ranks do in some steps. acts: by rank. traffic: by rank, of all steps. instances: of all ranks.
    working: how many ranks train."""

    acts: Sequence[Sequence[Act]]
    traffic: Sequence[Traffic]
    instances: int
    steps: int
    scale: float
    working: int

    def on(self, machines: Machines) -> Simulated:
        """In simulated time."""
        spent = play(self.acts, machines)
        seconds = max(each.clock for each in spent)
        of_all = len(self.acts) * self.steps
        names = sorted({name for t in self.traffic for name in t.sent})
        tables = sorted({name for t in self.traffic for name in t.touched})
        return Simulated(
            instances_per_s=self.instances / seconds,
            step=seconds / self.steps,
            seconds={
                what: sum(getattr(each, what) for each in spent) / of_all
                for what in ("compute", "wait", "transfer")
            },
            bytes={
                name: {
                    way: sum(getattr(t, way).get(name, 0) for t in self.traffic) * self.scale / of_all
                    for way in ("sent", "received")
                }
                for name in names
            },
            alpha={
                n: sum(t.touched.get(n, 0.0) for t in self.traffic) / self.steps / self.working
                for n in tables
            },
            computing=sum(each.compute for each in spent) / self.working / self.steps,
        )


@dataclass(frozen=True)
class Simulated:
    """instances_per_s: of all ranks together. step: seconds from one update, or average, to the next.
    seconds, bytes: as `replica.Synchronised` has them, of one rank and one step. computing: seconds that a
    rank which trains computes in a step. own: of ranks at their own pace, whose steps are rounds, what their
    strategy alone has to say."""

    instances_per_s: float
    step: float
    seconds: Mapping[str, float]
    bytes: Mapping[str, Mapping[str, float]]
    alpha: Mapping[str, float]
    computing: float
    own: Mapping[str, Any] = field(default_factory=dict)


def rehearse(
    ranks: int,
    strategy: Callable[[], Strategy],
    work: Work,
    every: int = 0,
    steps: int = STEPS,
    wire: str = "full",
    clock: Callable[[], float] | None = None,
) -> Rehearsed:
    """Some steps of `ranks` ranks. strategy: makes one for each. every: of strategies whose ranks do not go
    in step, the instances of a rank between two exchanges; without it, its share of all of them. wire: as in
    `wire.encode`. clock: as a `Recorder` has it; with it, what exchanging takes a processor here is counted.
    For ranks that go in step, or meet from time to time; see `at_own_pace` for others."""
    one = strategy()
    tables = sparse_parameters(work.graph)
    recorders: dict[int, Recorder] = {}
    traffic: dict[int, Traffic] = {}

    def follow(transport: Transport) -> None:
        recorder = Recorder(transport, work.scale, clock)
        device = StandIn(work.parameters, tables, recorder.apart)
        mine = Replica(recorder, strategy(), every, wire=wire)
        # Without `mine.begin`, which compares what is the same here by construction.
        mine.strategy.begin(device, recorder, work.graph, work.rules)
        if mine.strategy.in_step:
            _in_step(mine, recorder, device, work, steps)
        else:
            _apart(mine, recorder, device, work, every, steps)
        recorders[transport.rank], traffic[transport.rank] = recorder, mine.traffic

    with in_threads(ranks, follow) as first:
        follow(first)
    in_window = work.window if one.in_step else _between(work, every, ranks)
    return Rehearsed(
        [recorders[k].acts for k in range(ranks)],
        [traffic[k] for k in range(ranks)],
        len(one.working(ranks)) * in_window * steps,
        steps,
        work.scale,
        len(one.working(ranks)),
    )


def _in_step(mine: Replica, recorder: Recorder, device: StandIn, work: Work, steps: int) -> None:
    working = len(mine.strategy.working(mine.ranks))
    # One window more than there are updates: each pulls the rows of the window after it.
    turning = Turning(work.instances, working * work.window * (steps + 1 + WARM_UP))
    windows: Iterable[Instance] = mine.share(device, turning, 0, work.window, 0, lambda: 0.0)
    works = mine.transport.rank < working
    pumped: Iterator[Instance] = iter(windows)
    chance = np.random.default_rng(mine.transport.rank)
    for number in range(WARM_UP + steps):
        if number == WARM_UP:
            _forget(mine, recorder)
        if works:
            device.instances = [next(pumped) for _ in range(work.window)]
            with recorder.apart():
                seconds = work.pace.of(device.instances, chance)
            recorder.compute(seconds)
        mine.update(device)
        device.instances = []


def _apart(mine: Replica, recorder: Recorder, device: StandIn, work: Work, every: int, steps: int) -> None:
    chance, count = np.random.default_rng(mine.transport.rank), _between(work, every, mine.ranks)
    for number in range(WARM_UP + steps):
        if number == WARM_UP:
            _forget(mine, recorder)
        with recorder.apart():
            seconds = work.pace.of(Turning(work.instances, count), chance)
        recorder.compute(seconds)
        mine.settle(device, lambda: None)


def _forget(mine: Replica, recorder: Recorder) -> None:
    """What was done until now belongs to no step, such as the first pull. What the processor has done since
    the last message does, in the place of as much after the last step's, which is not written down."""
    mine.traffic = Traffic(wire=mine.traffic.wire)
    recorder.acts.clear()


def _between(work: Work, every: int, ranks: int) -> int:
    return every or max(1, len(work.instances) // ranks)


class Turning:
    """As many instances as are asked for, from the first again after the last."""

    def __init__(self, instances: InstanceSet, count: int):
        self._instances, self._count = instances, count

    @property
    def size(self) -> int:
        return self._count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int, /) -> Instance:
        return replace(self._instances[index % len(self._instances)])
