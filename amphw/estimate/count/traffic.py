"""How often nodes fire and messages cross edges, counted on instances of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from amphw.engine.lowering.lower import Lowered, Unit, choices
from amphw.engine.lowering.plan import build_plan
from amphw.engine.numpy_plane.slots import SlotPlan, finish_plan
from amphw.estimate.count.firings import Decides, Walk, message_bytes, value_at, walk
from amphw.ir.device import DeviceOptions, Direction, Mode
from amphw.ir.errors import AmphwError
from amphw.ir.flops import pairs_in, rows_of
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice

PLANNED = "counted in the plans of the instances"
REFERENCE = "counted on the reference, with the decisions that the model takes before it is trained"


@dataclass(frozen=True)
class Spread:
    """How a count is distributed over instances. p95: the 95th percentile, between two counts if need be."""

    mean: float
    least: float
    median: float
    p95: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        found = np.asarray(values, float)
        middle, high = np.percentile(found, (50, 95))
        return cls(float(found.mean()), float(found.min()), float(middle), float(high), float(found.max()))

    def times(self, factor: float) -> Spread:
        """Of so many times the values."""
        return Spread(*(factor * value for value in astuple(self)))


@dataclass(frozen=True)
class NodeRate:
    """Of one node and an instance: firings, rows by space, pairs of rows that meet in a firing by the name
    under which their operations are counted (`amphw.ir.flops`), and messages that it takes."""

    firings: Spread
    rows: Mapping[str, Spread]
    pairs: Mapping[str, Spread]
    received: Spread

    def rows_of_a_firing(self) -> dict[str, float]:
        """By space, on average."""
        each = max(self.firings.mean, 1e-12)
        return {space: rows.mean / each for space, rows in self.rows.items()}


@dataclass(frozen=True)
class EdgeRate:
    """From an output of a node to an operand of another: messages and their bytes for an instance.

    returned: whether as many bytes of gradients come back. If not, messages without any do.
    """

    source: str
    output: int
    target: str
    port: str
    messages: Spread
    bytes: Spread
    returned: bool


@dataclass(frozen=True)
class Firing:
    """What decides how long one takes. rows: by space. needs, sends: messages, forward."""

    rows: tuple[tuple[str, int], ...]
    needs: int
    sends: int


@dataclass(frozen=True)
class Traffic:
    """nodes: by name, those that compute. edges: with the routing between nodes compiled in. messages:
    forward ones of an instance, as a device counts them; as many come back. origin: how it was counted.
    walks: the instances."""

    lowered: Lowered
    nodes: Mapping[str, NodeRate]
    edges: Sequence[EdgeRate]
    messages: Spread
    origin: str
    walks: Sequence[Walk]
    plans: Sequence[SlotPlan]

    @cached_property
    def firings(self) -> Sequence[Mapping[int, Firing]]:
        """Those that occur, by instance and by their number in its shape."""
        return [
            {at: _firing(walked, plan, at) for at in walked.order}
            for walked, plan in zip(self.walks, self.plans, strict=True)
        ]

    @cached_property
    def alike(self) -> Mapping[int, Counter[Firing]]:
        """How many firings of each unit are alike, in all instances."""
        found: dict[int, Counter[Firing]] = {}
        for walked, firings in zip(self.walks, self.firings, strict=True):
            for at, one in firings.items():
                found.setdefault(walked.shape.unit[at], Counter())[one] += 1
        return found

    def rows_by_instance(self, node: str) -> dict[str, list[int]]:
        """Of a node that computes: rows of each instance, by space, and pairs of them."""
        return _rows(self.lowered.units[self.lowered.by_name[node]], self.walks, self.plans)


def count(lowered: Lowered, instances: Sequence[Instance]) -> Traffic:
    """Count the messages of these instances on the lowered graph.

    Where a node decides by its values where messages go, the reference runs the instances with initial
    parameters. Raises AmphwError without instances.
    """
    if not instances:
        raise AmphwError("messages are counted on instances, and there are none: let there be some")
    decide = any(u.decisions > 1 for u in lowered.units)
    plans = [finish_plan(lowered, build_plan(lowered, i)) for i in instances]
    walks = [
        walk(lowered, plan, _decisions(lowered, plan, instance) if decide else None)
        for plan, instance in zip(plans, instances, strict=True)
    ]
    computing = [u for u in lowered.units if u.behaviour.program is not None]
    nodes = {u.name: _node(u, walks, plans) for u in computing}
    origin = REFERENCE if decide else PLANNED
    messages = Spread.of([w.messages for w in walks])
    return Traffic(lowered, nodes, _edges(lowered, walks, plans), messages, origin, walks, plans)


def _firing(walked: Walk, plan: SlotPlan, at: int) -> Firing:
    spaces, number = plan.units[walked.shape.unit[at]].spaces, walked.at[at]
    rows = tuple((space, value_at(values, number)) for space, values in spaces.items())
    return Firing(rows, walked.shape.need[at], len(walked.shape.targets[at]))


def _node(unit: Unit, walks: Sequence[Walk], plans: Sequence[SlotPlan]) -> NodeRate:
    firings, received = [], []
    for w in walks:
        mine = _mine(unit, w)
        firings.append(len(mine))
        received.append(sum(w.shape.need[at] for at in mine))
    spreads = {name: Spread.of(of) for name, of in _rows(unit, walks, plans).items()}
    rows = {space: spreads.pop(space) for space, _ in unit.behaviour.spaces}
    return NodeRate(Spread.of(firings), rows, spreads, Spread.of(received))


def _mine(unit: Unit, walked: Walk) -> list[int]:
    """The unit's firings in an instance."""
    return [at for at in walked.order if walked.shape.unit[at] == unit.index]


