"""The control programs of a partition: for each unit what happens before it runs and after it has run.

Units on the device are those that compute; sources and losses are the host's. A path between two units of the
device becomes steps that deliver, one that leads to the host becomes a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from amphw.engine.lowering.lower import Guard, Lowered, Path, Unit, choices
from amphw.ir.algebra import simplify
from amphw.ir.expr import ROW, Const, Expr, Field, lift
from amphw.ir.state import BitLayout
from amphw.rtl.isa.steps import (
    FID,
    RECORD,
    SCRATCH,
    SUMS,
    Assembler,
    Directory,
    Step,
    StepOp,
    packed,
    unpacked,
)
from amphw.rtl.microcode.compile import UnitCode
from amphw.rtl.plan.records import ItemKind


class Phase(Enum):
    """Before a unit runs forward or backward, and after it."""

    FETCH = 0
    ROUTE = 1
    FETCH_BACKWARD = 2
    RETURN = 3


@dataclass
class Partition:
    """Which units the device has, and how paths cross its border.

    units: on the device, in the order of their numbers there. codes: their microprograms and records, by the
    lowered graph's number. outbound: paths to the host, in the order of their numbers in messages.
    """

    lowered: Lowered
    units: list[Unit]
    codes: dict[int, UnitCode]

    def __post_init__(self) -> None:
        self.number = {u.index: k for k, u in enumerate(self.units)}
        inside = self.number
        paths = self.lowered.paths
        self.outbound = [p for p in paths if p.source in inside and p.target not in inside]
        self.inbound = [p for p in paths if p.target in inside and p.source not in inside]
        self.layouts = {u.index: BitLayout.of(u.behaviour.state) for u in self.units}
        self.decisions = max((len(u.behaviour.decides) for u in self.units), default=0)
        self.by_rows = any(p.by_row is not None for p in self.lowered.paths if p.source in inside)
        self.state_bits = max((layout.width for layout in self.layouts.values()), default=0) or 1


@dataclass
class ControlPlan:
    """Every control program of a partition in one list; entries: where each begins."""

    partition: Partition
    directory: Directory
    steps: list[Step]
    entries: dict[tuple[int, Phase], int]

    @property
    def ops(self) -> frozenset[StepOp]:
        """What any of its steps does."""
        return frozenset(step.op for step in self.steps)

    @property
    def copies(self) -> bool:
        """Whether a firing ever sends the host more than one message along a path."""
        within = 0
        for step in self.steps:
            within += (step.op is StepOp.LOOP) - (step.op is StepOp.NEXT)
            if within and step.op is StepOp.SEND:
                return True
        return False

    def __str__(self) -> str:
        starts = {at: key for key, at in self.entries.items()}
        lines = []
        for k, step in enumerate(self.steps):
            if k in starts:
                u, phase = starts[k]
                lines.append(f"{self.partition.lowered.units[u].name}, {phase.name.lower()}:")
            lines.append(f"  {k:3} {step}")
        return "\n".join(lines)


def control_plan(partition: Partition) -> ControlPlan:
    """Compile the control programs of all units."""
    directory = Directory()
    steps: list[Step] = []
    entries: dict[tuple[int, Phase], int] = {}
    writers = {
        Phase.FETCH: _fetch,
        Phase.ROUTE: _route,
        Phase.FETCH_BACKWARD: _fetch_backward,
        Phase.RETURN: _return,
    }
    for unit in partition.units:
        for phase, write in writers.items():
            one = _UnitControl(partition, unit, directory)
            write(one)
            one.asm.emit(StepOp.END)
            first = entries[unit.index, phase] = len(steps)
            for step in one.asm.steps:
                step.target += first if step.target >= 0 else 0
            steps += one.asm.steps
    return ControlPlan(partition, directory, steps, entries)


class _UnitControl:
    """What the control programs of one unit share."""

    def __init__(self, partition: Partition, unit: Unit, directory: Directory):
        self.partition, self.unit = partition, unit
        decided = {f.name: Field(f"$d{j}") for j, (f, _) in enumerate(unit.behaviour.decides)}
        fields = {**unpacked(partition.layouts[unit.index]), **decided}
        self.asm = Assembler(partition.lowered.graph.schema, directory, fields)
        self.code = partition.codes[unit.index]
        self.u = unit.index

    def rows(self, space: str) -> Expr:
        return self.asm.value(dict(self.unit.behaviour.spaces)[space])

    def words(self, space: str, width: int) -> Expr:
        return simplify(self.rows(space) * width)

    def item(self, kind: ItemKind, number: int) -> Expr:
        """Where an item of the record lies."""
        offset = self.code.record.offset(kind, number)
        at = RECORD + offset.constant
        for r, words in offset.each:
            at = at + self.asm.value(self.code.rows[r]) * words
        return simplify(at)

    def place(self, operand: int) -> Expr:
        """Number of the place of an operand that takes one message."""
        return simplify(FID + self.asm.word("operand", self.u, operand))

    def members(self, operand: int) -> tuple[Expr, Expr]:
        """First place of a group operand's members, and their number."""
        count = self.unit.operands[operand].count
        assert count is not None
        return self.asm.read(FID + self.asm.word("members", self.u, operand)), self.asm.value(count)

    def load_registers(self, gradients: int = 0) -> None:
        """Rows, and the pointers to record, operands and scratch; those to gradients lie before scratch."""
        for r, rows in enumerate(self.code.rows):
            self.asm.emit(StepOp.ROWS, a=self.asm.value(rows), n=r)
        self.asm.emit(StepOp.ADDRESS, a=RECORD, n=0)
        for i, o in enumerate(self.unit.operands):
            if o.count is None:
                self.asm.emit(StepOp.POINT, a=self.place(i), n=1 + i)
            else:
                self.asm.emit(StepOp.ADDRESS, a=self.item("members", i), n=1 + i)
        self.asm.emit(StepOp.ADDRESS, a=SCRATCH, n=1 + len(self.unit.operands) + gradients)


