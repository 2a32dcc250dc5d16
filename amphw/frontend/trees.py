"""Trees: how an instance holds one, and folding it from the leaves to the root."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from amphw.frontend.branches import Branch
from amphw.frontend.gather import pick
from amphw.frontend.index import Choice, Context, Dim, union, without
from amphw.frontend.integer import Integer
from amphw.frontend.place import FrontendError
from amphw.frontend.spec import Declared, Encoded, Level, Locate, Record, Spec, dotted, join, read
from amphw.frontend.tensor import Tensor, messages, spread, ungroup
from amphw.frontend.trace import current
from amphw.frontend.values import Rename, leaves, like, renamed, shape
from amphw.ir.behaviour import MEMBER, StateMap
from amphw.ir.expr import Attr, Expr, Field, Table, lift
from amphw.ir.grouping import Group
from amphw.ir.instance import Axiom, TableType
from amphw.ir.routing import Cond, Discard, Isu, Phi
from amphw.ir.state import state_field


class Tree(Spec):
    """A tree of at most `most` leaves, whose inner nodes have two children (arity 2) or any number (0).

    leaf, node: what a leaf has, and what every node has. An instance is nested: a node is a dict with its
    parts and, unless it is a leaf, "children"; a leaf of one part may be the part alone, a node without
    parts the list of its children. Or it is a dict of columns: "children" holds, for each inner node, the
    numbers of its children, and each part its values in the order of the numbers; leaves come first,
    children before parents.
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
        if arity not in (0, 2):
            raise FrontendError(f"a tree has an arity of 2, or of 0 for any number of children; got {arity}")
        if both := set(leaf or {}) & set(node or {}) | ({"children"} & {*(leaf or {}), *(node or {})}):
            raise FrontendError(f"the parts {sorted(both)} of a tree's leaves and nodes need other names")
        self.leaf, self.node, self.most, self.arity = Record(**leaf or {}), Record(**node or {}), most, arity

    @property
    def most_nodes(self) -> int:
        # An inner node of any number of children may have just one; so many of those are allowed again.
        return 2 * self.most - 1 if self.arity == 2 else 4 * self.most

    def declare(self, d: Declared, name: str, level: Level) -> TreeValue:
        if level.context:
            raise FrontendError(
                "a tree within a sequence is not supported; an instance may have several trees"
            )
        leaves, nodes = join(name, "leaves"), join(name, "nodes")
        d.attrs |= {leaves: self.most, nodes: self.most_nodes}
        w = current().dim("w", Attr(leaves), self.most, f"leaf of '{name}'")
        n = current().dim("n", Attr(nodes), self.most_nodes, f"node of '{name}'")
        shape = _Shape(name, w, n, self.arity)
        shape.declare(d)
        leaf = self.leaf.declare(d, name, Level((w,), w.at, w.extent, self.most))
        node = self.node.declare(d, name, Level((n,), n.at, n.extent, self.most_nodes))
        return TreeValue(shape, leaf, node)

    def encode(self, e: Encoded, name: str, values: Any, locate: Locate) -> None:
        (tree,) = values
        columns = _is_columns(tree)
        children, parts, paths = (_from_columns if columns else _from_nested)(self, tree, locate(0))
        inner = len(children)
        counts = np.array([len(c) for c in children], np.int32)
        flat = np.array([c for group in children for c in group], np.int64)
        total = len(flat) + 1
        count = total - inner
        _check(self, children, counts, flat, count, lambda i: paths(i + count) if paths else locate(0))
        if count > self.most or total > self.most_nodes:
            raise self.wrong(
                locate(0),
                f"has {count} leaves and {total} nodes, allowed are {self.most} and {self.most_nodes}",
            )
        e.attrs |= {join(name, "leaves"): count, join(name, "nodes"): total}
        parent, place = np.zeros(total, np.int32), np.zeros(total, np.int32)
        first = np.cumsum(counts) - counts
        parent[flat] = np.repeat(np.arange(count, total), counts)
        place[flat] = np.arange(len(flat)) - np.repeat(first, counts)
        tables = {"parent": parent, "place": place, "child": flat.astype(np.int32)}
        if self.arity == 2:
            tables["child"] = tables["child"].reshape(inner, 2)
        else:
            # Leaves too have an entry, as whoever reads the tables may ask for any node.
            none = np.zeros(count, np.int32)
            tables |= {"first": np.r_[none, first].astype(np.int32), "count": np.r_[none, counts]}
        e.tables |= {join(name, k): v for k, v in tables.items()}
        for record, size in ((self.leaf, count), (self.node, total)):
            for key, part in record.parts.items():
                column = parts[key]
                if len(column) != size:
                    raise self.wrong(dotted(locate(0), key), f"has {len(column)} values, the tree has {size}")
                at: Locate = lambda i, key=key: f"{paths(i) if paths else f'{locate(0)}[{i}]'}.{key}"  # type: ignore[misc]  # noqa: E731
                part.encode(e, join(name, key), column, at)


