"""A part that computes with the numpy data plane's kernels, in any arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from amphw.engine.lowering.lower import Lowered, Unit
from amphw.engine.numpy_plane.arithmetic import Arithmetic
from amphw.engine.numpy_plane.frames import (
    ForwardRecord,
    Frame,
    UnitCode,
    count_staleness,
    forward_record,
    residuals_of,
    staleness_of,
)
from amphw.engine.numpy_plane.gradients import GradientLog
from amphw.engine.parts.part import PartFrame, PartResult
from amphw.engine.policy import BACKWARD, FORWARD
from amphw.ir.device import Capabilities, DeviceOptions, Mode, Statistics
from amphw.ir.errors import AmphwError, GraphError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.primitives import RowContext
from amphw.ir.update import NodeParameters, UpdateRule, no_parameters


@dataclass
class KernelSetting:
    """What a graph's nodes are computed with. params: of the nodes that have any."""

    arithmetic: Arithmetic
    params: dict[str, NodeParameters]


Chooses = Callable[[Graph, Sequence[Unit], Mapping[str, UpdateRule], DeviceOptions], KernelSetting]
"""Raises GraphError for a node that the arithmetic cannot do."""


@dataclass
class KernelPart:
    """about: of the device that it belongs to. Computes a frame as soon as it is given."""

    about: Capabilities
    chooses: Chooses
    depth: int = 1
    params: dict[str, NodeParameters] = field(default_factory=dict)

    def capabilities(self) -> Capabilities:
        return self.about

    def refused(self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule]) -> str:
        try:
            self.chooses(graph, [unit], rules, DeviceOptions())
        except GraphError as error:
            return str(error)
        return ""

    def load(
        self,
        graph: Graph,
        lowered: Lowered,
        units: Sequence[Unit],
        rules: Mapping[str, UpdateRule],
        options: DeviceOptions,
    ) -> None:
        chosen = self.chooses(graph, units, rules, options)
        self.arithmetic, self.params = chosen.arithmetic, chosen.params
        self._codes = {u.index: UnitCode(u, chosen.arithmetic, frozenset()) for u in units}
        self._logs = {
            u.index: GradientLog(chosen.arithmetic.parameters(u, self.params[u.name]))
            for u in units
            if u.name in self.params
        }
        self._self_updating = options.updates == "self"
        self._fired: dict[int, dict[tuple[int, int], tuple[ForwardRecord, int]]] = {}  # by slot
        self._done: list[PartResult] = []
        self._stats = Statistics()
        self._written = True  # whether the host may have changed the parameters
        self._push()

    # --- frames -----------------------------------------------------------------------------------

    def begin(self, slot: int, generation: int, instance: Instance, mode: Mode) -> bool:
        self._push()
        self._fired[slot] = {}
        return True

    def end(self, slot: int) -> None:
        del self._fired[slot]

    def start(self, frame: PartFrame) -> None:
        code, log = self._codes[frame.unit], self._logs.get(frame.unit)
        values = log.held.values if log is not None else {}
        version = log.params.version if log is not None else 0
        own = Frame(frame.number, code, frame.kind, [], values, version)
        counts: dict[str, int | np.ndarray] = {s: _uniform(c) for s, c in frame.rows.items()}
        own.context = RowContext(len(frame.slots), counts)
        own.tasks = [None] * len(frame.slots)  # type: ignore[list-item]  # whose number alone counts
        with np.errstate(all="ignore"):
            self._done.append(
                self._backward(frame, own) if frame.kind == BACKWARD else self._forward(frame, own)
            )

    def _forward(self, frame: PartFrame, own: Frame) -> PartResult:
        code, a = own.code, self.arithmetic
        own.inputs = [a.to_payload(x, "value") for x in frame.arrays if x is not None]
        kernel = code.forward if frame.kind == FORWARD else code.inference
        own.outputs = kernel.run(own.context, own.inputs, frame.ints, own.values)
        if frame.kind == FORWARD:
            record = forward_record(own)
            for i, key in enumerate(zip(frame.slots.tolist(), frame.firings.tolist(), strict=True)):
                self._fired[key[0]][frame.unit, key[1]] = record, i
        program = code.unit.behaviour.program
        assert program is not None
        outputs = own.outputs[: len(program.outputs)]
        kinds = [t.kind for t in program.outputs_types]
        decided = []
        for _, k in code.unit.behaviour.decides:
            first = (
                np.cumsum(frame.rows[program.outputs_types[k].space])
                - frame.rows[program.outputs_types[k].space]
            )
            decided.append(np.ascontiguousarray(outputs[k].reshape(-1)[first], np.int64))
        floats = [
            _floats(a.to_float(y, "value")) if kind == "float" else None
            for y, kind in zip(outputs, kinds, strict=True)
        ]
        return PartResult(frame.number, floats, decided)

    def _backward(self, frame: PartFrame, own: Frame) -> PartResult:
        code, a = own.code, self.arithmetic
        wanted: list[np.ndarray | None] = [None] * len(code.operands)
        keys = list(zip(frame.slots.tolist(), frame.firings.tolist(), strict=True))
        own.records = [self._fired[slot].pop((frame.unit, firing)) for slot, firing in keys]
        if code.backward is None:
            return PartResult(frame.number, wanted)
        inputs = [
            a.to_payload(g, "gradient") for k in code.float_outputs if (g := frame.arrays[k]) is not None
        ]
        inputs += residuals_of(own)
        ints = [frame.ints[k] for k in code.backward_ints]
        own.outputs = code.backward.run(own.context, inputs, ints, own.values)
        for k, operand in enumerate(code.wrt):
            wanted[operand] = _floats(a.to_float(own.outputs[k], "gradient"))
        log = self._logs.get(frame.unit)
        if log is not None:
            histogram = self._stats.staleness.setdefault(log.node, {})
            count_staleness(histogram, log.params.version, *staleness_of(own))
            log.add(
                own.rows, [(None if t.a is None else own.outputs[t.a], own.outputs[t.dz]) for t in code.terms]
            )
            if log.wants(self._self_updating):
                self._reduce(log, due=self._self_updating and log.rows >= log.params.rule.interval)
        return PartResult(frame.number, wanted)

    def finished(self, timeout: float) -> list[PartResult]:
        done, self._done = self._done, []
        return done

    # --- parameters -------------------------------------------------------------------------------

    def _reduce(self, log: GradientLog, due: bool) -> None:
        share = log.take(due)
        log.reduce(share)
        log.finish(share)
        self._stats.updates += share.values is not None

    def update(self, nodes: Sequence[str]) -> None:
        self._push()
        by_name = {log.node: log for log in self._logs.values()}
        for name in nodes:
            if name not in by_name:
                raise AmphwError(no_parameters(name))
            self._reduce(by_name[name], due=True)

    def parameters(self) -> dict[str, NodeParameters]:
        for log in self._logs.values():
            if not self._written:
                self._reduce(log, due=False)
                log.held.fetch()
        self._written = True
        return self.params

    def _push(self) -> None:
        if self._written:
            for log in self._logs.values():
                log.held.push()
        self._written = False

    def statistics(self) -> Statistics:
        out, self._stats = self._stats, Statistics()
        return out

    def close(self) -> None:
        """Nothing to let go of; parameters can still be read."""


def _uniform(counts: np.ndarray) -> int | np.ndarray:
    """One number where all firings have as many rows."""
    first = int(counts[0])
    return first if bool((counts == first).all()) else counts.astype(np.int64)


def _floats(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a, np.float32)
