"""Frames: a batch of firings of one unit and direction, and the mathematics of running one.

A frame is gathered while the data plane's lock is held, computed outside it, and committed under it again. What
is here neither locks nor routes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amphw.cpu_runtime.lower import Unit
from amphw.cpu_runtime.policy import BACKWARD, FORWARD
from amphw.cpu_runtime.slots import DONE, Slot, starts_of
from amphw.ir.primitives import RowContext

Task = tuple[Slot, int, int]
"""(slot, firing address, arrival number)."""


@dataclass
class ForwardRecord:
    """What a forward frame leaves for the backward direction; firings refer to it by their number in it."""

    frame: int
    version: int
    context: RowContext
    residuals: list[np.ndarray]
    starts: dict[str, list[int]]
    outcomes: list[int] = field(default_factory=list)  # sender outcome by firing, where the unit decides fields

    def part(self, k: int, space: str, i: int) -> np.ndarray:
        s = self.starts[space]
        return self.residuals[k][s[i] : s[i + 1]]


@dataclass
class Frame:
    number: int
    unit: Unit
    kind: int
    tasks: list[Task]
    context: RowContext
    inputs: list[np.ndarray]
    ints: list[np.ndarray]
    values: dict[str, np.ndarray]
    version: int
    records: list[Any] = field(default_factory=list)
    outputs: list[np.ndarray] = field(default_factory=list)
    flow_in: int | None = None

    @property
    def rows(self) -> int:
        return self.context.total("rows")


def joined(parts: list[np.ndarray], width: int) -> np.ndarray:
    """Rows of all parts; a lone part is passed on without a copy."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros((0, width), dtype=np.float32)


def row_context(unit: Unit, tasks: Sequence[Task]) -> RowContext:
    counts: dict[str, int | np.ndarray] = {}
    u = unit.index
    for space, _ in unit.behaviour.spaces:
        per_task = []
        for slot, at, _ in tasks:
            c = slot.plan.units[u].spaces[space]
            per_task.append(c if isinstance(c, int) else c[at])
        first = per_task[0]
        same = all(c == first for c in per_task)
        counts[space] = first if same else np.array(per_task, dtype=np.int64)
    return RowContext(len(tasks), counts)


def gather_operands(unit: Unit, tasks: Sequence[Task]) -> list[np.ndarray]:
    """Operands of all firings, one array an operand; group members in the order of their positions."""
    out = []
    u = unit.index
    for i, operand in enumerate(unit.operands):
        parts: list[np.ndarray] = []
        for slot, at, _ in tasks:
            x = slot.units[u].x[i]
            starts = slot.plan.units[u].members[i]
            if starts is None:
                parts.append(x[at][0])
            else:
                parts.extend(entry[0] for entry in x[starts[at] : starts[at + 1]])
        out.append(joined(parts, operand.width))
    return out


def gather_ints(unit: Unit, tasks: Sequence[Task]) -> list[np.ndarray]:
    program = unit.behaviour.program
    out = []
    for k in range(len(program.ints) if program else 0):
        parts = []
        for slot, at, _ in tasks:
            found = slot.units[unit.index].ints
            assert found is not None
            values, starts = found[k]
            parts.append(values[starts[at] : starts[at + 1]])
        out.append(parts[0] if len(parts) == 1 else np.concatenate(parts))
    return out


def compute(frame: Frame) -> None:
    """Run the frame's program; results go to `frame.outputs`."""
    with np.errstate(all="ignore"):  # non-finite values are looked for where they matter: losses and updates
        if frame.kind == BACKWARD:
            _backward(frame)
        elif frame.kind == FORWARD:
            assert frame.unit.derivative is not None
            forward = frame.unit.derivative.forward
            frame.outputs = forward.run(frame.context, frame.inputs, frame.ints, frame.values)
        else:
            assert frame.unit.inference is not None
            frame.outputs = frame.unit.inference.run(frame.context, frame.inputs, frame.ints, frame.values)


def forward_record(frame: Frame) -> ForwardRecord:
    """The residuals of a computed forward frame, in the order in which the backward program reads them."""
    d, program = frame.unit.derivative, frame.unit.behaviour.program
    assert d is not None and program is not None
    n = len(program.outputs)
    kept = {"input": frame.inputs, "output": frame.outputs[:n], "value": frame.outputs[n:]}
    residuals = [kept[kind][i] for kind, i in d.residuals]
    n_firings = len(frame.tasks)
    starts = {s: starts_of(c, n_firings) for s, c in frame.context.counts.items()}
    return ForwardRecord(frame.number, frame.version, frame.context, residuals, starts)


def _backward(frame: Frame) -> None:
    d = frame.unit.derivative
    assert d is not None
    if not d.backward.outputs:
        return  # neither parameters here nor anywhere upstream: the returned messages are empty
    inputs = [_output_gradient(frame, k) for k in d.float_outputs]
    names = d.backward.inputs[len(inputs) :]
    for k, (_, t) in enumerate(names):
        parts = [record.part(k, t.space, i) for record, i in frame.records]
        inputs.append(parts[0] if len(parts) == 1 else np.concatenate(parts))
    program = frame.unit.behaviour.program
    assert program is not None
    known = dict(zip(program.ints, frame.ints, strict=True))
    ints = [known[key] for key in d.backward.ints]
    frame.outputs = d.backward.run(frame.context, inputs, ints, frame.values)


def _output_gradient(frame: Frame, k: int) -> np.ndarray:
    """Gradient of output k over the frame: each firing sums what came back, in the static order of its routes."""
    unit = frame.unit
    program = unit.behaviour.program
    assert program is not None
    t = program.outputs_types[k]
    if unit.behaviour.report:
        make = np.ones if k == 0 else np.zeros
        return make((frame.context.total(t.space), t.width), dtype=np.float32)
    counts = frame.context.counts[t.space]
    parts: list[np.ndarray] = []
    for j, (slot, at, _) in enumerate(frame.tasks):
        record, i = frame.records[j]
        plan = slot.plan.units[unit.index]
        routes = plan.routes[record.outcomes[i] if record.outcomes else at]
        found = [
            (g, route[4])
            for g, route in zip(slot.units[unit.index].gradients[at], routes, strict=True)
            if route[5] == k and g is not None and g is not DONE
        ]
        if len(found) == 1 and found[0][1] < 0:
            parts.append(found[0][0])
            continue
        rows = counts if isinstance(counts, int) else int(counts[j])
        total = np.zeros((rows, t.width), dtype=np.float32)
        for g, row in found:
            if row < 0:
                total += g
            else:
                total[row : row + 1] += g
        parts.append(total)
    return joined(parts, t.width)
