"""A part that computes nothing, and answers at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from amphw.engine.lowering.lower import Lowered, Unit
from amphw.engine.parts.costs import NodeTime
from amphw.engine.parts.part import PartFrame, PartResult
from amphw.engine.policy import BACKWARD
from amphw.ir.device import Capabilities, DeviceOptions, Mode, Statistics
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import NodeParameters, UpdateRule, initial_parameters


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
