"""From commands to instructions: addresses, loops, what must wait for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amphw.ir.errors import GraphError
from amphw.rtl.isa.commands import (
    COUNT_BITS,
    END,
    INITIAL,
    KIND,
    LAYOUT,
    POINTERS,
    WAIT,
    Code,
    Field,
    IndexMode,
    Instruction,
    LaneOp,
    VectorOp,
    issue_lanes,
    issue_vector,
    ptr,
    setc,
    setp,
    setr,
)
from amphw.rtl.microcode.abstract import Command, LaneCommand, VectorCommand
from amphw.rtl.microcode.arrays import Array, Home, View
from amphw.rtl.plan.records import RowSpaces, Words

SPARE = 4
"""Pointers that a program needs for addresses behind arrays whose length only the message knows."""

MOST = (1 << COUNT_BITS) - 1
"""The largest count of a command."""

Value = int | Words | Home
"""What a field is set to: a constant, rows of a message times words, or an address."""

CONSTANT = frozenset(
    {
        VectorOp.FILL,
        VectorOp.SCALE,
        VectorOp.SHIFT,
        VectorOp.SIGN,
        VectorOp.STEP,
        VectorOp.EQUAL,
        VectorOp.ABOVE,
    }
)
"""Operations that read the constant."""


class Assembler:
    """instructions: of the commands given so far.

    fixed: how many pointers the controller loads. slots: scratch slots of arrays; others lie apart.
    most_rows: what each ROWS register can count at most.
    """

    def __init__(
        self,
        node: str,
        spaces: RowSpaces,
        fixed: int,
        slots: Mapping[Array, int],
        most_rows: Sequence[int],
    ):
        if fixed + SPARE > POINTERS:
            raise GraphError(
                f"its operands and gradients take {fixed} pointers and addresses {SPARE} more; the "
                f"hardware has {POINTERS}: join operands before this node",
                node=node,
            )
        self.node, self.spaces, self.slots, self.most_rows = node, spaces, slots, most_rows
        self.instructions: list[Instruction] = []
        self._fields: dict[Field, Value] = dict(INITIAL)
        self._pointers: dict[Home, int] = {}  # address without its constant -> register, the latest used last
        self._free = list(range(fixed, POINTERS))
        self._doing: dict[type, tuple[list[View], list[View]]] = {}
        self._idle()
        self._unwritten: list[View] = []  # by vector commands since the last that waited for those before it

    def add(self, command: Command) -> None:
        if isinstance(command, VectorCommand):
            self._vector(command)
        else:
            self._lanes(command)

    def end(self) -> list[Instruction]:
        return [*self.instructions, END]

    # --- order ------------------------------------------------------------------------------------

    def _idle(self) -> None:
        self._doing = {VectorCommand: ([], []), LaneCommand: ([], [])}

    def _order(self, command: Command) -> None:
        """Wait where the command touches what the other unit may still read or write.

        The vector unit keeps its own commands in order; the lane engine only where they do not depend on one
        another.
        """
        vector = isinstance(command, VectorCommand)
        read, written = self._doing[LaneCommand if vector else VectorCommand]
        if not vector:
            read, written = (
                [*some, *more] for some, more in zip((read, written), self._doing[LaneCommand], strict=True)
            )
        if self._touch(command.reads, written) or self._touch(command.writes, [*read, *written]):
            self.instructions.append(WAIT)
            self._idle()
            self._unwritten = []
        reads, writes = self._doing[type(command)]
        reads.extend(command.reads)
        writes.extend(command.writes)

    def _touch(self, some: Sequence[View], others: Sequence[View]) -> bool:
        return any(self._overlap(a, b) for a in some for b in others)

    def _overlap(self, a: View, b: View) -> bool:
        if a.array is b.array:
            return a.meets(b)
        slot = self.slots.get(a.array)
        return slot is not None and slot == self.slots.get(b.array)

    # --- fields -----------------------------------------------------------------------------------

    def _set(self, field: Field, value: Value) -> None:
        if isinstance(value, Words) and not value.each:
            value = value.constant
        if self._fields[field] == value:
            return
        if isinstance(value, int):
            instruction = setc(field, value)
        elif isinstance(value, Home):
            instruction = setp(field, self._pointer(value), value.offset.constant)
        else:
            assert not value.constant and len(value.each) == 1
            instruction = setr(field, *value.each[0])
        self._emit(instruction)
        self._fields[field] = value

    def _emit(self, instruction: Instruction) -> None:
        try:
            instruction.encode()
        except ValueError:
            raise GraphError(_too_large(instruction), node=self.node) from None
        self.instructions.append(instruction)

    def _pointer(self, address: Home) -> int:
        """A register that holds the address without its constant words."""
        each = address.offset.each
        if not each:
            return address.pointer
        key = Home(address.pointer, Words(0, each))
        if key in self._pointers:
            register = self._pointers.pop(key)
        else:
            register = self._free.pop(0) if self._free else self._pointers.pop(next(iter(self._pointers)))
            start = address.pointer
            for r, n in each:
                self._emit(ptr(register, start, r, n))
                start = register
        self._pointers[key] = register
        return register

    def _address(self, view: View) -> Home:
        home = view.array.home
        assert home is not None, view
        return Home(home.pointer, home.offset + Words(view.column))

    # --- the lane engine --------------------------------------------------------------------------

    def _lanes(self, c: LaneCommand) -> None:
        place, by_index = c.place, c.op in (LaneOp.TAKE, LaneOp.TAKE_GRADIENT)
        self._set(Field.L_ROWS, self.spaces.words(c.space, 1))
        for field, view in ((Field.L_X, c.x), (Field.L_Y, c.y), (Field.L_DZ, c.dz)):
            if view is not None:
                assert view.packed(self.spaces, c.space), c
                self._set(field, self._address(view))
        self._set(Field.L_BASE, place.base)
        if not by_index:
            self._set(Field.L_K, place.rows)
        self._set(Field.L_BLOCKS, place.blocks)
        self._set(Field.L_N, place.columns)
        self._order(c)
        want_dx = c.op == LaneOp.BACKWARD and c.y is not None
        self.instructions.append(issue_lanes(c.op, bias=c.bias, want_dx=want_dx, want_dw=c.want_dw))

    # --- the vector unit --------------------------------------------------------------------------

    def _vector(self, c: VectorCommand) -> None:
        if c.across is not None:
            self._reduction(c)
        elif c.mode != IndexMode.NONE:
            self._by_rows(c)
        else:
            self._elements(c)
        if c.op in CONSTANT:
            self._set(Field.V_CONSTANT, c.constant)
        if c.index is not None:
            assert c.index.packed(self.spaces, c.space), c
            self._set(Field.V_INDEX, self._address(c.index))
            self._set(Field.V_SCALE, c.scale)
        self._order(c)
        overlap = not self._touch(c.reads, self._unwritten)
        self._unwritten = [*(self._unwritten if overlap else []), *c.writes]
        self.instructions.append(issue_vector(c.op, c.mode, overlap=overlap, shift=c.shift, table=c.table))

    def _operand(self, base: Field, view: View | None, outer: int | None, inner: int | None) -> None:
        """Set what the loops need to know of an operand; a stride None is that of a loop with one step."""
        if view is None:
            return
        self._set(base, self._address(view))
        if outer is not None:
            self._set(Field(base + 1), outer)
        if inner is not None:
            self._set(Field(base + 2), inner)

    def _count(self, space: str, width: int) -> Words | None:
        """Elements of an array as one loop; None if they may be too many for one."""
        words = self.spaces.words(space, width)
        return words if words.of(self.most_rows) <= MOST else None

    def _rows(self, space: str) -> Words:
        words = self._count(space, 1)
        if words is None:
            raise GraphError(
                f"its messages may have {self.spaces.words(space, 1).of(self.most_rows)} rows in the space "
                f"'{space}'; the hardware counts to {MOST}: declare a smaller bound",
                node=self.node,
            )
        return words

    def _elements(self, c: VectorCommand) -> None:
        views = {Field.V_A: c.a, Field.V_B: c.b, Field.V_D: c.d}
        present = [v for v in views.values() if v is not None]
        width = c.d.width
        count = self._count(c.space, width)
        column = all(v.width == 1 for v in present)
        strides: list[tuple[int | None, int | None]]
        if self.spaces.single(c.space):
            self._loops(1, width)
            strides = [(None, None if v is None or width == 1 else v.inner) for v in views.values()]
        elif count is not None and all(v.packed(self.spaces, c.space) for v in present):
            self._loops(1, count)
            strides = [(None, 1)] * len(views)
        elif column:
            self._loops(1, self._rows(c.space))
            strides = [(None, None if v is None else v.outer) for v in views.values()]
        else:
            self._loops(self._rows(c.space), width)
            strides = [(None, None) if v is None else (v.outer, v.inner) for v in views.values()]
        for (base, view), (outer, inner) in zip(views.items(), strides, strict=True):
            self._operand(base, view, outer, inner)

    def _by_rows(self, c: VectorCommand) -> None:
        """An outer step a row, as each has its index."""
        single = self.spaces.single(c.space)
        self._loops(self._rows(c.space), c.d.width)
        for base, view in ((Field.V_A, c.a), (Field.V_B, c.b), (Field.V_D, c.d)):
            if view is not None:
                self._operand(
                    base, view, None if single else view.outer, None if view.width == 1 else view.inner
                )

    def _reduction(self, c: VectorCommand) -> None:
        assert c.a is not None
        if c.across == "columns":
            self._loops(self._rows(c.space), c.a.width)
            single = self.spaces.single(c.space)
            self._operand(Field.V_A, c.a, None if single else c.a.outer, c.a.inner)
            self._operand(Field.V_D, c.d, None if single else c.d.outer, None)
        else:
            self._loops(c.d.width, self._rows(c.space))
            self._operand(Field.V_A, c.a, c.a.inner, c.a.outer)
            self._operand(Field.V_D, c.d, 1, None)

    def _loops(self, outer: int | Words, inner: int | Words) -> None:
        self._set(Field.V_OUTER, outer)
        self._set(Field.V_INNER, inner)


def _too_large(instruction: Instruction) -> str:
    """What a number beyond an instruction's room means for the model."""
    (most,) = (part.high for part in LAYOUT[instruction.code] if part.name == "imm")
    number = instruction["imm"]
    row = instruction.code in (Code.PTR, Code.SETR)
    if not row and KIND[Field(instruction["field"])] == "beat":
        return (
            f"the parameters before its own fill {number:,} words of the lanes' memory, of which {most:,} "
            "can be reached; choose more lanes (--lanes of amphw rtl), narrower layers (--set hidden=... "
            "or width=...) or a smaller vocabulary"
        )
    return (
        f"a message, or the record that is kept of it, takes {number:,} words{' a row' * row}; the hardware "
        f"reaches {most:,}; choose fewer rows a message (--set batch=1, if the model has it) or narrower "
        "layers (such as --set hidden=... or width=...)"
    )
