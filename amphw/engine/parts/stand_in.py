"""Parts that compute nothing: one that answers at once, and one that takes the time a device would take."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from amphw.engine.lowering.lower import Lowered, Unit
from amphw.engine.parts.links import frame_bytes
from amphw.engine.parts.part import NodeTime, PartFrame, PartResult
from amphw.engine.policy import BACKWARD, FORWARD
from amphw.ir.device import Capabilities, DeviceOptions, LinkRate, LinkUse, Mode, Statistics
from amphw.ir.errors import AmphwError
from amphw.ir.flops import products
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.units import written
from amphw.ir.update import NodeParameters, UpdateRule, initial_parameters, no_parameters


class NullPart:
    """Every output and every gradient is 0; parameters stay as they are."""

    depth = 1

    def __init__(self, about: Capabilities):
        self.about = about

    def capabilities(self) -> Capabilities:
        return self.about

    def refused(self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule]) -> str:
        return ""

    def node_time(
        self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule], rows: Mapping[str, float]
    ) -> NodeTime | None:
        """See `TellsTime`."""
        return NodeTime(0.0, 0.0, 0.0, "stated", "computes nothing")

    def load(
        self,
        graph: Graph,
        lowered: Lowered,
        units: Sequence[Unit],
        rules: Mapping[str, UpdateRule],
        options: DeviceOptions,
    ) -> None:
        owners = {u.name: graph.nodes[u.name].params for u in units if u.owns}
        self._params = initial_parameters(owners, dict(rules), options.seed)
        self._units = {u.index: u for u in units}
        self._done: deque[PartResult] = deque()

    def begin(self, slot: int, generation: int, instance: Instance, mode: Mode) -> bool:
        return True

    def end(self, slot: int) -> None:
        pass

    def start(self, frame: PartFrame) -> None:
        self._done.append(nothing(self._units[frame.unit], frame))

    def finished(self, timeout: float) -> list[PartResult]:
        done = list(self._done)
        self._done.clear()
        return done

    def update(self, nodes: Sequence[str]) -> None:
        pass

    def parameters(self) -> dict[str, NodeParameters]:
        return self._params

    def statistics(self) -> Statistics:
        return Statistics()

    def close(self) -> None:
        pass


def nothing(unit: Unit, frame: PartFrame) -> PartResult:
    """Zeros for all that the frame's firings send; a decided field is 0."""
    if frame.kind == BACKWARD:
        gradients = [
            np.zeros((frame.totals[o.space], o.width), np.float32) if o.needs_gradient else None
            for o in unit.operands
        ]
        return PartResult(frame.number, gradients)
    program = unit.behaviour.program
    assert program is not None
    outputs = [
        None if t.kind == "int" else np.zeros((frame.totals[t.space], t.width), np.float32)
        for t in program.outputs_types
    ]
    decided = [np.zeros(len(frame.slots), np.int64) for _ in unit.behaviour.decides]
    return PartResult(frame.number, outputs, decided)


@dataclass
class Cost:
    """Floating-point operations of a node: for each row forward, backward and of the gradient; of an update.

    2 * k * din * dout for k rows of a layer of din x dout in each direction, din * dout for an update
    (AMPNet, ICLR 2018 submission HJnQJXbC-, appendix C).
    """

    row: float
    update: float

    @classmethod
    def of(cls, unit: Unit) -> Cost:
        program = unit.behaviour.program
        assert program is not None
        numbers = [int(np.prod(p.shape)) for p in program.params]
        return cls(float(sum(products(program).values())), float(sum(numbers)))

    def work(self, rows: float, kind: int) -> float:
        """Of a frame of so many rows, less updates."""
        return self.row * rows * (2 if kind == BACKWARD else 1)


@dataclass
class _Lines:
    """Both directions of a link; without a rate, everything is there at once. Seconds of `perf_counter`."""

    rate: LinkRate | None

    def __post_init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.sent = self.came = 0
        self.to_free = self.back_free = self.busy_to = self.busy_back = self.idle = 0.0

    def arrival(self, frame: PartFrame, now: float, free: float) -> float:
        """When a frame that sets out now is there. free: from when on the device has nothing else to do."""
        if self.rate is None:
            return now
        size = _bytes(frame, frame.arrays, frame.ints)
        took = 8 * size / self.rate.bits_per_s
        self.to_free = max(self.to_free, now) + took
        there = self.to_free + self.rate.latency
        self.sent, self.busy_to = self.sent + size, self.busy_to + took
        self.idle += max(0.0, there - max(now, free))
        return there

    def back(self, frame: PartFrame, result: PartResult, now: float) -> float:
        if self.rate is None:
            return now
        size = _bytes(frame, result.arrays, result.decided)
        took = 8 * size / self.rate.bits_per_s
        self.back_free = max(self.back_free, now) + took
        self.came, self.busy_back = self.came + size, self.busy_back + took
        return self.back_free + self.rate.latency

    def use(self, seconds: float) -> LinkUse:
        assert self.rate is not None
        return LinkUse(self.rate, self.sent, self.came, seconds, self.busy_to, self.busy_back, self.idle)


