"""Frames: a batch of firings of one unit and direction, and the mathematics of running one.

A frame is begun under the data plane's lock, which pins its firings and its parameter version; it is gathered
and computed outside, since until it is committed nobody else touches what its firings hold. What is here
neither locks nor routes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from amphw.engine.lowering.lower import Lowered, Unit
from amphw.engine.numpy_plane.arithmetic import Arithmetic
from amphw.engine.numpy_plane.float32 import FLOAT32, Float32
from amphw.engine.numpy_plane.slots import DONE, Slot
from amphw.engine.policy import BACKWARD, FORWARD
from amphw.ir.primitives import RowContext

Task = tuple[Slot, int, int]
"""(slot, firing address, payload rows)."""

NO_ROWS = RowContext(0, {"rows": 0})


def plain_operands(lowered: Lowered) -> frozenset[tuple[int, int]]:
    """(unit, operand) of sinks that sources alone feed: these messages arrive as the data has them."""
    mixed = {(p.target, p.operand) for p in lowered.paths if not lowered.units[p.source].behaviour.is_source}
    sinks = [u for u in lowered.units if u.behaviour.report]
    return frozenset((u.index, k) for u in sinks for k in range(len(u.operands))) - mixed


class UnitCode:
    """What running a unit's frames needs, worked out once.

    arithmetic: its own; a sink's is one of floats. outside: of the messages that it receives and sends, where
    that is another. plain: see `plain_operands`. operands: width and dtype as they arrive.
    """

    def __init__(self, unit: Unit, arithmetic: Arithmetic, plain: frozenset[tuple[int, int]]):
        b, d = unit.behaviour, unit.derivative
        assert b.program is not None and d is not None
        self.unit = unit
        self.spaces = [space for space, _ in b.spaces]
        self.plain = [(unit.index, k) in plain for k in range(len(unit.operands))]
        self.operands = [
            (o.width, FLOAT32.dtype if as_sent else arithmetic.dtype)
            for o, as_sent in zip(unit.operands, self.plain, strict=True)
        ]
        self.n_ints = len(b.program.ints)
        self.outputs = [(t.space, t.width) for t in b.program.outputs_types]
        self.is_sink = bool(b.report)
        self.arithmetic = FLOAT32 if self.is_sink and not isinstance(arithmetic, Float32) else arithmetic
        self.outside = None if self.arithmetic is arithmetic else arithmetic
        self.forward, self.inference, self.backward = self.arithmetic.kernels(unit)
        self.residuals = d.residuals
        self.residual_spaces = [t.space for _, t in d.backward.inputs[len(d.float_outputs) :]]
        numbers = {key: i for i, key in enumerate(b.program.ints)}
        self.backward_ints = [numbers[key] for key in d.backward.ints]
        self.float_outputs = d.float_outputs
        self.wrt = d.wrt
        self.terms = d.terms


@dataclass(slots=True)
class ForwardRecord:
    """What a forward frame leaves for the backward direction; firings refer to it by their number in it.

    frame: its number. starts[space]: first row of each firing, and the end. outcomes: sender outcome by
    firing, where the unit decides fields.
    """

    frame: int
    version: int
    residuals: list[np.ndarray]
    starts: dict[str, list[int]]
    outcomes: list[int] = field(default_factory=list)

    def part(self, k: int, space: str, i: int) -> np.ndarray:
        """Firing i's rows of residual k, which lives in `space`."""
        s = self.starts[space]
        return self.residuals[k][s[i] : s[i + 1]]


@dataclass(slots=True)
class Frame:
    """values, version: the parameters that it uses. The rest is empty until `compute`."""

    number: int
    code: UnitCode
    kind: int
    tasks: list[Task]
    values: Mapping[str, np.ndarray]
    version: int
    flow_in: int | None = None
    context: RowContext = NO_ROWS
    inputs: list[np.ndarray] = field(default_factory=list)
    records: list[tuple[ForwardRecord, int]] = field(default_factory=list)
    outputs: list[np.ndarray] = field(default_factory=list)

    @property
    def unit(self) -> Unit:
        return self.code.unit

    @property
    def rows(self) -> int:
        return self.context.total("rows")


def joined(parts: list[np.ndarray], width: int, dtype: np.dtype) -> np.ndarray:
    """Rows of all parts; a lone part is passed on without a copy."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros((0, width), dtype)


def starts_of(counts: int | np.ndarray, n: int) -> list[int]:
    """First row of each of n messages, and the end."""
    if isinstance(counts, int):
        return [i * counts for i in range(n + 1)]
    return [0, *accumulate(counts.tolist())]


def row_context(code: UnitCode, tasks: Sequence[Task]) -> RowContext:
    """How the frame's rows belong to its firings; one number where all have as many, which is cheaper."""
    counts: dict[str, int | np.ndarray] = {}
    u = code.unit.index
    for space in code.spaces:
        per_task = []
        for slot, at, _ in tasks:
            c = slot.plan.units[u].spaces[space]
            per_task.append(c if isinstance(c, int) else c[at])
        first = per_task[0]
        same = len(per_task) == 1 or per_task.count(first) == len(per_task)
        counts[space] = first if same else np.array(per_task, dtype=np.int64)
    return RowContext(len(tasks), counts)


def _gather_operands(code: UnitCode, tasks: Sequence[Task]) -> list[np.ndarray]:
    """Operands of all firings, one array an operand; group members in the order of their positions."""
    out = []
    u = code.unit.index
    for i, (width, dtype) in enumerate(code.operands):
        parts: list[np.ndarray] = []
        for slot, at, _ in tasks:
            x = slot.units[u].x[i]
            starts = slot.plan.units[u].members[i]
            if starts is None:
                parts.append(x[at][0])
            else:
                parts.extend([entry[0] for entry in x[starts[at] : starts[at + 1]]])
        out.append(joined(parts, width, dtype))
    return out


