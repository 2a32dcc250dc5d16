"""Strategies at work without a model being computed: what ranks would exchange, and how long that would take.

Strategies and replicas are those of training. Their device stands in for one: it has parameters of the right
shapes, computes nothing, and says that instances have touched the rows that they look up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from amphw.host.null_device import NullDevice
from amphw.host.run_model import InstanceSet
from amphw.ir.config_fields import ConfigError
from amphw.ir.exchange import Names, NodeGradient, Rows
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.sparse import SparseParameter, rows_read, sparse_parameters
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.replicas.packed import Traffic
from amphw.replicas.recorded import Act, Recorder
from amphw.replicas.replica import Replica
from amphw.replicas.run import in_threads
from amphw.replicas.simulated import Machines, play
from amphw.replicas.strategy import Strategy
from amphw.replicas.transport import Transport

STEPS = 3
"""That are rehearsed: more than one, as a rank that is late in one step is late in the next."""


class StandIn(NullDevice):
    """A device that hands out gradients of zeros. parameters: by node; tables: those that are looked up by
    rows. instances: what it has trained on since the last update."""

    def __init__(self, parameters: Mapping[str, NodeParameters], tables: Sequence[SparseParameter]):
        self._parameters = {node: replace(p) for node, p in parameters.items()}
        self._tables = tables
        self.instances: list[Instance] = []

    def update(self, nodes: Sequence[str] | None = None) -> None:
        self.instances = []

    def drain(self) -> list:  # type: ignore[type-arg]
        return []

    def gradients(self, by_rows: Names) -> dict[str, NodeGradient]:
        read = dict(zip(self._tables, rows_read(self._tables, self.instances), strict=True))
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

    def keep(self, names: Names) -> None:
        """Nothing is updated here."""

    def put(self, values: Mapping[str, Mapping[str, np.ndarray | Rows]]) -> None:
        """Values stay as they are: nothing is computed with them."""


@dataclass(frozen=True)
class Work:
    """What one rank trains. window: instances between two updates. seconds: of an instance, on one rank, its
    share of the updates included. scale: by how much the graph's parameters stand for larger ones."""

    graph: Graph
    rules: Mapping[str, UpdateRule]
    parameters: Mapping[str, NodeParameters]
    instances: InstanceSet
    window: int
    seconds: float
    scale: float = 1.0


@dataclass(frozen=True)
class Rehearsed:
    """What ranks do in some steps. acts: by rank. traffic: by rank, of all steps. instances: of all ranks."""

    acts: Sequence[Sequence[Act]]
    traffic: Sequence[Traffic]
    instances: int
    steps: int
    scale: float

    def on(self, machines: Machines) -> Simulated:
        """In simulated time."""
        spent = play(self.acts, machines)
        seconds = max(each.clock for each in spent)
        of_all = len(self.acts) * self.steps
        names = sorted({name for t in self.traffic for name in t.sent})
        tables = sorted({name for t in self.traffic for name in t.touched})
        working = sum(1 for each in spent if each.compute) or 1
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
                n: sum(t.touched.get(n, 0.0) for t in self.traffic) / self.steps / working for n in tables
            },
        )


@dataclass(frozen=True)
class Simulated:
    """instances_per_s: of all ranks together. step: seconds from one update, or average, to the next.
    seconds, bytes: as `replica.Synchronised` has them, of one rank and one step."""

    instances_per_s: float
    step: float
    seconds: Mapping[str, float]
    bytes: Mapping[str, Mapping[str, float]]
    alpha: Mapping[str, float]


def rehearse(
    ranks: int,
    strategy: Callable[[], Strategy],
    work: Work,
    every: int = 0,
    steps: int = STEPS,
    wire: str = "full",
) -> Rehearsed:
    """Some steps of `ranks` ranks. strategy: makes one for each. every: of strategies whose ranks do not go
    in step, the instances of a rank between two exchanges; without it, its share of all of them. wire: as in
    `wire.encode`. Raises ConfigError for a strategy whose ranks meet when they like."""
    one = strategy()
    if one.own_pace:
        raise ConfigError(
            f"replicas.strategy={one.name} has no steps that all ranks make together, so how long one takes "
            "cannot be played; take a strategy whose ranks meet, such as --strategy average"
        )
    tables = sparse_parameters(work.graph)
    recorders: dict[int, Recorder] = {}
    traffic: dict[int, Traffic] = {}

    def follow(transport: Transport) -> None:
        recorder = Recorder(transport, work.scale)
        device = StandIn(work.parameters, tables)
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
    )


def _in_step(mine: Replica, recorder: Recorder, device: StandIn, work: Work, steps: int) -> None:
    working = len(mine.strategy.working(mine.ranks))
    # One window more than there are updates: each pulls the rows of the window after it.
    turning = _Turning(work.instances, working * work.window * (steps + 1))
    windows: Iterable[Instance] = mine.share(device, turning, 0, work.window, 0)
    works = mine.transport.rank < working
    pumped: Iterator[Instance] = iter(windows)
    mine.traffic = Traffic(wire=mine.traffic.wire)  # the first pull belongs to no step
    recorder.acts.clear()
    for _ in range(steps):
        if works:
            device.instances = [next(pumped) for _ in range(work.window)]
            recorder.compute(work.window * work.seconds)
        mine.update(device)
        device.instances = []


def _apart(mine: Replica, recorder: Recorder, device: StandIn, work: Work, every: int, steps: int) -> None:
    recorder.acts.clear()
    for _ in range(steps):
        recorder.compute(_between(work, every, mine.ranks) * work.seconds)
        mine.settle(device, lambda: None)


def _between(work: Work, every: int, ranks: int) -> int:
    return every or max(1, len(work.instances) // ranks)


class _Turning:
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
