"""The control programs of a partition: for each unit what happens before it runs and after it has run.

Units on the device are those that compute; sources and losses are the host's. A path between two units of the
device becomes steps that deliver, one that leads to the host becomes a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from amphw.engine.lower import Guard, Lowered, Path, Unit, choices
from amphw.ir.algebra import simplify
from amphw.ir.expr import ROW, Const, Expr, Field, lift
from amphw.ir.state import BitLayout
from amphw.rtl.fixed.lowering import FixedDerivative
from amphw.rtl.steps import FID, RECORD, Assembler, Directory, Step, StepOp, packed, unpacked


class Phase(Enum):
    """Before a unit runs forward or backward, and after it."""

    FETCH = 0
    ROUTE = 1
    FETCH_BACKWARD = 2
    RETURN = 3


@dataclass(frozen=True)
class Item:
    """A piece of a firing's record: `number` of its kind, [rows of `space`, width].

    kind: "int" (an integer operand), "output", "value" (kept for backward), "member" (a group operand's
    messages), "gradient" (of an operand).
    """

    kind: str
    number: int
    space: str
    width: int


def items_of(unit: Unit, fixed: FixedDerivative) -> list[Item]:
    """The record's items in their order."""
    program = unit.behaviour.program
    assert program is not None
    out = [Item("int", k, space, 1) for k, (_, space) in enumerate(program.ints)]
    own = len(program.outputs)
    for k, v in enumerate(fixed.forward.outputs):
        t = fixed.forward.types[v]
        out.append(Item("output" if k < own else "value", k if k < own else k - own, t.space, t.width))
    out += [Item("member", i, o.space, o.width) for i, o in enumerate(unit.operands) if o.count is not None]
    return out + [Item("gradient", i, unit.operands[i].space, unit.operands[i].width) for i in fixed.wrt]


@dataclass
class Partition:
    """Which units the device has, and how paths cross its border.

    units: on the device, in the order of their numbers there. outbound: paths to the host, in the order of
    their numbers in messages. scratch: first word behind the scratch area, where gradients are summed.
    """

    lowered: Lowered
    units: list[Unit]
    fixed: dict[int, FixedDerivative]

    def __post_init__(self) -> None:
        self.number = {u.index: k for k, u in enumerate(self.units)}
        inside = self.number
        self.outbound = [p for p in self.lowered.paths if p.source in inside and p.target not in inside]
        self.inbound = [p for p in self.lowered.paths if p.source not in inside and p.target in inside]
        self.items = {u.index: items_of(u, self.fixed[u.index]) for u in self.units}
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
        self.fixed = partition.fixed[unit.index]
        self.u = unit.index

    def rows(self, space: str) -> Expr:
        return self.asm.value(dict(self.unit.behaviour.spaces)[space])

    def words(self, space: str, width: int) -> Expr:
        return simplify(self.rows(space) * width)

    def item(self, kind: str, number: int) -> Expr:
        """Where an item of the record lies."""
        at: Expr = RECORD
        for item in self.partition.items[self.u]:
            if (item.kind, item.number) == (kind, number):
                return simplify(at)
            at = at + self.words(item.space, item.width)
        raise KeyError((kind, number))

    def place(self, operand: int) -> Expr:
        """Number of the place of an operand that takes one message."""
        return simplify(FID + self.asm.word("operand", self.u, operand))

    def members(self, operand: int) -> tuple[Expr, Expr]:
        """First place of a group operand's members, and their number."""
        count = self.unit.operands[operand].count
        assert count is not None
        return self.asm.read(FID + self.asm.word("members", self.u, operand)), self.asm.value(count)

    def load_rows(self) -> None:
        for r, (space, _) in enumerate(self.unit.behaviour.spaces):
            self.asm.emit(StepOp.ROWS, a=self.rows(space), n=r)

    def load_operands(self) -> None:
        for i, o in enumerate(self.unit.operands):
            if o.count is None:
                self.asm.emit(StepOp.POINT, a=self.place(i), n=1 + i)
            else:
                self.asm.emit(StepOp.ADDRESS, a=self.item("member", i), n=1 + i)


def _fetch(c: _UnitControl) -> None:
    """Rows, integer operands and operands; a group's members are copied side by side."""
    c.load_rows()
    c.load_operands()
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
        c.asm.emit(StepOp.AT, a=c.item("member", i))
        step, counter = c.asm.loop(count)
        c.asm.emit(StepOp.COPY, a=simplify(first + counter), b=words)
        c.asm.close([step])


def _fetch_backward(c: _UnitControl) -> None:
    """Rows, operands, and the gradients of the outputs."""
    c.load_rows()
    c.load_operands()
    program = c.unit.behaviour.program
    assert program is not None
    at = 0
    for n, k in enumerate(float_outputs(c.unit)):
        t = program.outputs_types[k]
        words = c.words(t.space, t.width)
        pointer = 1 + len(c.unit.operands) + n
        alone = any(p.by_row is not None and p.value == k for p in c.unit.out)
        into = simplify(Field("$sums") + at)
        row = lift(t.width) if alone else words
        c.asm.emit(StepOp.GRADIENT, n=pointer, m=n, b=words, d=into, e=row)
        at += gradient_room(c.partition, c.unit, k)


def gradient_room(partition: Partition, unit: Unit, output: int) -> int:
    """Words in which the gradient of an output is summed, at most."""
    from amphw.rtl.bounds import bound_of

    program = unit.behaviour.program
    assert program is not None
    t = program.outputs_types[output]
    fields = {f.name: f.bound for f in unit.behaviour.state.fields}
    rows = dict(unit.behaviour.spaces)[t.space]
    return t.width * bound_of(rows, partition.lowered.graph.schema, fields)


def float_outputs(unit: Unit) -> Sequence[int]:
    """Numbers of the outputs that have a gradient, in the order of the backward program's first inputs."""
    assert unit.derivative is not None
    return unit.derivative.float_outputs


def _return(c: _UnitControl) -> None:
    """Every operand's gradient goes back to where the operand came from."""
    wanted = set(c.fixed.wrt)
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
    if path.target not in c.partition.number:
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
    if path.target in c.partition.number:
        target = c.partition.lowered.units[path.target]
        values = {name: asm.value(e) for name, e in path.key}
        fid = simplify(asm.word("firings", path.target) + asm.index(target.behaviour.state, values))
        if path.member is None:
            oid = simplify(fid + asm.word("operand", path.target, path.operand))
        else:
            first = asm.read(fid + asm.word("members", path.target, path.operand))
            oid = simplify(first + asm.value(path.member))
        state = packed(c.partition.layouts[path.target], values)
        asm.emit(StepOp.DELIVER, a=fid, b=oid, c=state, d=payload, e=row, m=number, n=int(row is not None))
    else:
        words = lift(t.width) if row is not None else c.words(t.space, t.width)
        n = c.partition.outbound.index(path)
        asm.emit(StepOp.SEND, a=payload, b=words, c=_outcome(c.unit), e=row, m=number, n=n)
    asm.close(opened)
    for name in added:
        del asm.fields[name]


def _outcome(unit: Unit) -> Expr:
    """The decisions as one number, as the plan counts them."""
    total: Expr = Const(0)
    for j, (f, _) in enumerate(unit.behaviour.decides):
        total = total * choices(f) + Field(f"$d{j}")
    return simplify(total)