def _bytes(frame: PartFrame, arrays: Sequence[np.ndarray | None], ints: Sequence[np.ndarray]) -> int:
    floats = sum(a.size for a in arrays if a is not None)
    return int(frame_bytes(len(frame.slots), floats, sum(a.size for a in ints)))


class SleepPart(NullPart):
    """Takes as long as a device of `flops` operations a second, one frame after another; computes nothing."""

    depth = 64

    def __init__(self, about: Capabilities, flops: float):
        super().__init__(about)
        self.flops = flops
        self._link = _Lines(None)

    def models_link(self) -> bool:
        """See `ModelsLink`: frames take their time on the way, in each direction one after another."""
        return True

    def state_link(self, rate: LinkRate) -> None:
        self._link = _Lines(rate)
        self.about = replace(self.about, link=rate)

    def link_use(self) -> LinkUse:
        return self._link.use(time.perf_counter() - self._loaded_at)

    def node_time(
        self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule], rows: Mapping[str, float]
    ) -> NodeTime | None:
        """See `TellsTime`."""
        cost = Cost.of(unit)
        forward, backward = (cost.work(rows["rows"], kind) / self.flops for kind in (FORWARD, BACKWARD))
        how = f"operations of its products at {written(self.flops, 'FLOPS')}"
        return NodeTime(forward, backward, cost.update / self.flops, "stated", how)

    def load(
        self,
        graph: Graph,
        lowered: Lowered,
        units: Sequence[Unit],
        rules: Mapping[str, UpdateRule],
        options: DeviceOptions,
    ) -> None:
        super().load(graph, lowered, units, rules, options)
        self._costs = {u.name: Cost.of(u) for u in units}
        self._self_updating = options.updates == "self"
        self._waits: deque[tuple[float, PartResult]] = deque()
        self._loaded_at = time.perf_counter()
        self._link.clear()
        self._free_at = 0.0
        self._updates = 0

    def start(self, frame: PartFrame) -> None:
        unit = self._units[frame.unit]
        cost = self._costs[unit.name]
        rows = frame.totals["rows"]
        work = cost.work(rows, frame.kind)
        if frame.kind == BACKWARD and unit.name in self._params:
            work += self._counted(self._params[unit.name], rows) * cost.update
        there, result = self._link.arrival(frame, time.perf_counter(), self._free_at), nothing(unit, frame)
        self._take_time(there, work)
        self._waits.append((self._link.back(frame, result, self._free_at), result))

    def _take_time(self, there: float, operations: float) -> None:
        """Work on what is there at that time, after everything else."""
        self._free_at = max(self._free_at, there) + operations / self.flops

    def _counted(self, params: NodeParameters, rows: int) -> int:
        """Count gradient rows -> updates that they bring."""
        params.rows += rows
        return self._updated(params) if self._self_updating and params.due else 0

    def _updated(self, params: NodeParameters) -> int:
        """Apply the rows that there are -> updates."""
        if not params.rows:
            return 0
        params.rows = 0
        params.version += 1
        self._updates += 1
        return 1

    def finished(self, timeout: float) -> list[PartResult]:
        now = time.perf_counter()
        if self._waits and self._waits[0][0] > now:
            time.sleep(min(timeout, self._waits[0][0] - now))
            now = time.perf_counter()
        done = []
        while self._waits and self._waits[0][0] <= now:
            done.append(self._waits.popleft()[1])
        return done

    def update(self, nodes: Sequence[str]) -> None:
        for name in nodes:
            if name not in self._params:
                raise AmphwError(no_parameters(name))
            updates = self._updated(self._params[name])
            self._take_time(time.perf_counter(), updates * self._costs[name].update)

    def statistics(self) -> Statistics:
        updates, self._updates = self._updates, 0
        return Statistics(updates=updates)
