"""Trees as instances have them: what is declared, how it is stored, and what a model reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from amphw.frontend.encoding import Encoder
from amphw.frontend.index import Dim, dims_of
from amphw.frontend.integer import Integer
from amphw.frontend.source import FrontendError, SourceLine
from amphw.frontend.spec import Declared, Level, Path, RecordValue, Spec, join, record_of, whole_number
from amphw.frontend.trace import current
from amphw.frontend.tree_encoding import TABLES, TreeEncoder
from amphw.frontend.within import Stored, axiom_fields, level_of, stored
from amphw.ir.expr import Const, Expr, Table, lift
from amphw.ir.instance import Axiom, TableType


class Tree(Spec):
    """A tree of at most `most` leaves, whose inner nodes have two children (arity 2) or any number (0).

    leaf, node: what a leaf has, and what every node has. An instance is nested: a node is a dict with its
    parts and, unless it is a leaf, "children"; a leaf of one part may be the part alone, a node without parts
    the list of its children. So a list is an inner node; a leaf whose part is a list is a dict, or the part
    an array. Or an instance is a dict of columns: "children" holds, for each inner node, the numbers of its
    children, each part its values in the order of the numbers; leaves come first, children before parents.
    """

    def __init__(
        self,
        leaf: Mapping[str, Spec] | None = None,
        node: Mapping[str, Spec] | None = None,
        *,
        most: int,
        arity: int = 2,
    ) -> None:
        super().__init__()
        if arity not in TABLES:
            raise FrontendError(
                f"a tree has an arity of 2, or of 0 for any number of children; got {arity!r}"
            )
        self.leaf, self.node = record_of(leaf, "a tree's leaves"), record_of(node, "a tree's nodes")
        own = {*TABLES[arity], "children", "leaf", "leaves", "node", "nodes"}
        leaves, nodes = self.leaf.parts.keys(), self.node.parts.keys()
        if odd := sorted((leaves & nodes) | (own & (leaves | nodes))):
            raise FrontendError(f"the parts {odd} of a tree's leaves and nodes need other names")
        self.most, self.arity = whole_number("`most`, the number of leaves,", most, 1), arity

    @property
    def names(self) -> set[str]:
        return self.leaf.names | self.node.names

    @property
    def most_nodes(self) -> int:
        # An inner node of any number of children may have just one; so many of those are allowed again.
        return 2 * self.most - 1 if self.arity == 2 else 4 * self.most

    def declare(self, d: Declared, path: Path, level: Level) -> tuple[TreeValue, Encoder]:
        path = level.path_of(path)
        leaves = stored(d, path, "leaves", self.most, level, self.place)
        nodes = stored(d, path, "nodes", self.most_nodes, level, self.place)
        name, trace, needs = join(path), current(), dims_of(level.context)
        w = trace.dim("w", leaves.count, self.most, f"leaf of '{name}'", needs=needs, place=self.place)
        n = trace.dim("n", nodes.count, self.most_nodes, f"node of '{name}'", needs=needs, place=self.place)
        shape = Shape(path, w, n, leaves, nodes, self.arity)
        shape.declare(d, level, self.most_nodes, self.place)
        leaf, leaf_parts = self.leaf.declare(d, path, level_of(level, w, leaves))
        node, node_parts = self.node.declare(d, path, level_of(level, n, nodes))
        return TreeValue(shape, leaf, node), TreeEncoder(
            self, path, leaf_parts, node_parts, not level.context
        )


@dataclass(frozen=True)
class Shape:
    """The tables of a tree, and what they prove. leaves, nodes: where its own are in them."""

    path: Path
    w: Dim
    n: Dim
    leaves: Stored
    nodes: Stored
    arity: int

    @property
    def name(self) -> str:
        return join(self.path)

    def _table(self, part: str, *index: Expr) -> Expr:
        return Table(join((*self.path, part)), index)

    @property
    def inner(self) -> Stored:
        """Where its inner nodes are among those of all trees."""
        leaves, nodes = self.leaves, self.nodes
        first = nodes.first if nodes.first == Const(0) else nodes.first - leaves.first
        return Stored(nodes.count - leaves.count, nodes.total - leaves.total, nodes.most, first)

    @property
    def root(self) -> Integer:
        return Integer(self.n.extent - 1, self.n.needs)

    def parent(self, node: Expr) -> Expr:
        return self._table("parent", self.nodes.at(node))

    def place(self, node: Expr) -> Expr:
        """Which of its parent's children a node is."""
        return self._table("place", self.nodes.at(node))

    def child(self, parent: Expr, place: Expr) -> Expr:
        """The number of a child."""
        if self.arity == 2:
            return self._table("child", self.inner.at(parent - self.w.extent), place)
        return self._table("child", self._table("first", self.nodes.at(parent)) + place)

    def count(self, parent: Expr) -> Expr:
        return lift(2) if self.arity == 2 else self._table("count", self.nodes.at(parent))

    def declare(self, d: Declared, level: Level, most: int, place: SourceLine) -> None:
        """most: so many nodes has the largest."""
        n, all_nodes = self.n, self.nodes.total
        high = lift(most) if level.context else n.extent
        types = {
            "parent": TableType((all_nodes,), high),
            "place": TableType((all_nodes,), lift(2) if self.arity == 2 else high),
        }
        if self.arity == 2:
            types["child"] = TableType((self.inner.total, lift(2)), high)
        else:
            types["child"] = TableType((all_nodes - level.count,), high)
            types["first"] = TableType((all_nodes,), all_nodes)
            types["count"] = TableType((all_nodes,), high)
        for part, table in types.items():
            d.table((*self.path, part), table, place)
        again = self.child(self.parent(n.at), self.place(n.at))
        name = join((*self.path, "child inverse of parent and place"))
        d.axioms.append(Axiom(name, axiom_fields(level.context, n), again, n.at, n.at.ne(self.root.expr)))

    def moved(self, w: Dim, n: Dim, to: Mapping[str, Expr]) -> Shape:
        return replace(self, w=w, n=n, leaves=self.leaves.moved(to), nodes=self.nodes.moved(to))


class TreeValue:
    """A tree as a model reads it: the parts of `leaf` and of `node`, as attributes; `leaves` and
    `nodes`, the dimensions of both."""

    def __init__(self, shape: Shape, leaf: RecordValue, node: RecordValue) -> None:
        self._shape, self.leaf, self.node = shape, leaf, node

    @property
    def dims(self) -> tuple[Dim, Dim]:
        return self._shape.w, self._shape.n

    def moved(self, dims: tuple[Dim, Dim], to: Mapping[str, Expr], bring: Callable[[Any], Any]) -> TreeValue:
        """As the body of a loop reads it, with other dimensions. to: new for old ones, by name. bring: of the
        records."""
        return TreeValue(self._shape.moved(*dims, to), bring(self.leaf), bring(self.node))

    def __repr__(self) -> str:
        return f"the tree '{self._shape.name}'"

    @property
    def leaves(self) -> Dim:
        return self._shape.w

    @property
    def nodes(self) -> Dim:
        return self._shape.n

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        for record in (self.leaf, self.node):
            if name in record._parts:
                return getattr(record, name)
        known = [*self.leaf._parts, *self.node._parts]
        raise FrontendError(f"the tree has no '{name}' (it has {', '.join(known)})")