class _Shape:
    """The tables of a tree, and what they prove."""

    def __init__(self, name: str, w: Dim, n: Dim, arity: int) -> None:
        self.name, self.w, self.n, self.arity = name, w, n, arity

    def table(self, part: str, *index: Expr) -> Expr:
        return Table(join(self.name, part), index)

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

    def declare(self, d: Declared) -> None:
        n, w, name = self.n, self.w, self.name
        inner = n.extent - w.extent
        node = TableType((n.extent,), n.extent)
        tables = {"parent": node, "place": TableType((n.extent,), lift(2) if self.arity == 2 else n.extent)}
        if self.arity == 2:
            tables["child"] = TableType((inner, lift(2)), n.extent)
        else:
            tables["child"] = TableType((n.extent - 1,), n.extent)
            tables["first"] = tables["count"] = TableType((n.extent,), n.extent)
        d.tables |= {join(name, k): t for k, t in tables.items()}
        again = self.child(self.table("parent", n.at), self.table("place", n.at))
        d.axioms.append(
            Axiom(
                join(name, "child inverse of parent and place"), (n.field,), again, n.at, n.at.ne(self.root)
            )
        )


class TreeValue:
    """A tree as a model reads it: the parts of `leaf` and of `node`, as attributes; `is_leaf`, `root`."""

    def __init__(self, shape: _Shape, leaf: Any, node: Any) -> None:
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


def fold_tree(leaf: Any, branch: Branch, tree: TreeValue) -> Any:
    """From the leaves to the root -> a value for each node of the tree; `root(h, tree)` is that of the root.

    leaf: a value for each leaf, or a function of the leaf's parts. branch: `branch(left, right)` for a tree
    of arity 2, else `branch(children)`, whose value has a row for each child; it returns what `leaf` does.
    Where both are (or return) several values, the first is what goes up the tree; all are returned.
    """
    if not isinstance(tree, TreeValue):
        raise FrontendError(f"fold_tree goes over a tree of the instance, got {tree!r}")
    s, trace = tree._shape, current()
    w, n = s.w, s.n
    given = leaf(tree.leaf) if callable(leaf) else leaf
    below = leaves(given)
    for x in below:
        if x.rows is not w and w not in x.context:
            raise FrontendError("a leaf's value depends on the leaf; read a part of `tree.leaf` in it")
    with trace.region("tree", "loop"):
        below = [renamed(x, Rename(w, n, w.at, n.at)) for x in below]
        context = union(*(x.context for x in below), (n,))
        while True:
            with trace.trial():
                _, above, inner = _nodes(s, below, branch, context)
                # What goes up the tree depends on all that a branch depends on.
                wider = union(context, *(without(messages(x), inner) for x in leaves(above)))
            if wider == context:
                break
            context = wider
        values, above, inner = _nodes(s, below, branch, context)
        if shape(above) != shape(given):
            raise FrontendError(f"a leaf gives widths {shape(given)}, a branch returns {shape(above)}")
        for value, first, x in zip(values, below, leaves(above), strict=True):
            x = spread(ungroup(x) if x.rows else x, union(context, (inner,)))
            sources = {"leaf": spread(first, context).port, "branch": x.port}
            trace.emit(Phi(value.port[0], ("leaf", "branch")), sources)
    return like(given, values)


