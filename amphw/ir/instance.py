"""Instances: attributes, structure tables and float data, and the schema that they are checked against.

Labels, tokens and topology are tables, not messages. A table may carry axioms (`inverse_of`, `csr_of`,
`permutation`): they are checked when the instance is pumped, and the static checks prove Isu inverses from
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from amphw.ir.algebra import Rule
from amphw.ir.errors import GraphError, InstanceError, StateError
from amphw.ir.expr import Expr, Field, Table, walk

if TYPE_CHECKING:
    from amphw.ir.state import FieldType


@dataclass
class Instance:
    """One training or inference instance.

    attrs: integers by name. tables: integer arrays (any rank). data: float32 arrays [rows, width].
    `number` is set by whoever pumps it; expressions read it as the attribute `instance`. answered: whether
    all of it was given; else anything stands for what is to be predicted, and losses mean nothing. given: by
    the attribute or the table that says how many there are, which number each of them had where the instance
    was given, if they have others now; see `given_order`.
    """

    attrs: dict[str, int] = field(default_factory=dict)
    tables: dict[str, np.ndarray] = field(default_factory=dict)
    data: dict[str, np.ndarray] = field(default_factory=dict)
    number: int = 0
    answered: bool = True
    given: dict[str, np.ndarray] = field(default_factory=dict)

    def attr(self, name: str) -> int:
        if name == "instance":
            return self.number
        try:
            return self.attrs[name]
        except KeyError:
            raise InstanceError(
                f"instance {self.number}: no attribute '{name}' (it has {sorted(self.attrs)})"
            ) from None

    def lookup(self, name: str, index: tuple[np.ndarray, ...], *, strict: bool = True) -> np.ndarray:
        """Vectorised table read -> int64. Outside the table: StateError, or 0 where `strict` is false."""
        try:
            data = self.tables[name]
        except KeyError:
            raise InstanceError(
                f"instance {self.number}: no table '{name}' (it has {sorted(self.tables)})"
            ) from None
        if len(index) != data.ndim:
            raise InstanceError(
                f"instance {self.number}: table '{name}' has {data.ndim} dimensions, read with {len(index)}"
            )
        bad = self.outside(name, index)
        if not bad.any():
            return data[index].astype(np.int64)
        if strict:
            i = int(np.flatnonzero(bad)[0])
            at = ", ".join(str(int(c[i])) for c in index)
            raise StateError(
                f"instance {self.number}: {name}[{at}] is outside the table's shape {data.shape}"
            )
        out = np.zeros(len(bad), dtype=np.int64)
        out[~bad] = data[tuple(c[~bad] for c in index)]
        return out

    def outside(self, name: str, index: tuple[np.ndarray, ...]) -> np.ndarray:
        """Which of the indices lie outside the table -> bool [len(index[0])]."""
        bad = np.zeros(len(index[0]), dtype=bool)
        for column, size in zip(index, self.tables[name].shape, strict=False):
            bad |= (column < 0) | (column >= size)
        return bad


@dataclass(frozen=True)
class TableType:
    """A declared table: extents of its dimensions and the range of its values (`low <= v < high`)."""

    shape: tuple[Expr, ...]
    high: Expr
    low: int = 0


@dataclass(frozen=True)
class Axiom:
    """For all states of `over` where `where` holds: `left == right`. Checked at pump time, used in proofs.

    A proof makes sure that `left` is read within the extents of `over`, but takes `where` for granted: lead
    states where it fails another way (a Cond that keeps the root from climbing), as executors notice only by
    what follows from it, a state that is out of its domain or occurs twice.
    """

    name: str
    over: tuple[FieldType, ...]
    left: Expr
    right: Expr
    where: Expr | None = None

    def rule(self, tables: Mapping[str, TableType]) -> Rule:
        """The axiom for proofs; `tables` are the declared ones, whose shapes bound what indexes them."""
        bounded: set[tuple[Expr, Expr]] = set()  # (index, extent of that dimension)
        for x in walk(self.left):
            if isinstance(x, Table) and x.name in tables:
                bounded.update(zip(x.index, tables[x.name].shape, strict=False))
        return Rule(
            self.left,
            self.right,
            tuple((f.name, None if (Field(f.name), f.extent) in bounded else f.extent) for f in self.over),
        )


def inverse_of(outer: str, inner: tuple[str, ...], over: FieldType, where: Expr | None = None) -> Axiom:
    """`outer[inner_0[x], inner_1[x], ...] == x`, as child[parent[n], side[n]] == n."""
    x = Field(over.name)
    left = Table(outer, tuple(Table(i, (x,)) for i in inner))
    return Axiom(f"{outer} inverse_of {', '.join(inner)}", (over,), left, x, where)


def csr_of(offsets: str, rows: str, over: FieldType, position: FieldType) -> Axiom:
    """`rows[offsets[v] + j] == v`: the edges are sorted by `rows`, `offsets` is their index."""
    v, j = Field(over.name), Field(position.name)
    left = Table(rows, (Table(offsets, (v,)) + j,))
    return Axiom(f"{offsets} csr_of {rows}", (over, position), left, v)


def permutation(table_name: str, inverse: str, over: FieldType) -> Axiom:
    """`inverse[table[x]] == x`."""
    return inverse_of(inverse, (table_name,), over)


@dataclass(frozen=True)
class Schema:
    """What every instance of a graph carries.

    attrs: name -> largest value allowed. tables: name -> TableType. data: name -> width of its rows.
    """

    attrs: Mapping[str, int] = field(default_factory=dict)
    tables: Mapping[str, TableType] = field(default_factory=dict)
    data: Mapping[str, int] = field(default_factory=dict)
    axioms: tuple[Axiom, ...] = ()

    def __post_init__(self) -> None:
        if "instance" in self.attrs:
            raise GraphError("the attribute 'instance' is the instance's number; give yours another name")

    def rules(self) -> list[Rule]:
        return [a.rule(self.tables) for a in self.axioms]
