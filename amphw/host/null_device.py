"""The null device: accepts every graph, runs nothing, and retires each instance at once.

A run on it costs what the host alone costs, so it measures the controller and stands in for a device where
only the host is under test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amphw.engine.parts.stand_in import NullPart
from amphw.ir.device import Capabilities, DeviceOptions, Mode, Report, Statistics
from amphw.ir.errors import AmphwError, ExecutionError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import NodeParameters, UpdateRule, initial_parameters, no_parameters


class NullDevice:
    """Reports are empty. A training instance counts as one forward and one backward message, others as none.
    Parameters have their initial values for ever."""

    _open = False

    def capabilities(self) -> Capabilities:
        return Capabilities("null", "null")

    def part(self) -> NullPart:
        """See `engine.parts.part.OffersPart`: in a run with others it answers every frame with zeros."""
        return NullPart(self.capabilities())

    def load(self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions) -> None:
        owners = {name: graph.nodes[name].params for name in graph.parameterised}
        self._parameters = initial_parameters(owners, dict(rules), options.seed)
        self._retired: dict[int, Report] = {}
        self._open = True
        self._statistics = Statistics(busy=[0.0])

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        if not self._open:
            raise ExecutionError("the device is closed; load a graph first")
        if slot in self._retired:
            raise ExecutionError(f"slot {slot} still holds instance {self._retired[slot].number}")
        self._retired[slot] = Report(slot, generation, instance.number, mode)
        self._statistics.forward += mode is Mode.TRAIN
        self._statistics.backward += mode is Mode.TRAIN

    def planned_bytes(self, instance: Instance, mode: Mode) -> int | None:
        return 0

    def poll(self, timeout: float = 0.0) -> list[Report]:
        done = list(self._retired.values())
        self._retired.clear()
        return done

    def update(self, nodes: Sequence[str] | None = None) -> None:
        for name in nodes or ():
            if name not in self._parameters:
                raise AmphwError(no_parameters(name))
        self._statistics.updates += len(self._parameters) if nodes is None else len(nodes)

    def parameters(self) -> dict[str, NodeParameters]:
        return self._parameters

    def drain(self) -> list[Report]:
        return self.poll()

    def statistics(self) -> Statistics:
        out, self._statistics = self._statistics, Statistics(busy=[0.0])
        return out

    def close(self) -> None:
        if self._open:
            self._retired.clear()
        self._open = False
