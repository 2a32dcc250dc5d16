"""Control programs: what the controller does before and after a unit runs, as steps over expressions.

Joins, routes and returns are compiled from the lowered graph into *steps*. What a step computes is an
expression of `amphw.ir.expr` over registers of the controller, which becomes logic; structure tables,
attributes and the places of an instance's firings are words of the table memory, which steps read one by one.

Registers, as names of fields: `$dir` (the slot's directory), `$fid` (number of the firing), `$record` (where
its record lies), `$s<offset>.<bits>` (a field of its packed state), `$d<j>` (a decision), `$e<j>` (a loop's
counter), `$r<j>` (a word that was read). Constants: `$scratch`, `$sums` (areas of payload memory).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from amphw.ir.algebra import simplify
from amphw.ir.errors import GraphError
from amphw.ir.expr import Attr, Const, Expr, Field, Op, Table, lift
from amphw.ir.instance import Schema
from amphw.ir.state import BitLayout, StateType
from amphw.rtl.plan.records import interval

DIR, FID, RECORD, SCRATCH, SUMS = (Field(f"${n}") for n in ("dir", "fid", "record", "scratch", "sums"))


class StepOp(IntEnum):
    """What a step does with its expressions a .. e and its numbers; target: a step; path: of a message."""

    END = 0
    READ = 1  # r[n] = table[a]
    GUARD = 2  # go to target unless a
    LOOP = 3  # e[n] = 0; go to target if the extent a is 0
    NEXT = 4  # e[n] += 1; go to target while it is below its loop's extent
    ROWS = 5  # rows[n] = a
    ADDRESS = 6  # ptr[n] = a
    POINT = 7  # ptr[n] = where operand a lies
    PUT = 8  # payload[at] = a; at += 1
    AT = 9  # at = a
    COPY = 10  # b words of operand a to payload[at]; at += b
    GRADIENT = (
        11  # ptr[n] = the gradient of output m, b words, summed into payload[d] where it came in parts of e
    )
    DECIDE = 12  # d[n] = payload[a]
    FIRST = 13  # the next message is the first on its path
    DELIVER = (
        14  # output m, at payload[d], as operand b of firing a with state c; n: a row alone, at offset e
    )
    SEND = 15  # output m, b words at payload[a], on path n to the host, with decisions c; e: its row's offset
    RETURN = 16  # b words at payload[at], or none if n is 0, to where operand a came from; at += b


CHANGES = (StepOp.READ, StepOp.LOOP, StepOp.NEXT, StepOp.DECIDE)
"""What changes registers that expressions are made of."""

SINCE = 2
"""Cycles that those registers have stood still at least, when a step comes that is not behind such a one."""


@dataclass
class Step:
    op: StepOp
    a: Expr | None = None
    b: Expr | None = None
    c: Expr | None = None
    d: Expr | None = None
    e: Expr | None = None
    n: int = 0
    m: int = 0
    path: int = 0
    target: int = -1

    def __str__(self) -> str:
        parts = [f"{k}: {v};" for k in "abcde" if (v := getattr(self, k)) is not None]
        parts += [f"n={self.n}", f"m={self.m}"] + ([f"-> {self.target}"] if self.target >= 0 else [])
        return f"{self.op.name} " + " ".join(parts)


@dataclass
class Directory:
    """A slot's words: one for each attribute, table and piece of memory that steps ask for, by key.

    ("attr", name): its value. ("table", name): where it lies in table memory. ("firings", u): number of the
    first firing of unit u. ("operand", u, i): number of the first place of its operand i, less that of its
    first firing. ("members", u, i): where the table of the first places of a group's members lies, less the
    same. ("starts", state): where the prefix sums of a state's last field lie.
    """

    offsets: dict[tuple[object, ...], int] = field(default_factory=dict)

    def offset(self, *key: object) -> int:
        return self.offsets.setdefault(key, len(self.offsets))

    @property
    def size(self) -> int:
        """Words, a power of two, so that slot and offset are concatenated."""
        return 1 << max(1, (len(self.offsets) - 1).bit_length())


def inner_extents(schema: Schema, name: str) -> list[int]:
    """Static extents of a table's dimensions but the first: how it is laid out in table memory."""
    if name not in schema.tables:
        raise GraphError(f"the table '{name}' is not declared in the schema, so its size is not known")
    return [interval(e, schema, {})[1] for e in schema.tables[name].shape[1:]]


