"""One unit's microprograms: forward, inference and backward, and the record that its firings keep.

Pointers that the controller loads before a program: 0 the record; 1 .. the operands in order (a group
operand: the item with its members); in the backward program then the gradients of the float outputs in order;
last scratch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amphw.ir.expr import Expr
from amphw.ir.instance import Schema
from amphw.ir.state import FieldType
from amphw.rtl.fixed.lowering import FixedDerivative
from amphw.rtl.isa.commands import encode, listing
from amphw.rtl.microcode.arrays import Array, Home
from amphw.rtl.microcode.assemble import Assembler
from amphw.rtl.microcode.columns import Columns, join, whole
from amphw.rtl.microcode.plan import Plan
from amphw.rtl.microcode.schedule import scheduled
from amphw.rtl.microcode.scratch import place_scratch
from amphw.rtl.microcode.select import Selection
from amphw.rtl.microcode.terms import Group, group_terms
from amphw.rtl.plan.records import Item, Record, RowSpaces, Words, row_bounds
from amphw.rtl.plan.stack import Places

RECORD = 0
"""The pointer to the record."""

CURVES = ("sigmoid", "tanh")
"""Tables of a vector unit that has both."""


@dataclass(frozen=True)
class Microprogram:
    """words: instructions. scratch: how much room it needs there. pointers: how many the controller loads."""

    words: tuple[int, ...]
    scratch: Words
    pointers: int

    def __str__(self) -> str:
        return listing(self.words)


@dataclass(frozen=True)
class UnitCode:
    """What the controller must know of a unit, and what its sequencer runs.

    rows: what it loads into ROWS, over the firing state. most_rows: how much that can be.
    """

    node: str
    spaces: RowSpaces
    most_rows: tuple[int, ...]
    record: Record
    forward: Microprogram
    inference: Microprogram
    backward: Microprogram

    @property
    def rows(self) -> tuple[Expr, ...]:
        return self.spaces.counts

    @property
    def scratch(self) -> Words:
        """Room in scratch that is enough for each of the programs."""
        return self.forward.scratch.largest(self.inference.scratch).largest(self.backward.scratch)


def compile_unit(
    node: str,
    derivative: FixedDerivative,
    places: Places,
    spaces: Sequence[tuple[str, Expr]],
    schema: Schema,
    fields: Sequence[FieldType],
    groups: Sequence[int] = (),
    curves: Sequence[str] = CURVES,
) -> UnitCode:
    """Compile one unit; GraphError, naming the node, for what does not fit the sequencer.

    places: of its parameters in the lane engine's stack. spaces: rows of a message in each row space, over
    the firing state, whose fields are `fields` (`Behaviour.spaces`, `Behaviour.state.fields`). groups: which
    operands are groups. curves: the vector unit's tables in order.
    """
    found = RowSpaces.of(node, spaces)
    most = row_bounds(found, schema, fields)
    return _Unit(node, derivative, places, found, most, groups, curves).compile()


class _Unit:
    def __init__(
        self,
        node: str,
        derivative: FixedDerivative,
        places: Places,
        spaces: RowSpaces,
        most_rows: tuple[int, ...],
        groups: Sequence[int],
        curves: Sequence[str],
    ):
        self.node, self.d, self.places, self.spaces = node, derivative, places, spaces
        self.most_rows, self.groups, self.curves = most_rows, groups, curves
        forward = derivative.forward
        self.n_operands = len(forward.inputs)
        self.n_outputs = len(forward.outputs) - sum(kind == "value" for kind, _ in derivative.residuals)
        self.operands = [
            Array(f"operand{i}", t.space, t.width, Home(1 + i))
            for i, t in enumerate(forward.types[: self.n_operands])
        ]
        self.ints = [self._array("int", i, space, 1) for i, (_, space) in enumerate(forward.ints)]
        self.outputs = [
            self._array("output", i, forward.types[v].space, forward.types[v].width)
            for i, v in enumerate(forward.outputs[: self.n_outputs])
        ]
        self.gradients = [
            self._array("gradient", i, forward.types[i].space, forward.types[i].width) for i in derivative.wrt
        ]

    def _array(self, kind: str, index: int, space: str, width: int) -> Array:
        return Array(f"{kind}{index}", space, width)

    def compile(self) -> UnitCode:
        d, forward = self.d, self.d.forward
        kept = [forward.outputs[self.n_outputs + i] for kind, i in d.residuals if kind == "value"]
        given = [whole(a, a.width) for a in (*self.operands, *self.ints)]
        targets = list(zip(forward.outputs[: self.n_outputs], self.outputs, strict=True))
        plan = Plan(forward, given, self.spaces, targets, kept=kept)
        record = self._layout(plan.kept)
        scratch = 1 + self.n_operands
        code = self._program(plan, targets, scratch)
        inferred = Plan(d.inference, given, self.spaces, self._inference_targets())
        return UnitCode(
            self.node,
            self.spaces,
            self.most_rows,
            record,
            code,
            self._program(inferred, self._inference_targets(), scratch),
            self._backward(plan),
        )

    def _inference_targets(self) -> list[tuple[int, Array]]:
        return list(zip(self.d.inference.outputs, self.outputs, strict=True))

    def _layout(self, kept: Sequence[Array]) -> Record:
        """The record, and so the homes of all arrays in it."""
        arrays: list[tuple[Item, Array]] = []
        arrays += [(Item("int", i, a.space, 1), a) for i, a in enumerate(self.ints)]
        arrays += [(Item("output", i, a.space, a.width), a) for i, a in enumerate(self.outputs)]
        arrays += [(Item("kept", i, a.space, a.width), a) for i, a in enumerate(kept)]
        arrays += [
            (Item("gradient", i, a.space, a.width), a)
            for i, a in zip(self.d.wrt, self.gradients, strict=True)
        ]
        operands = [(i, self.operands[i]) for i in self.groups]
        members = [Item("members", i, a.space, a.width) for i, a in operands]
        record = Record.of([*(item for item, _ in arrays), *members], self.spaces)
        for item, array in arrays:
            array.home = Home(RECORD, record.offset(item.kind, item.index))
        return record

    def _backward(self, forward: Plan) -> Microprogram:
        d, program = self.d, self.d.backward
        n = len(program.inputs) - len(d.residuals)
        arrays = [
            Array(f"dy{i}", t.space, t.width, Home(1 + self.n_operands + i))
            for i, t in enumerate(program.types[:n])
        ]
        given = [whole(a, a.width) for a in arrays]
        given += [self._residual(forward, kind, i) for kind, i in d.residuals]
        known = list(d.forward.ints)
        given += [whole(self.ints[known.index(i)], 1) for i in program.ints]
        targets = list(zip(program.outputs[: len(d.wrt)], self.gradients, strict=True))
        together = [program.outputs[i] for t in d.terms for i in (t.a, t.dz) if i is not None]
        plan = Plan(program, given, self.spaces, targets, together=together)
        groups = group_terms(program, plan.columns, d.terms, self.places)
        return self._program(plan, targets, 1 + self.n_operands + n, groups)

    def _residual(self, forward: Plan, kind: str, index: int) -> Columns:
        """A forward value as the backward program finds it: columns of arrays that are still there."""
        if kind == "input":
            return whole(self.operands[index], self.operands[index].width)
        if kind == "output":
            return whole(self.outputs[index], self.outputs[index].width)
        columns = forward.columns[self.d.forward.outputs[self.n_outputs + index]]
        array = forward.laid.get(columns)
        if array is not None and array in forward.kept:
            return whole(array, array.width)
        return join(forward.settled(columns))

    def _program(
        self,
        plan: Plan,
        targets: Sequence[tuple[int, Array]],
        scratch: int,
        groups: Sequence[Group] = (),
    ) -> Microprogram:
        selection = Selection(plan, self.places, self.curves)
        ready = _by_operation(groups)
        for group in ready.get(-1, ()):
            selection.group(group)
        for v, o in plan.program.numbered():
            here = ready.get(v, [])
            if not any(g.dx == v for g in here):
                selection.operation(v, o)
            for group in here:
                selection.group(group)
        for v, array in targets:
            selection.write(plan.columns[v], array)
        commands = scheduled(selection.commands, self.spaces)
        slots, room = place_scratch(commands, self.spaces, scratch)
        assembler = Assembler(self.node, self.spaces, scratch + 1, slots, self.most_rows)
        for command in commands:
            assembler.add(command)
        return Microprogram(encode(assembler.end()), room, scratch + 1)


def _by_operation(groups: Sequence[Group]) -> Mapping[int, list[Group]]:
    found: dict[int, list[Group]] = {}
    for group in groups:
        found.setdefault(group.after, []).append(group)
    return found
