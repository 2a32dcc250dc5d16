"""What a circuit takes for the firings of a graph, in cycles, before it is built or simulated.

Microprograms are played on the times of the engines (`microcode.timing`), control programs are counted
(`control`). `benchmarks/circuit_cycles.py` holds both against the simulated circuit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from amphw.engine.lowering.lower import Unit, lower
from amphw.ir.graph import Graph
from amphw.ir.update import UpdateRule
from amphw.rtl.build.fit_logic import of_lanes
from amphw.rtl.fixed.units import mapped
from amphw.rtl.isa.wire import HEADER_WORDS, WORD
from amphw.rtl.microcode.timing import firing_cycles
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.plan.control import Phase, float_outputs
from amphw.rtl.plan.hardware import HardwarePlan, Sizes, hardware_plan
from amphw.rtl.timing.control import control_cycles

HANDED = 2
"""Cycles from the end of a firing to the begin of the next, if that is fetched."""

GRADIENT = 8
"""Further ones of a backward firing: its gradient is looked up once the engines are through."""

SUM, LOOKED = 19, 3
"""To add gradients up, beside their words; by rows, each sum looks at all gradients of the output."""

MEMBER = 19
"""To copy a group's member, beside its words; the engines rest meanwhile."""

SEGMENT, DIVIDES = 34, 42
"""Of an update: for each parameter, beside a cycle a weight; and to divide the rate by the rows."""

CLIP = 158
"""To limit a parameter's coefficient, beside a cycle a weight: root, product and quotient, bit by bit."""

LATENCY = 9.0
"""From a message's last word to what takes it, and from who sends it to its first."""


class CircuitModel:
    """Of what is planned: a graph, or the nodes of a part of a run."""

    def __init__(self, plan: HardwarePlan) -> None:
        self.plan, self.lanes = plan, plan.sizes.lanes
        self._known: dict[tuple[int, bool, tuple[int, ...]], int] = {}

    @cached_property
    def units(self) -> Mapping[str, Unit]:
        """On the circuit; sources and losses are the host's."""
        return {u.name: u for u in self.plan.partition.units}

    def firing(
        self, node: str, backward: bool, rows: Mapping[str, int], needs: int = 1, sends: int = 1
    ) -> float:
        """Cycles from one firing's end to this one's. rows: by space. needs, sends: messages, forward."""
        before = self._before(self.units[node], backward, rows, needs, sends)
        return self.engines(node, backward, rows) + HANDED + before

    def engines(self, node: str, backward: bool, rows: Mapping[str, int]) -> int:
        """Of these, cycles from the firing's begin to its end. rows: by space."""
        unit = self.units[node]
        code = self.plan.codes[unit.index]
        counts = [0] * len(code.rows)
        for space, register in code.spaces.register.items():
            counts[register] = rows[space]
        key = unit.index, backward, tuple(counts)
        if key not in self._known:
            program = code.backward if backward else code.forward
            self._known[key] = firing_cycles(program.words, counts, self.lanes)
        return self._known[key]

    def _before(self, unit: Unit, backward: bool, rows: Mapping[str, int], needs: int, sends: int) -> float:
        """What the vector unit copies or adds up for a firing while nothing else runs."""
        if not backward:
            groups = [o for o in unit.operands if o.count is not None]
            members = needs - (len(unit.operands) - len(groups))
            words = sum(rows[o.space] * o.width for o in groups)
            return words + members * MEMBER if groups else 0.0
        spent = float(GRADIENT)
        outputs = float_outputs(unit)
        assert unit.behaviour.program is not None
        for k in outputs:
            t, parts = unit.behaviour.program.outputs_types[k], sends / len(outputs)
            alone = any(p.by_row is not None and p.value == k for p in unit.out)
            sums = float(rows[t.space] if alone else 1)
            if parts != 1 or sums > 1:
                added = rows[t.space] * t.width * max(1.0, parts / sums)
                spent += added + sums * (SUM + LOOKED * parts * (sums > 1))
        return spent

    def control(
        self, node: str, backward: bool, needs: float = 1.0, sends: float = 1.0, rows: float = 1.0
    ) -> tuple[float, float]:
        """Cycles in which the controller (fetches, delivers) a firing, while the engines run others."""
        at, plan = self.units[node].index, self.plan.control
        before, after = (Phase.FETCH_BACKWARD, Phase.RETURN) if backward else (Phase.FETCH, Phase.ROUTE)
        fetched, passed = (sends, needs) if backward else (needs, sends)
        return control_cycles(plan, at, before, fetched, rows), control_cycles(plan, at, after, passed, rows)

    def update(self, node: str) -> float:
        """Cycles of an update, in which nothing else runs."""
        sizes = [math.prod(spec.shape) for spec in self.plan.graph.nodes[node].params]
        clips = bool(self.plan.rules[self.units[node].index].limit)
        return DIVIDES + sum(SEGMENT + size + clips * (CLIP + size) for size in sizes)


@dataclass(frozen=True)
class Circuits:
    """Makes models of circuits with these formats (`amphw.estimate.network.devices.CircuitMaker`)."""

    formats: Formats
    number_bytes: int = WORD // 8
    header_bytes: int = WORD // 8 * HEADER_WORDS
    latency: float = LATENCY
    _made: dict[tuple[int, int, tuple[str, ...]], tuple[Mapping[str, UpdateRule], CircuitModel]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def resources(self, lanes: int) -> Mapping[str, int]:
        """Of a device without momentum on ECP5, by the line through real builds."""
        return of_lanes(lanes)

    def cycles(
        self,
        graph: Graph,
        rules: Mapping[str, UpdateRule],
        lanes: int,
        nodes: Sequence[str] | None = None,
    ) -> CircuitModel:
        """nodes: those of them that a circuit can have are on it; without any, or None, all that can be.
        Raises GraphError, naming the node, for what no circuit can run."""
        able = tuple(u.name for u in mapped(lower(graph)))
        there = tuple(name for name in able if nodes is not None and name in nodes) or able
        key = id(graph), lanes, there
        known = self._made.get(key)  # planning takes long beside an estimate
        if known is None or known[1].plan.graph is not graph or known[0] != rules:
            plan = hardware_plan(graph, rules, self.formats, Sizes(lanes=lanes), there)
            known = self._made[key] = rules, CircuitModel(plan)
        return known[1]
