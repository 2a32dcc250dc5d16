"""Trees and graphs of an instance, of which a sequence may have one for each of its items.

Those of a sequence lie one behind the other in the same tables, each numbered from 0 on. So a number is
looked up behind where the tree or the graph begins, which tables of the sequence say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from amphw.frontend.encoding import Encoded, Locate
from amphw.frontend.index import Context, Dim, dims_of
from amphw.frontend.source import SourceLine
from amphw.frontend.spec import Declared, Level, Path, join
from amphw.ir.expr import Attr, Const, Expr, Table, lift, substitute
from amphw.ir.instance import TableType
from amphw.ir.state import FieldType


@dataclass(frozen=True)
class Stored:
    """The leaves, nodes or edges of a tree or a graph, among those of all in the instance.

    count: how many this one has. total: how many all have, and most: at most. first: where its own begin.
    """

    count: Expr
    total: Expr
    most: int
    first: Expr = Const(0)

    def at(self, number: Expr) -> Expr:
        """Where in a table that has an entry for each the one of this number is."""
        return number if self.first == Const(0) else self.first + number

    def moved(self, to: Mapping[str, Expr]) -> Stored:
        return Stored(substitute(self.count, to), self.total, self.most, substitute(self.first, to))


def stored(
    d: Declared, path: Path, what: str, most: int, level: Level, place: SourceLine, least: int = 1
) -> Stored:
    """Declare how many there are, from `least` to `most` in each: by an attribute of the instance or, where
    each item of the sequences around it (`level`) has some, by tables."""
    if not level.context:
        count = Attr(d.attr((*path, what), most, place))
        return Stored(count, count, most)
    every = level.most * most
    counts = d.table((*path, what), TableType((level.count,), lift(most + 1), least), place)
    begins = d.table((*path, f"first_{what}"), TableType((level.count,), lift(every + 1)), place)
    total = Attr(d.attr((*path, f"all_{what}"), every, place))
    return Stored(Table(counts, (level.address,)), total, every, Table(begins, (level.address,)))


def store(e: Encoded, path: Path, what: str, counts: Sequence[int], alone: bool) -> None:
    """Write how many each tree or graph has. alone: whether there is one, of the instance itself."""
    if alone:
        e.attrs[join((*path, what))] = counts[0]
        return
    ends = np.cumsum(counts, dtype=np.int32)
    e.tables[join((*path, what))] = np.array(counts, np.int32)
    e.tables[join((*path, f"first_{what}"))] = ends - np.array(counts, np.int32)
    e.attrs[join((*path, f"all_{what}"))] = int(ends[-1]) if len(ends) else 0


def level_of(outer: Level, dim: Dim, items: Stored) -> Level:
    """The level of the parts that each leaf, node or edge has, whose number is `dim`."""
    return Level((*outer.context, dim), items.at(dim.at), items.total, items.most)


def axiom_fields(context: Context, *dims: Dim) -> tuple[FieldType, ...]:
    """The fields that an axiom of some dimensions is over: those of the sequences around them come first."""
    return tuple(d.field for d in (*dims_of(context), *dims))


def among(sizes: Sequence[int], locate: Sequence[Locate]) -> Locate:
    """From a number among the parts of all trees or graphs, which have so many each, to its path."""
    if len(locate) == 1:
        return locate[0]
    ends = np.cumsum(sizes)

    def path(i: int) -> str:
        k = int(np.searchsorted(ends, i, side="right"))
        return locate[k](i - int(ends[k]) + sizes[k])

    return path
