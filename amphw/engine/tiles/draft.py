"""Drafts: a program on its way to tile code, before it is known where each value lives.

A *variable* is what one node computes: contiguous columns in a row space. A program's value is a *row* of
pieces of variables, left to right, so a slice is a shorter row, a concatenation a longer one, and zeros are
pieces of no variable at all: none of them computes anything. Nodes are numbered in an order in which they can
run, except where a pass says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from amphw.engine.tiles.code import Base, PhaseKind, Place
from amphw.engine.tiles.operations import READS_ONE, SETS_INT, WRITES_ONE, Op

ZERO = -1
"""The variable of which zeros are pieces, in every space."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Columns offset .. offset + width - 1 of a variable."""

    var: int
    offset: int
    width: int


Row = tuple[Piece, ...]


def zeros(width: int) -> Row:
    return (Piece(ZERO, 0, width),)


def joined(pieces: Iterable[Piece]) -> Row:
    """The pieces as a row: neighbours that continue each other become one, empty ones go."""
    out: list[Piece] = []
    for p in pieces:
        if not p.width:
            continue
        last = out[-1] if out else None
        if last is not None and last.var == p.var and (p.var == ZERO or last.offset + last.width == p.offset):
            out[-1] = Piece(p.var, last.offset, last.width + p.width)
        else:
            out.append(p)
    return tuple(out)


def part(row: Row, start: int, width: int) -> Row:
    """Columns start .. start + width - 1 of a row."""
    out, at = [], 0
    for p in row:
        low, high = max(start, at), min(start + width, at + p.width)
        if low < high:
            offset = 0 if p.var == ZERO else p.offset + low - at
            out.append(Piece(p.var, offset, high - low))
        at += p.width
    return joined(out)


def width_of(row: Row) -> int:
    return sum(p.width for p in row)


def boundaries(row: Row) -> set[int]:
    """The columns at which a row's second and later pieces start."""
    out, at = set(), 0
    for p in row[:-1]:
        at += p.width
        out.add(at)
    return out


class Kind(Enum):
    """Source: rows that are there already. Instr, Gemm, Move: what phases run. Pack: a row that must lie in
    one place, `base` if that is given. Keep: a row that the backward direction reads."""

    Source = auto()
    Instr = auto()
    Gemm = auto()
    Move = auto()
    Pack = auto()
    Keep = auto()


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix that a left side is multiplied with; first_row: as in `Phase`."""

    param: int
    transposed: bool = False
    first_row: int = -1


@dataclass
class Node:
    """A step of the computation, or a demand on where something lies.

    args: Instr and Move read rows of one piece each; Gemm has the left side of each product, and behind them
    the row that is added in the bias's place, if any; Pack and Keep one row. width: columns of the result, 0
    where it is an integer.
    """

    kind: Kind
    space: int
    width: int
    args: tuple[Row, ...] = ()
    op: Op | None = None
    move: PhaseKind | None = None
    f: float = 0.0
    ints: tuple[int, ...] = ()
    seed: int = 0
    source: int = 0
    products: tuple[Product, ...] = ()
    bias: int = -1
    base: Base | None = None
    windows: tuple[int, ...] = ()
    heads: int = 0

    @property
    def n(self) -> int:
        """The width that an instruction works on."""
        if self.op in WRITES_ONE | SETS_INT and self.op not in READS_ONE and self.args:
            return width_of(self.args[0])
        return max(self.width, 1)

    @property
    def reads_ints(self) -> tuple[int, ...]:
        return self.ints[1:] if self.op in SETS_INT else self.ints


@dataclass(frozen=True, slots=True)
class Use:
    """Who reads a piece: argument `arg` of node `reader`."""

    reader: int
    arg: int
    piece: Piece


@dataclass
class Draft:
    """int_operands, int_spaces: by slot, as in `Code`. int_maker: the node that computes a slot.

    needed_ints: slots that must be there in the end.
    """

    nodes: dict[int, Node] = field(default_factory=dict)
    int_operands: list[int] = field(default_factory=list)
    int_spaces: list[int] = field(default_factory=list)
    int_maker: dict[int, int] = field(default_factory=dict)
    needed_ints: set[int] = field(default_factory=set)
    _sources: dict[Base, int] = field(default_factory=dict)
    _count: int = 0

    def add(self, node: Node) -> int:
        self.nodes[self._count] = node
        self._count += 1
        return self._count - 1

    def row(self, node: Node) -> Row:
        """Add a node -> its result as a row."""
        return joined([Piece(self.add(node), 0, node.width)])

    def source(self, base: Base) -> Row:
        """What lies at a base, all of it."""
        if base not in self._sources:
            self._sources[base] = self.add(Node(Kind.Source, base.space, base.width, base=base))
        return joined([Piece(self._sources[base], 0, base.width)])

    def instr(
        self,
        op: Op,
        space: int,
        width: int,
        args: Iterable[Row] = (),
        f: float = 0.0,
        ints: tuple[int, ...] = (),
    ) -> Row:
        return self.row(Node(Kind.Instr, space, width, tuple(args), op, f=f, ints=ints))

    def slot(self, operand: int, space: int) -> int:
        """The integer slot of an integer operand; -1: a new one that the code makes."""
        if operand >= 0 and operand in self.int_operands:
            return self.int_operands.index(operand)
        self.int_operands.append(operand)
        self.int_spaces.append(space)
        return len(self.int_operands) - 1

    def computed(self, op: Op, space: int, args: Iterable[Row], f: float = 0.0) -> int:
        """Add an instruction that makes an integer -> its slot."""
        slot = self.slot(-1, space)
        self.int_maker[slot] = self.add(Node(Kind.Instr, space, 0, tuple(args), op, f=f, ints=(slot,)))
        return slot

    def uses(self) -> dict[int, list[Use]]:
        """Who reads each variable, piece by piece."""
        out: dict[int, list[Use]] = {v: [] for v in self.nodes}
        for reader, node in self.nodes.items():
            for k, row in enumerate(node.args):
                for p in row:
                    if p.var != ZERO:
                        out[p.var].append(Use(reader, k, p))
        return out

    def inputs(self, id: int) -> Iterator[int]:
        """The nodes that a node needs."""
        node = self.nodes[id]
        slots = list(node.reads_ints)
        for row in node.args:
            for p in row:
                if p.var != ZERO:
                    yield p.var
        if node.base is not None and node.base.place == Place.ParamRow:
            slots.append(node.base.ints)
        for s in slots:
            if s in self.int_maker:
                yield self.int_maker[s]

    def substitute(self, change: Callable[[Piece], Row]) -> None:
        """Put `change(piece)` in the place of every piece."""
        for node in self.nodes.values():
            node.args = tuple(joined(q for p in row for q in change(p)) for row in node.args)

    def replace(self, var: int, row: Row) -> None:
        """Put a row in the place of a variable, everywhere, and remove its node."""
        del self.nodes[var]
        self.substitute(lambda p: part(row, p.offset, p.width) if p.var == var else (p,))

    def sweep(self) -> None:
        """Remove what nothing needs."""
        roots = [i for i, n in self.nodes.items() if n.kind == Kind.Keep or _fixed(n)]
        stack = roots + [self.int_maker[s] for s in self.needed_ints if s in self.int_maker]
        needed: set[int] = set()
        while stack:
            i = stack.pop()
            if i not in needed:
                needed.add(i)
                stack.extend(self.inputs(i))
        self.nodes = {i: n for i, n in self.nodes.items() if i in needed}


def _fixed(node: Node) -> bool:
    return node.kind == Kind.Pack and node.base is not None
