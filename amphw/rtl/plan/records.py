"""Records: what a firing keeps in payload memory, item behind item, and how much room that takes.

How many rows a message has may depend on the instance, so offsets and sizes are sums: words, and words for
each row of a row space.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from amphw.ir.algebra import simplify
from amphw.ir.errors import GraphError
from amphw.ir.expr import Attr, Const, Expr, Field, Op, Table
from amphw.ir.instance import Schema
from amphw.ir.state import FieldType
from amphw.rtl.isa.commands import ROW_REGISTERS


@dataclass(frozen=True)
class Words:
    """`constant` words, and `each[i] = (r, n)`: n words for each row that ROWS[r] counts; by r, no n is 0."""

    constant: int = 0
    each: tuple[tuple[int, int], ...] = ()

    def __add__(self, other: Words) -> Words:
        sums = dict(self.each)
        for r, n in other.each:
            sums[r] = sums.get(r, 0) + n
        return Words(self.constant + other.constant, tuple((r, n) for r, n in sorted(sums.items()) if n))

    def of(self, rows: Sequence[int]) -> int:
        """For so many rows in each register."""
        return self.constant + sum(n * rows[r] for r, n in self.each)

    def fits(self, room: Words) -> bool:
        """Whether it is no more than `room`, however many rows there are."""
        mine, theirs = dict(self.each), dict(room.each)
        return self.constant <= room.constant and all(n <= theirs.get(r, 0) for r, n in mine.items())

    def largest(self, other: Words) -> Words:
        """No less than either of the two."""
        each = dict(self.each)
        for r, n in other.each:
            each[r] = max(each.get(r, 0), n)
        return Words(max(self.constant, other.constant), tuple(sorted(each.items())))


@dataclass(frozen=True)
class RowSpaces:
    """How many rows a message has in each space of a node.

    constant: spaces where that is known. register: number of the register that counts the others' rows.
    counts: what the controller loads into the registers, over the firing state.
    """

    constant: Mapping[str, int]
    register: Mapping[str, int]
    counts: tuple[Expr, ...]

    @classmethod
    def of(cls, node: str, spaces: Iterable[tuple[str, Expr]]) -> RowSpaces:
        """GraphError for more spaces of different sizes than a sequencer has registers."""
        constant: dict[str, int] = {}
        register: dict[str, int] = {}
        counts: list[Expr] = []
        for space, rows in spaces:
            rows = simplify(rows)
            if isinstance(rows, Const):
                constant[space] = rows.value
                continue
            if rows not in counts:
                counts.append(rows)
            register[space] = counts.index(rows)
        if len(counts) > ROW_REGISTERS:
            raise GraphError(
                f"its messages have {len(counts)} different numbers of rows; the hardware has registers for "
                f"{ROW_REGISTERS}: split it into several nodes",
                node=node,
            )
        return cls(constant, register, tuple(counts))

    def words(self, space: str, width: int) -> Words:
        """What an array [rows of the space, width] takes."""
        if space in self.constant:
            return Words(self.constant[space] * width)
        return Words(0, ((self.register[space], width),))

    def single(self, space: str) -> bool:
        """Whether each message has just one row there."""
        return self.constant.get(space) == 1


ItemKind = Literal["int", "output", "kept", "members", "gradient"]


@dataclass(frozen=True)
class Item:
    """An array [rows of `space`, width] of a record.

    int: state expression `index` of the forward program, modulo 2**16, written before it runs; output: of the
    program; kept: what the backward program reads besides; members: those of group operand `index`, copied
    side by side; gradient: of operand `index`.
    """

    kind: ItemKind
    index: int
    space: str
    width: int


@dataclass(frozen=True)
class Record:
    """items in their order, and where each begins."""

    items: tuple[Item, ...]
    offsets: tuple[Words, ...]
    size: Words

    @classmethod
    def of(cls, items: Iterable[Item], spaces: RowSpaces) -> Record:
        order: tuple[ItemKind, ...] = ("int", "output", "kept", "members", "gradient")
        placed = sorted(items, key=lambda i: (order.index(i.kind), i.index))
        offsets, end = [], Words()
        for item in placed:
            offsets.append(end)
            end += spaces.words(item.space, item.width)
        return cls(tuple(placed), tuple(offsets), end)

    def offset(self, kind: ItemKind, index: int) -> Words:
        """Where an item begins; KeyError if the record has no such item."""
        for item, offset in zip(self.items, self.offsets, strict=True):
            if (item.kind, item.index) == (kind, index):
                return offset
        raise KeyError((kind, index))


Interval = tuple[int, int]
"""The least and the largest value, both included."""

UNKNOWN: Interval = (-(2**31), 2**31 - 1)
INT64: Interval = (-(2**63), 2**63 - 1)


def interval(e: Expr, schema: Schema, fields: Mapping[str, Interval]) -> Interval:
    """What an expression can be, by the declared bounds of attributes and tables and those of `fields`."""
    if isinstance(e, Const):
        return e.value, e.value
    if isinstance(e, Field):
        return fields.get(e.name, UNKNOWN)
    if isinstance(e, Attr):
        return (0, schema.attrs[e.name]) if e.name in schema.attrs else (0, UNKNOWN[1])
    if isinstance(e, Table):
        table = schema.tables[e.name]
        return table.low, max(table.low, interval(table.high, schema, fields)[1] - 1)
    assert isinstance(e, Op)
    low, high = _interval(e.op, [interval(a, schema, fields) for a in e.args])
    # Beyond 64 bits values wrap, and may be anything.
    return (low, high) if INT64[0] <= low and high <= INT64[1] else INT64


def _interval(op: str, args: list[Interval]) -> Interval:
    if op == "where":
        return min(args[1][0], args[2][0]), max(args[1][1], args[2][1])
    (a, b), (c, d) = args
    if op == "+":
        return a + c, b + d
    if op == "-":
        return a - d, b - c
    if op in ("*", "//"):
        if op == "//" and c <= 0:
            return UNKNOWN
        ends = [x * y if op == "*" else x // y for x in (a, b) for y in (c, d)]
        return min(ends), max(ends)
    if op == "%":
        return (0, d - 1) if c > 0 else UNKNOWN
    if op == "min":
        return min(a, c), min(b, d)
    if op == "max":
        return max(a, c), max(b, d)
    if op == "hash":
        return 0, 2**32 - 1
    return 0, 1  # a comparison


def state_bounds(fields: Iterable[FieldType]) -> dict[str, Interval]:
    return {f.name: (0, f.bound - 1) for f in fields}


def row_bounds(spaces: RowSpaces, schema: Schema, fields: Iterable[FieldType]) -> tuple[int, ...]:
    """The most rows that each register can count."""
    known = state_bounds(fields)
    return tuple(max(0, interval(e, schema, known)[1]) for e in spaces.counts)