class Assembler:
    """Writes one control program. fields: what names in expressions stand for (registers)."""

    def __init__(self, schema: Schema, directory: Directory, fields: Mapping[str, Expr]):
        self.schema, self.directory, self.fields = schema, directory, dict(fields)
        self.steps: list[Step] = []
        self._known: list[dict[Expr, Expr]] = [{}]  # words read, by address, in nested scopes
        self._reads = 0
        self.loops = 0

    # --- values -----------------------------------------------------------------------------------

    def value(self, e: Expr | int) -> Expr:
        """The expression over registers, after the steps that read what it needs."""
        return simplify(self._value(lift(e)))

    def _value(self, e: Expr) -> Expr:
        if isinstance(e, Field):
            return self.fields.get(e.name, e)
        if isinstance(e, Attr):
            return self.word("attr", e.name)
        if isinstance(e, Table):
            flat: Expr = self._value(e.index[0])
            for extent, index in zip(inner_extents(self.schema, e.name), e.index[1:], strict=True):
                flat = flat * extent + self._value(index)
            return self.read(self.word("table", e.name) + flat)
        if isinstance(e, Op):
            return Op(e.op, tuple(self._value(a) for a in e.args))
        return e

    def word(self, *key: object) -> Expr:
        """A word of the slot's directory."""
        return self.read(DIR + self.directory.offset(*key))

    def read(self, address: Expr) -> Expr:
        address = simplify(address)
        for scope in self._known:
            if address in scope:
                return scope[address]
        found = Field(f"$r{self._reads}")
        self.emit(StepOp.READ, a=address, n=self._reads)
        self._reads += 1
        self._known[-1][address] = found
        return found

    # --- steps ------------------------------------------------------------------------------------

    def emit(self, op: StepOp, **parts: object) -> Step:
        step = Step(op, **parts)  # type: ignore[arg-type]
        self.steps.append(step)
        return step

    def guard(self, condition: Expr) -> Step:
        """What follows, up to `close`, is done only if the condition holds."""
        step = self.emit(StepOp.GUARD, a=self.value(condition))
        self._known.append({})
        return step

    def loop(self, extent: Expr | int) -> tuple[Step, Expr]:
        """What follows, up to `close`, is done for each value of the counter that is returned."""
        number = self.loops
        self.loops += 1
        step = self.emit(StepOp.LOOP, a=self.value(extent), n=number)
        self._known.append({})
        return step, Field(f"$e{number}")

    def close(self, opened: list[Step]) -> None:
        """End guards and loops, the innermost first."""
        for step in reversed(opened):
            if step.op is StepOp.LOOP:
                self.emit(StepOp.NEXT, n=step.n, target=self.steps.index(step) + 1)
                self.loops -= 1
            step.target = len(self.steps)
            self._known.pop()

    def index(self, state: StateType, values: Mapping[str, Expr]) -> Expr:
        """The dense address of a state within its space, whose fields have these values (over registers)."""
        at: Expr = Const(0)
        for k, f in enumerate(state.fields):
            if k == 0:
                at = values[f.name]
            elif isinstance(f.extent, Const):
                at = at * f.extent + values[f.name]
            else:
                starts = self.word("starts", StateType(state.fields[: k + 1]))
                at = self.read(starts + at) + values[f.name]
        return simplify(at)


def unpacked(layout: BitLayout) -> dict[str, Expr]:
    """Fields of a firing's state as registers."""
    return {name: Field(f"$s{offset}.{bits}") for name, offset, bits in layout.fields}


def packed(layout: BitLayout, values: Mapping[str, Expr]) -> Expr:
    """A state's word from its fields' values."""
    total: Expr = Const(0)
    for name, offset, _ in layout.fields:
        total = total + values[name] * (1 << offset)
    return simplify(total)