def _fetch(c: _UnitControl) -> None:
    """Rows, integer operands and operands; a group's members are copied side by side."""
    c.load_registers()
    program = c.unit.behaviour.program
    assert program is not None
    if program.ints:
        c.asm.emit(StepOp.AT, a=RECORD)
    for e, space in program.ints:
        rows = c.rows(space)
        step, counter = c.asm.loop(rows)
        c.asm.fields[ROW.name] = counter
        c.asm.emit(StepOp.PUT, a=c.asm.value(e))
        c.asm.close([step])
    for i, o in enumerate(c.unit.operands):
        if o.count is None:
            continue
        first, count = c.members(i)
        words = simplify(c.asm.value(o.rows) * o.width)
        c.asm.emit(StepOp.AT, a=c.item("members", i))
        step, counter = c.asm.loop(count)
        c.asm.emit(StepOp.COPY, a=simplify(first + counter), b=words)
        c.asm.close([step])


def _fetch_backward(c: _UnitControl) -> None:
    """Rows, operands, and the gradients of the outputs."""
    program = c.unit.behaviour.program
    assert program is not None
    c.load_registers(len(float_outputs(c.unit)))
    at = 0
    for n, k in enumerate(float_outputs(c.unit)):
        t = program.outputs_types[k]
        words = c.words(t.space, t.width)
        pointer = 1 + len(c.unit.operands) + n
        alone = any(p.by_row is not None and p.value == k for p in c.unit.out)
        into = simplify(SUMS + at)
        row = lift(t.width) if alone else words
        c.asm.emit(StepOp.GRADIENT, n=pointer, m=n, b=words, d=into, e=row)
        at += gradient_room(c.partition, c.unit, k)


def gradient_room(partition: Partition, unit: Unit, output: int) -> int:
    """Words in which the gradient of an output is summed, at most."""
    program, code = unit.behaviour.program, partition.codes[unit.index]
    assert program is not None
    t = program.outputs_types[output]
    return code.spaces.words(t.space, t.width).of(code.most_rows)


def float_outputs(unit: Unit) -> Sequence[int]:
    """Numbers of the outputs that have a gradient, in the order of the backward program's first inputs."""
    assert unit.derivative is not None
    return unit.derivative.float_outputs


def _return(c: _UnitControl) -> None:
    """Every operand's gradient goes back to where the operand came from."""
    wanted = {item.index for item in c.code.record.items if item.kind == "gradient"}
    for i, o in enumerate(c.unit.operands):
        words = simplify(c.asm.value(o.rows) * o.width)
        if i in wanted:
            c.asm.emit(StepOp.AT, a=c.item("gradient", i))
        if o.count is None:
            c.asm.emit(StepOp.RETURN, a=c.place(i), b=words, n=int(i in wanted))
            continue
        first, count = c.members(i)
        step, counter = c.asm.loop(count)
        c.asm.emit(StepOp.RETURN, a=simplify(first + counter), b=words, n=int(i in wanted))
        c.asm.close([step])


def _route(c: _UnitControl) -> None:
    """Every message that the unit sends after it has run forward."""
    for j, (_, output) in enumerate(c.unit.behaviour.decides):
        c.asm.emit(StepOp.DECIDE, a=c.item("output", output), n=j)
    for path in c.unit.out:
        _follow(c, path)


def _follow(c: _UnitControl, path: Path) -> None:
    asm, opened = c.asm, []
    outbound = path in c.partition.outbound
    if outbound:
        asm.emit(StepOp.FIRST)
    added = []
    for step in path.steps:
        if isinstance(step, Guard):
            opened.append(asm.guard(step.condition))
        else:
            loop, counter = asm.loop(step.extent)
            opened.append(loop)
            asm.fields[step.name] = counter
            added.append(step.name)
    program = c.unit.behaviour.program
    assert program is not None
    t = program.outputs_types[path.value]
    payload, row = c.item("output", path.value), None
    if path.by_row is not None:
        row = simplify(asm.fields[path.by_row] * t.width)
        payload = simplify(payload + row)
    number = list(float_outputs(c.unit)).index(path.value)
    if not outbound:
        target = c.partition.lowered.units[path.target]
        values = {name: asm.value(e) for name, e in path.key}
        fid = simplify(asm.word("firings", path.target) + asm.index(target.behaviour.state, values))
        if path.member is None:
            oid = simplify(fid + asm.word("operand", path.target, path.operand))
        else:
            first = asm.read(fid + asm.word("members", path.target, path.operand))
            oid = simplify(first + asm.value(path.member))
        state = packed(c.partition.layouts[path.target], values)
        asm.emit(
            StepOp.DELIVER, a=fid, b=oid, c=state, d=payload, e=row,
            m=number, n=int(row is not None), path=path.index,
        )  # fmt: skip
    else:
        words = lift(t.width) if row is not None else c.words(t.space, t.width)
        n = c.partition.outbound.index(path)
        asm.emit(StepOp.SEND, a=payload, b=words, c=_outcome(c.unit), e=row, m=number, n=n, path=path.index)
    asm.close(opened)
    for name in added:
        del asm.fields[name]


def _outcome(unit: Unit) -> Expr:
    """The decisions as one number, as the plan counts them."""
    total: Expr = Const(0)
    for j, (f, _) in enumerate(unit.behaviour.decides):
        total = total * choices(f) + Field(f"$d{j}")
    return simplify(total)