def _nodes(
    s: _Shape, below: list[Tensor], branch: Branch, context: Context
) -> tuple[list[Tensor], Any, Choice]:
    """The values of all nodes in a context; what `branch` gives for inner ones, and that they are such."""
    trace, n = current(), s.n
    values = [Tensor((trace.name("node"), "out"), x.width, context) for x in below]
    up = trace.emit(Cond(trace.name("root?"), n.at.eq(s.root)), {"in": values[0].port})
    trace.emit(Discard(trace.name("top")), {"in": (up, "yes")})
    # What a branch computes exists for inner nodes alone; so must what it reads from outside.
    (inner,) = trace.choice("inner?", n.at >= s.w.extent, 2, (n,))[1:]
    with trace.within(inner):
        risen = Tensor((up, "no"), values[0].width, union(context, (inner,)))
        above = branch(*(_two if s.arity == 2 else _any)(s, risen))
    return values, above, inner


def _two(s: _Shape, x: Tensor) -> list[Tensor]:
    """Both children of a node, under its number."""
    trace, n = current(), s.n
    side = state_field(trace.name("side"), 2)
    # The parent's number takes the place of the child's: `child` reads the new state.
    rise = StateMap(
        set={n.name: s.table("parent", n.at)},
        add=((side, s.table("place", n.at)),),
        inverse={n.name: s.child(n.at, Field(side.name))},
    )
    risen = trace.emit(Isu(trace.name("rise"), rise), {"in": x.port})
    sides = Cond(trace.name("side?"), Field(side.name), ("left", "right"), (side.name,))
    trace.emit(sides, {"in": (risen, "out")})
    return [Tensor((sides.name, port), x.width, x.context) for port in ("left", "right")]


def _any(s: _Shape, x: Tensor) -> list[Tensor]:
    """All children of a node as the rows of one message."""
    trace, n = current(), s.n
    j = trace.dim("j", s.count(n.at), s.n.bound, f"child of a node of '{s.name}'", needs=(n,))
    arrive = StateMap(set={n.name: s.table("parent", n.at)}, inverse={n.name: s.child(n.at, Field(MEMBER))})
    group = Group(trace.name("children"), arrive, s.table("place", n.at), s.count(n.at))
    trace.emit(group, {"in": x.port})
    return [Tensor((group.name, "out"), x.width, x.context, j)]


def root(h: Tensor, tree: TreeValue) -> Tensor:
    """The value of the root, of a value for each node."""
    return pick(h, Integer(tree._shape.root), tree._shape.n)


# --- instances ----------------------------------------------------------------------------------------


def _is_columns(tree: Any) -> bool:
    """Whether a dict has columns in it, not a root: its parts are sequences, its children numbers."""
    if not isinstance(tree, Mapping):
        return False
    children = tree.get("children", ())
    numbers = isinstance(children, np.ndarray) or all(
        isinstance(c, np.ndarray | list | tuple) and all(hasattr(k, "__index__") for k in c) for c in children
    )
    parts = [v for k, v in tree.items() if k != "children"]
    return numbers and any(isinstance(v, np.ndarray | list | tuple) for v in parts)


