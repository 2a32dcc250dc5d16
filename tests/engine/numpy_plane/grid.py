"""An arithmetic for tests: whole numbers on a fine grid, so that a float which slips through shows.

Programs run in float64 between two roundings. Values, gradients and weights have steps of their own: a number
that is taken for one of another kind is off by a factor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from amphw.engine.lowering.lower import Unit, lower
from amphw.engine.numpy_plane import NumpyPlane, Replay
from amphw.engine.numpy_plane.arithmetic import Entry, Kernels, Kind, Part, stacked
from amphw.engine.plane_device import PlaneDevice
from amphw.ir.derive import accumulate
from amphw.ir.device import Capabilities, DeviceOptions
from amphw.ir.graph import Graph
from amphw.ir.primitives import RowContext
from amphw.ir.program import Program
from amphw.ir.update import NodeParameters, UpdateRule, initial_parameters

BITS: Mapping[Kind, int] = {"value": 30, "gradient": 34}
"""Behind the point."""

LIMIT = 100.0
"""Largest value."""

WEIGHT, MASTER = 30, 42
"""Bits behind the point of what frames see of a weight, and of what updates add to."""


def to_grid(values: np.ndarray, bits: int) -> np.ndarray:
    return np.rint(np.ldexp(np.asarray(values, np.float64), bits)).astype(np.int64)


def to_float(integers: np.ndarray, bits: int) -> np.ndarray:
    return np.ldexp(integers.astype(np.float64), -bits)


class GridKernel:
    """A program between two roundings. inputs, outputs: their kinds; None: an integer, which stays."""

    def __init__(self, program: Program, inputs: Sequence[Kind | None], outputs: Sequence[Kind | None]):
        self.program, self.inputs, self.outputs = program, inputs, outputs

    def run(
        self,
        ctx: RowContext,
        inputs: Sequence[np.ndarray],
        ints: Sequence[np.ndarray],
        params: Mapping[str, np.ndarray],
    ) -> list[np.ndarray]:
        assert all(a.dtype == np.int64 for a in [*inputs, *params.values()])
        given = [
            a if kind is None else to_float(a, BITS[kind])
            for a, kind in zip(inputs, self.inputs, strict=True)
        ]
        weights = {name: to_float(w, WEIGHT) for name, w in params.items()}
        made = self.program.run(ctx, given, ints, weights)
        return [
            a if kind is None else to_grid(a, BITS[kind]) for a, kind in zip(made, self.outputs, strict=True)
        ]


class GridParameters:
    """Masters, of which frames see the upper bits, and the sums of gradients; both are whole numbers."""

    def __init__(self, unit: Unit, params: NodeParameters):
        assert unit.derivative is not None
        self.node, self.params, self.terms = unit.name, params, unit.derivative.terms
        self.values: dict[str, np.ndarray] = {}
        self.masters: dict[str, np.ndarray] = {}
        self.sums: dict[str, np.ndarray] = {}

    def accumulate(self, entries: Sequence[Entry]) -> None:
        for k, term in enumerate(self.terms if entries else ()):
            a, dz = stacked(entries, k)
            if a is not None and term.kind == "matmul":
                a = to_float(a, BITS["value"])
            gradient = np.zeros(self.sums[term.param].shape)
            accumulate(term.kind, gradient, a, to_float(dz, BITS["gradient"]))
            self.sums[term.param] += to_grid(gradient, BITS["gradient"])

    def prepare(self) -> dict[str, np.ndarray]:
        rule, rows, version = self.params.rule, self.params.rows, self.params.version
        for name, sums in self.sums.items():
            w = to_float(self.masters[name], MASTER)
            self.masters[name] = to_grid(
                rule.step(w, to_float(sums, BITS["gradient"]), [], rows, rule.scalars(version, {})), MASTER
            )
            sums[...] = 0
        self.params.rows = 0
        return self._visible()

    def publish(self, values: dict[str, np.ndarray]) -> None:
        self.values = values
        self.params.version += 1

    def fetch(self) -> None:
        self.params.values = {name: to_float(m, MASTER) for name, m in self.masters.items()}
        for name, sums in self.sums.items():
            self.params.gradients[name][...] = to_float(sums, BITS["gradient"])

    def push(self) -> None:
        self.masters = {name: to_grid(v, MASTER) for name, v in self.params.values.items()}
        self.sums = {name: to_grid(g, BITS["gradient"]) for name, g in self.params.gradients.items()}
        self.values = self._visible()

    def _visible(self) -> dict[str, np.ndarray]:
        return {name: m >> (MASTER - WEIGHT) for name, m in self.masters.items()}


class Grid:
    """The arithmetic."""

    dtype = np.dtype(np.int64)

    def kernels(self, unit: Unit) -> Kernels:
        d = unit.derivative
        assert d is not None and unit.inference is not None
        values = [_value(t.kind) for _, t in d.forward.inputs]
        n = len(d.float_outputs)
        inputs: list[Kind | None] = ["gradient"] * n
        inputs += [_value(t.kind) for _, t in d.backward.inputs[n:]]
        outputs: list[Kind | None] = ["gradient"] * len(d.backward.outputs)
        for term in d.terms:
            if term.a is not None:
                outputs[term.a] = None if term.kind == "take" else "value"
        return Kernels(
            GridKernel(d.forward, values, [_value(t.kind) for t in d.forward.outputs_types]),
            GridKernel(unit.inference, values, [_value(t.kind) for t in unit.inference.outputs_types]),
            GridKernel(d.backward, inputs, outputs) if outputs else None,
        )

    def parameters(self, unit: Unit, params: NodeParameters) -> GridParameters:
        return GridParameters(unit, params)

    def to_payload(self, values: np.ndarray, kind: Kind) -> np.ndarray:
        assert values.dtype == np.float32
        return to_grid(np.clip(values, -LIMIT, LIMIT) if kind == "value" else values, BITS[kind])

    def to_float(self, payload: np.ndarray, kind: Kind) -> np.ndarray:
        assert payload.dtype == np.int64
        return to_float(payload, BITS[kind]).astype(np.float32)

    def total(self, parts: Sequence[Part], rows: int, width: int) -> np.ndarray:
        total = np.zeros((rows, width), np.int64)
        for gradient, row in parts:
            assert gradient.dtype == np.int64
            total[slice(None) if row < 0 else slice(row, row + 1)] += gradient
        return total


def _value(kind: str) -> Kind | None:
    return "value" if kind == "float" else None


class GridDevice(PlaneDevice):
    """A device over the arithmetic. Its parameters are float64, which holds masters and sums exactly."""

    def capabilities(self) -> Capabilities:
        return Capabilities("grid", "grid", formats=("grid",))

    def load(self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions) -> None:
        self.close()
        self.log: list[Any] = []
        owners = {n: graph.nodes[n].params for n in graph.parameterised}
        plane = NumpyPlane(
            lower(graph),
            initial_parameters(owners, dict(rules), options.seed, np.float64),
            updates=options.updates,
            workers=1,
            placement=None,
            settings=options.settings,
            log=self.log if options.log else None,
            arithmetic=Grid(),
        )
        self.start(plane, Replay, workers=1)