def _gather_ints(code: UnitCode, tasks: Sequence[Task]) -> list[np.ndarray]:
    out = []
    for k in range(code.n_ints):
        parts = []
        for slot, at, _ in tasks:
            found = slot.units[code.unit.index].ints
            assert found is not None
            values, starts = found[k]
            parts.append(values[starts[at] : starts[at + 1]])
        out.append(parts[0] if len(parts) == 1 else np.concatenate(parts))
    return out


def compute(frame: Frame) -> None:
    """Gather the frame's operands and run its program; results go to `frame.outputs`."""
    code, tasks = frame.code, frame.tasks
    frame.context = row_context(code, tasks)
    ints = _gather_ints(code, tasks) if code.n_ints else []
    with np.errstate(all="ignore"):  # non-finite values are looked for where they matter: losses and updates
        if frame.kind == BACKWARD:
            u = code.unit.index
            frame.records = [slot.units[u].fired[at] for slot, at, _ in tasks]
            if code.backward is not None:  # else no parameters here or upstream: the messages return empty
                inputs = [*(_output_gradient(frame, k) for k in code.float_outputs), *residuals_of(frame)]
                ints = [ints[k] for k in code.backward_ints]
                frame.outputs = code.backward.run(frame.context, inputs, ints, frame.values)
                if code.outside is not None:
                    for k in range(len(code.wrt)):
                        frame.outputs[k] = code.outside.to_payload(frame.outputs[k], "gradient")
        else:
            frame.inputs = _gather_operands(code, tasks)
            if code.outside is not None:
                frame.inputs = [
                    x if plain else code.outside.to_float(x, "value")
                    for x, plain in zip(frame.inputs, code.plain, strict=True)
                ]
            kernel = code.forward if frame.kind == FORWARD else code.inference
            frame.outputs = kernel.run(frame.context, frame.inputs, ints, frame.values)


def forward_record(frame: Frame) -> ForwardRecord:
    """The residuals of a computed forward frame, in the order in which the backward program reads them."""
    code = frame.code
    n = len(code.outputs)
    kept = {"input": frame.inputs, "output": frame.outputs[:n], "value": frame.outputs[n:]}
    residuals = [kept[kind][i] for kind, i in code.residuals]
    starts = {s: starts_of(c, len(frame.tasks)) for s, c in frame.context.counts.items()}
    return ForwardRecord(frame.number, frame.version, residuals, starts)


def computed(frame: Frame) -> list[list[np.ndarray | None]]:
    """What each firing of a computed frame made: outputs, or operands' gradients (None: not wanted)."""
    code, counts = frame.code, frame.context.counts
    if frame.kind == BACKWARD:
        given = dict(zip(code.wrt, frame.outputs, strict=False))
        whole = [(given.get(k), o.space) for k, o in enumerate(code.unit.operands)]
    else:
        whole = [(y, space) for y, (space, _) in zip(frame.outputs, code.outputs, strict=False)]
    starts = [starts_of(counts[space], len(frame.tasks)) for _, space in whole]
    return [
        [None if y is None else y[s[i] : s[i + 1]] for (y, _), s in zip(whole, starts, strict=True)]
        for i in range(len(frame.tasks))
    ]


def residuals_of(frame: Frame) -> list[np.ndarray]:
    """What the firings of a backward frame left when they went forward."""
    found = []
    for k, space in enumerate(frame.code.residual_spaces):
        parts = [record.part(k, space, i) for record, i in frame.records]
        found.append(parts[0] if len(parts) == 1 else np.concatenate(parts))
    return found


def count_staleness(
    histogram: dict[int, int], version: int, seen: Iterable[int], rows: Iterable[int]
) -> None:
    """Add the rows of a backward frame's firings, by how many versions what each has seen is behind."""
    for used, n in zip(seen, rows, strict=True):
        histogram[version - used] = histogram.get(version - used, 0) + n


def staleness_of(frame: Frame) -> tuple[Iterable[int], Iterable[int]]:
    """(versions that the firings of a backward frame have seen, rows of each)."""
    counts = frame.context.counts["rows"]
    each = itertools.repeat(counts, len(frame.records)) if isinstance(counts, int) else counts.tolist()
    return (record.version for record, _ in frame.records), each


def _output_gradient(frame: Frame, k: int) -> np.ndarray:
    """Gradient of output k over the frame: a firing sums what came back, in the order of its routes."""
    code = frame.code
    space, width = code.outputs[k]
    if code.is_sink:
        make = np.ones if k == 0 else np.zeros
        return make((frame.context.total(space), width), dtype=np.float32)
    counts = frame.context.counts[space]
    u, total = code.unit.index, code.arithmetic.total
    parts: list[np.ndarray] = []
    for j, (slot, at, _) in enumerate(frame.tasks):
        record, i = frame.records[j]
        gradients, plan = slot.units[u].gradients[at], slot.plan.units[u]
        rows = counts if isinstance(counts, int) else int(counts[j])
        outcome = record.outcomes[i] if record.outcomes else at
        found = [
            (g, route[4])
            for g, route in zip(gradients, plan.routes[outcome], strict=True)
            if route[5] == k and g is not DONE
        ]
        parts.append(total(found, rows, width))
    return joined(parts, width, code.arithmetic.dtype)