def _from_columns(spec: Tree, tree: Mapping[str, Any], path: str) -> tuple[Any, dict[str, Any], None]:
    known = {"children", *spec.leaf.parts, *spec.node.parts}
    if odd := sorted(set(tree) ^ known):
        what = "is missing" if odd[0] in known else "is not declared"
        raise spec.wrong(dotted(path, odd[0]), what)
    children = np.asarray(tree["children"]) if spec.arity == 2 else tree["children"]
    if spec.arity == 2 and children.size == 0:
        children = np.zeros((0, 2), np.int64)
    if spec.arity == 2 and (children.ndim != 2 or children.shape[1] != 2 or children.dtype.kind not in "iu"):
        raise spec.wrong(dotted(path, "children"), "is not a list of pairs of numbers")
    return children, {k: v for k, v in tree.items() if k != "children"}, None


def _from_nested(spec: Tree, tree: Any, path: str) -> tuple[list[list[int]], dict[str, list[Any]], Any]:
    """Number the leaves in order and the inner nodes behind their children, without recursion."""
    order: list[tuple[Any, str]] = []
    waiting = [(tree, path)]
    while waiting:
        node, at = waiting.pop()
        order.append((node, at))
        waiting.extend((c, f"{at}.{i}") for i, c in enumerate(_children(node) or ()))
    order.reverse()  # children before parents, but from right to left
    leaves = [x for x in order if _children(x[0]) is None]
    inner = [x for x in order if _children(x[0]) is not None]
    numbered = [*leaves, *inner]
    numbers = {id(node): i for i, (node, _) in enumerate(numbered) if _children(node) is not None}
    leaf_numbers = {at: i for i, (_, at) in enumerate(leaves)}
    children = [
        [
            numbers[id(c)] if _children(c) is not None else leaf_numbers[f"{at}.{i}"]
            for i, c in enumerate(_children(node) or ())
        ]
        for node, at in inner
    ]
    parts: dict[str, list[Any]] = {}
    for record, of in ((spec.leaf, leaves), (spec.node, numbered)):
        for key in record.parts:
            parts[key] = [_part(spec, node, key, at) for node, at in of]
    return children, parts, lambda i: numbered[i][1]


def _children(node: Any) -> Any:
    """A node's children; None for a leaf."""
    if isinstance(node, Mapping):
        return node.get("children")
    return node if isinstance(node, list | tuple) else None


def _part(spec: Tree, node: Any, key: str, path: str) -> Any:
    if isinstance(node, Mapping):
        known = {"children", *spec.node.parts} | ({*spec.leaf.parts} if "children" not in node else set())
        if odd := sorted(set(node) - known):
            raise spec.wrong(dotted(path, odd[0]), "is not declared for such a node")
        if key not in node:
            raise spec.wrong(f"{path}.{key}", "is missing")
        return node[key]
    if len(spec.leaf.parts) + len(spec.node.parts) == 1 and not isinstance(node, list | tuple):
        return node
    raise spec.wrong(path, f"is {node!r}; a node with parts is a dict, with '{key}' among its keys")


def _check(spec: Tree, children: Any, counts: Any, flat: Any, count: int, locate: Locate) -> None:
    """Every node but the root is the child of one parent, which comes behind it."""
    for i, c in enumerate(counts):
        if c == 0 or (spec.arity == 2 and c != 2):
            wanted = (
                "2" if spec.arity == 2 else "1 or more; a node without any is a leaf and has no 'children'"
            )
            raise spec.wrong(locate(i), f"has {c} children, expected {wanted}")
    total = len(flat) + 1
    parents = np.repeat(np.arange(count, total), counts)
    seen = np.bincount(flat[(flat >= 0) & (flat < total)], minlength=total)
    if count < 1 or (len(flat) and (flat.min() < 0 or flat.max() >= total)):
        raise spec.wrong(locate(0), f"has a child's number outside 0..{total - 1}")
    if (seen[:-1] != 1).any() or seen[-1]:
        bad = int(np.flatnonzero(seen != np.r_[np.ones(total - 1, int), 0])[0])
        raise spec.wrong(
            locate(0), f"has node {bad} as a child {seen[bad]} times; each but the last is one once"
        )
    if (flat >= parents).any():
        raise spec.wrong(locate(0), "has a parent in front of its child; leaves come first, the root last")
