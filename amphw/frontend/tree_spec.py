"""Trees as instances have them: what is declared, how it is stored, and what a model reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from amphw.frontend.encoding import Encoded, Encoder, Locate, Parts, dotted, integers, odd_key
from amphw.frontend.index import Dim
from amphw.frontend.source import FrontendError, SourceLine
from amphw.frontend.spec import Declared, Level, Path, RecordValue, Spec, join, read, record_of, whole_number
from amphw.frontend.trace import current
from amphw.ir.expr import Attr, Expr, Table, lift
from amphw.ir.instance import Axiom, TableType

TABLES = {2: ("parent", "place", "child"), 0: ("parent", "place", "child", "first", "count")}  # by arity


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
    def most_nodes(self) -> int:
        # An inner node of any number of children may have just one; so many of those are allowed again.
        return 2 * self.most - 1 if self.arity == 2 else 4 * self.most

    def declare(self, d: Declared, path: Path, level: Level) -> tuple[TreeValue, Encoder]:
        if level.context:
            raise FrontendError(
                "a tree within a sequence is not supported; an instance may have several trees", self.place
            )
        leaves = d.attr((*path, "leaves"), self.most, self.place)
        nodes = d.attr((*path, "nodes"), self.most_nodes, self.place)
        name = join(path)
        w = current().dim("w", Attr(leaves), self.most, f"leaf of '{name}'", place=self.place)
        n = current().dim("n", Attr(nodes), self.most_nodes, f"node of '{name}'", place=self.place)
        shape = Shape(path, w, n, self.arity)
        shape.declare(d, self.place)
        leaf, leaf_parts = self.leaf.declare(d, path, Level((w,), w.at, w.extent, self.most))
        node, node_parts = self.node.declare(d, path, Level((n,), n.at, n.extent, self.most_nodes))
        return TreeValue(shape, leaf, node), TreeEncoder(self, path, leaf_parts, node_parts)


class Shape:
    """The tables of a tree, and what they prove."""

    def __init__(self, path: Path, w: Dim, n: Dim, arity: int) -> None:
        self.path, self.w, self.n, self.arity = path, w, n, arity

    @property
    def name(self) -> str:
        return join(self.path)

    def table(self, part: str, *index: Expr) -> Expr:
        return Table(join((*self.path, part)), index)

    @property
    def root(self) -> Expr:
        return self.n.extent - 1

    def child(self, parent: Expr, place: Expr) -> Expr:
        """The number of a child."""
        if self.arity == 2:
            return self.table("child", parent - self.w.extent, place)
        return self.table("child", self.table("first", parent) + place)

    def count(self, parent: Expr) -> Expr:
        return lift(2) if self.arity == 2 else self.table("count", parent)

    def declare(self, d: Declared, place: SourceLine) -> None:
        n, w = self.n, self.w
        inner = n.extent - w.extent
        node = TableType((n.extent,), n.extent)
        tables = {"parent": node, "place": TableType((n.extent,), lift(2) if self.arity == 2 else n.extent)}
        if self.arity == 2:
            tables["child"] = TableType((inner, lift(2)), n.extent)
        else:
            tables["child"] = TableType((n.extent - 1,), n.extent)
            tables["first"] = tables["count"] = TableType((n.extent,), n.extent)
        for part, table in tables.items():
            d.table((*self.path, part), table, place)
        again = self.child(self.table("parent", n.at), self.table("place", n.at))
        name = join((*self.path, "child inverse of parent and place"))
        d.axioms.append(Axiom(name, (n.field,), again, n.at, n.at.ne(self.root)))


class TreeValue:
    """A tree as a model reads it: the parts of `leaf` and of `node`, as attributes; `leaves` and
    `nodes`, the dimensions of both."""

    def __init__(self, shape: Shape, leaf: RecordValue, node: RecordValue) -> None:
        self._shape, self.leaf, self.node = shape, leaf, node

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
                return read(record._parts[name])
        known = [*self.leaf._parts, *self.node._parts]
        raise FrontendError(f"the tree has no '{name}' (it has {', '.join(known)})")


@dataclass(frozen=True)
class _Read:
    """A tree of an instance, whose leaves are numbered first, and children before their parents.

    counts: how many children each inner node has. children: their numbers, one inner node after the other.
    parts: the values of each part. node: from an inner node's number to the path of it, or of its children.
    part: from a part's name to where its values are.
    """

    counts: np.ndarray
    children: np.ndarray
    parts: Mapping[str, Any]
    node: Locate
    part: Callable[[str], Locate]


class TreeEncoder(Encoder):
    """Numbers the nodes, and says of each which one is its parent."""

    def __init__(self, spec: Tree, path: Path, leaf: Parts, node: Parts) -> None:
        super().__init__(spec.place)
        self.spec, self.leaf, self.node = spec, leaf, node
        self.names = {k: join((*path, k)) for k in ("leaves", "nodes", *TABLES[spec.arity])}
        self.inner_keys = {"children", *node.parts}
        self.leaf_keys = {*leaf.parts, *node.parts}

    def encode(self, e: Encoded, values: Any, locate: Locate) -> None:
        (tree,) = values
        at, spec = locate(0), self.spec
        columns = _is_columns(tree)
        absent = self._absent(e, tree, columns)
        found = self._columns(tree, at, absent) if columns else self._nested(tree, at, absent)
        counts, children = found.counts, found.children
        inner, total = len(counts), len(children) + 1
        count = total - inner
        self._check(found, count, at)
        if count > spec.most or total > spec.most_nodes:
            allowed = f"{spec.most} and {spec.most_nodes}"
            raise self.wrong(at, f"has {count} leaves and {total} nodes, allowed are {allowed}")
        e.attrs |= {self.names["leaves"]: count, self.names["nodes"]: total}
        parent, place = np.zeros(total, np.int32), np.zeros(total, np.int32)
        first = np.cumsum(counts) - counts
        parent[children] = np.repeat(np.arange(count, total), counts)
        place[children] = np.arange(len(children)) - np.repeat(first, counts)
        tables = {"parent": parent, "place": place, "child": children.astype(np.int32)}
        if spec.arity == 2:
            tables["child"] = tables["child"].reshape(inner, 2)
        else:
            # Leaves too have an entry, as whoever reads the tables may ask for any node.
            none = np.zeros(count, np.int32)
            tables["first"] = np.r_[none, first].astype(np.int32)
            tables["count"] = np.r_[none, counts].astype(np.int32)
        e.tables |= {self.names[k]: v for k, v in tables.items()}
        for kind, size in ((self.leaf, count), (self.node, total)):
            for key, part in kind.parts.items():
                if key in absent:
                    continue
                if (given := self.size(found.parts[key], dotted(at, key))) != size:
                    raise self.wrong(dotted(at, key), f"has {given} values, the tree has {size}")
                part.encode(e, found.parts[key], found.part(key))
        for kind, size in ((self.leaf, count), (self.node, total)):
            kind.fill(e, found.parts, size, lambda _: at)

    def _absent(self, e: Encoded, tree: Any, columns: bool) -> frozenset[str]:
        """The parts that no node has, and that may be missing."""
        parts = {**self.leaf.parts, **self.node.parts} if e.answers else {}
        spare = {k for k, part in parts.items() if part.anything(e) is not None}
        if not spare:
            return frozenset()
        return frozenset(spare - (set(tree) if columns else self._present(tree)))

    def _present(self, tree: Any) -> set[str]:
        """The names under which any node of a nested tree has anything."""
        found, seen, waiting = set[str](), set[int](), [tree]
        while waiting:
            if id(node := waiting.pop()) in seen:
                continue
            seen.add(id(node))
            children = _children(node)
            waiting.extend(children if isinstance(children, list | tuple) else ())
            if isinstance(node, Mapping):
                found |= node.keys()
            elif children is None and len(self.leaf_keys) == 1:
                found |= self.leaf_keys  # the part alone
        return found

    def _check(self, found: _Read, count: int, at: str) -> None:
        """Every node but the root is the child of one parent, which comes behind it."""
        counts, children = found.counts, found.children
        total = len(children) + 1
        pairs = self.spec.arity == 2
        for i in np.flatnonzero(counts != 2 if pairs else counts == 0):
            wanted = "2" if pairs else "1 or more; a node without any is a leaf and has no 'children'"
            raise self.wrong(found.node(int(i) + count), f"has {counts[i]} children, expected {wanted}")
        if count < 1 or (len(children) and (children.min() < 0 or children.max() >= total)):
            raise self.wrong(at, f"has a child's number outside 0..{total - 1}")
        seen = np.bincount(children, minlength=total)
        if (seen[:-1] != 1).any() or seen[-1]:
            bad = int(np.flatnonzero(seen != np.r_[np.ones(total - 1, int), 0])[0])
            raise self.wrong(
                at, f"has node {bad} as a child {seen[bad]} times; each but the last is one once"
            )
        if (children >= np.repeat(np.arange(count, total), counts)).any():
            raise self.wrong(at, "has a parent in front of its child; leaves come first, the root last")

    # --- columns --------------------------------------------------------------------------------------

    def _columns(self, tree: Mapping[str, Any], at: str, absent: frozenset[str]) -> _Read:
        known = {"children", *self.leaf_keys} - absent
        if tree.keys() != known:
            raise self.wrong(*odd_key(tree, known, known, at))
        path = dotted(at, "children")
        groups = tree["children"]
        size = self.size(groups, path)
        if self.spec.arity == 2:
            children = integers(groups) if size else np.zeros((0, 2), np.int64)
            if children is None or children.ndim != 2 or children.shape[1] != 2:
                raise self.wrong(path, "is not a list of pairs of numbers")
            children, counts = children.reshape(-1), np.full(size, 2)
        else:
            counts = np.array([self.size(c, f"{path}[{i}]") for i, c in enumerate(groups)], np.int64)
            children = integers(list(chain.from_iterable(groups)))
            if children is None or children.ndim != 1:
                raise self.wrong(path, "is not a list of lists of numbers")
        parts = {k: v for k, v in tree.items() if k != "children"}
        leaves = len(children) + 1 - size
        return _Read(
            counts,
            children.astype(np.int64),
            parts,
            lambda i: f"{path}[{i - leaves}]",
            lambda key: lambda i: f"{dotted(at, key)}[{i}]",
        )

    # --- nested ---------------------------------------------------------------------------------------

    def _nested(self, tree: Any, at: str, absent: frozenset[str]) -> _Read:
        """Number the leaves in order and the inner nodes behind their children, without recursion.

        A node is known by where it is and not by what it is: subtrees may be one object.
        """
        nodes: list[Any] = []
        # Of each of them, by position: its parent and its place there; its children, from right to left.
        above: list[tuple[int, int]] = []
        below: list[list[int] | None] = []

        def path(position: int) -> str:
            steps = []
            while position:
                position, place = above[position]
                steps.append(f".children[{place}]" if isinstance(nodes[position], Mapping) else f"[{place}]")
            return (at + "".join(reversed(steps))).removeprefix(".")

        def part_path(position: int, key: str) -> str:
            return dotted(path(position), key) if isinstance(nodes[position], Mapping) else path(position)

        waiting = [(tree, (0, 0))]
        while waiting:
            node, origin = waiting.pop()
            position = len(nodes)
            if position == self.spec.most_nodes:
                allowed = f"{self.spec.most} leaves and {self.spec.most_nodes} nodes"
                raise self.wrong(at, f"has more nodes than are allowed, which are {allowed}")
            if position:
                siblings = below[origin[0]]
                assert siblings is not None
                siblings.append(position)
            nodes.append(node)
            above.append(origin)
            children = _children(node)
            below.append(None if children is None else [])
            self._check_keys(node, children is None, absent, path, position)
            if children is not None:
                if isinstance(node, Mapping):
                    self.size(children, dotted(path(position), "children"), "a sequence of nodes")
                waiting.extend((c, (position, i)) for i, c in enumerate(children))
        order = range(len(nodes) - 1, -1, -1)  # children before parents, from left to right
        leaves = [p for p in order if below[p] is None]
        numbered = [*leaves, *(p for p in order if below[p] is not None)]
        number = dict(zip(numbered, range(len(nodes)), strict=True))
        groups = [below[p] or [] for p in numbered[len(leaves) :]]
        parts = {k: [_part(nodes[p], k) for p in leaves] for k in self.leaf.parts if k not in absent}
        parts |= {k: [_part(nodes[p], k) for p in numbered] for k in self.node.parts if k not in absent}
        return _Read(
            np.array([len(g) for g in groups], np.int64),
            np.array([number[c] for g in groups for c in reversed(g)], np.int64),
            parts,
            lambda i: path(numbered[i]),
            lambda key: lambda i: part_path(numbered[i], key),
        )

    def _check_keys(
        self, node: Any, leaf: bool, absent: frozenset[str], path: Callable[[int], str], position: int
    ) -> None:
        known = (self.leaf_keys if leaf else self.inner_keys) - absent
        if isinstance(node, Mapping):
            if node.keys() - {"children"} != known - {"children"}:
                where, what = odd_key(node, known, known | (node.keys() & {"children"}), path(position))
                kind = "a leaf" if leaf else "an inner node"
                raise self.wrong(where, what if what == "is missing" else f"{what} for {kind}")
        elif len(parts := known - {"children"}) > (1 if leaf else 0):
            key = sorted(parts)[0]
            raise self.wrong(
                path(position), f"is {node!r}; a node with parts is a dict, with '{key}' among its keys"
            )


def _is_columns(tree: Any) -> bool:
    """Whether a dict has columns in it, not a root: its children are numbers, its parts sequences."""
    if not isinstance(tree, Mapping) or "children" not in tree:
        return False
    children = tree["children"]
    plain = (np.ndarray, list, tuple)
    numbers = isinstance(children, np.ndarray) or (
        isinstance(children, plain)
        and all(isinstance(c, plain) and all(hasattr(k, "__index__") for k in c) for c in children)
    )
    return numbers and any(isinstance(v, plain) for k, v in tree.items() if k != "children")


def _children(node: Any) -> Any:
    """A node's children; None for a leaf."""
    if isinstance(node, Mapping):
        return node.get("children")
    return node if isinstance(node, list | tuple) else None


def _part(node: Any, key: str) -> Any:
    return node[key] if isinstance(node, Mapping) else node