def _rows(unit: Unit, walks: Sequence[Walk], plans: Sequence[SlotPlan]) -> dict[str, list[int]]:
    """Of each instance, by space, and pairs of rows by their name."""
    program, derivative = unit.behaviour.program, unit.derivative
    meeting = [] if program is None or derivative is None else pairs_in(program, derivative)
    counted: dict[str, list[int]] = {name: [] for name in [*(s for s, _ in unit.behaviour.spaces), *meeting]}
    for w, plan in zip(walks, plans, strict=True):
        spaces, mine = plan.units[unit.index].spaces, [w.at[at] for at in _mine(unit, w)]
        rows = [{space: value_at(of, number) for space, of in spaces.items()} for number in mine]
        for name, found in counted.items():
            found.append(sum(int(rows_of(one, name)) for one in rows))
    return counted


def _edges(lowered: Lowered, walks: Sequence[Walk], plans: Sequence[SlotPlan]) -> list[EdgeRate]:
    keys = dict.fromkeys((p.source, p.value, p.target, p.operand) for p in lowered.paths if p.target >= 0)
    messages: dict[tuple[int, int, int, int], list[int]] = {key: [] for key in keys}
    sizes: dict[tuple[int, int, int, int], list[int]] = {key: [] for key in keys}
    for w, plan in zip(walks, plans, strict=True):
        number: Counter[tuple[int, int, int, int]] = Counter()
        size: Counter[tuple[int, int, int, int]] = Counter()
        for at in w.order:
            for route in w.sent[at]:
                target, operand, *_, value = route
                key = (w.shape.unit[at], value, target, operand)
                number[key] += 1
                size[key] += message_bytes(lowered, plan, route)
        for key in keys:
            messages[key].append(number[key])
            sizes[key].append(size[key])
    units = lowered.units
    return [
        EdgeRate(
            units[source].name,
            value,
            units[target].name,
            units[target].operands[operand].port,
            Spread.of(messages[key]),
            Spread.of(sizes[key]),
            units[target].operands[operand].needs_gradient,
        )
        for key in keys
        for source, value, target, operand in [key]
    ]


def _decisions(lowered: Lowered, plan: SlotPlan, instance: Instance) -> Decides:
    """What the nodes of an instance decide, on the reference."""
    found: dict[tuple[int, int], int] = {}

    def note(direction: Direction, firing: Any, outputs: Sequence[np.ndarray]) -> None:
        name, _, state = firing
        unit = lowered.units[lowered.by_name[name]]
        if direction is not Direction.FORWARD or unit.decisions == 1:
            return
        fields = zip(unit.behaviour.state.names, state, strict=True)
        space = plan.tables.units[unit.index].space
        at = int(space.address({field: np.array([value]) for field, value in fields}, 1)[0])
        outcome = 0
        for decided, k in unit.behaviour.decides:
            outcome = outcome * choices(decided) + int(outputs[k][0])
        found[unit.index, at] = outcome

    device = ReferenceDevice()
    device.load(lowered.graph, {}, DeviceOptions(1, 1))
    device.probe = note
    device.submit(1, 0, instance, Mode.INFER)
    device.drain()
    device.close()
    return lambda unit, at: found[unit, at]
