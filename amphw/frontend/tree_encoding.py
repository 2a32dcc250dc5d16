"""Reading trees of instances: nested or in columns, numbered, checked, and written into tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from amphw.frontend.encoding import Encoded, Encoder, Locate, Parts, dotted, flat, integers, odd_key
from amphw.frontend.spec import Path, join
from amphw.frontend.within import among, store

if TYPE_CHECKING:
    from amphw.frontend.tree_spec import Tree

TABLES = {2: ("parent", "place", "child"), 0: ("parent", "place", "child", "first", "count")}  # by arity


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

    @property
    def nodes(self) -> int:
        return len(self.children) + 1

    @property
    def leaves(self) -> int:
        return self.nodes - len(self.counts)


class TreeEncoder(Encoder):
    """Numbers the nodes, and says of each which one is its parent."""

    def __init__(self, spec: Tree, path: Path, leaf: Parts, node: Parts, alone: bool) -> None:
        """alone: whether the instance has one, else a sequence has one for each of its items."""
        super().__init__(spec.place)
        self.spec, self.path, self.leaf, self.node, self.alone = spec, path, leaf, node, alone
        self.inner_keys = {"children", *node.parts}
        self.leaf_keys = {*leaf.parts, *node.parts}

    def encode(self, e: Encoded, values: Any, locate: Locate) -> None:
        columns = [_is_columns(tree) for tree in values]
        both = list(zip(values, columns, strict=True))
        absent = frozenset.intersection(*(self._absent(e, *each) for each in both)) if both else frozenset()
        read = [self._read(tree, in_columns, locate(i), absent) for i, (tree, in_columns) in enumerate(both)]
        leaves, nodes = [r.leaves for r in read], [r.nodes for r in read]
        store(e, self.path, "leaves", leaves, self.alone)
        store(e, self.path, "nodes", nodes, self.alone)
        self._write(e, read)
        for kind, sizes in ((self.leaf, leaves), (self.node, nodes)):
            for key, part in kind.parts.items():
                if key not in absent:
                    found = flat([r.parts[key] for r in read])
                    part.encode(e, found, among(sizes, [r.part(key) for r in read]))
        given = {*self.leaf.parts, *self.node.parts} - absent
        self.leaf.fill(e, given, sum(leaves), locate)
        self.node.fill(e, given, sum(nodes), locate)

    def _read(self, tree: Any, columns: bool, at: str, absent: frozenset[str]) -> _Read:
        """One tree, checked."""
        spec = self.spec
        found = self._columns(tree, at, absent) if columns else self._nested(tree, at, absent)
        self._check(found, found.leaves, at)
        if found.leaves > spec.most or found.nodes > spec.most_nodes:
            allowed = f"{spec.most} and {spec.most_nodes}"
            raise self.wrong(at, f"has {found.leaves} leaves and {found.nodes} nodes, allowed are {allowed}")
        for kind, size in ((self.leaf, found.leaves), (self.node, found.nodes)):
            for key in kind.parts.keys() - absent:
                if (given := self.size(found.parts[key], dotted(at, key))) != size:
                    raise self.wrong(dotted(at, key), f"has {given} values, the tree has {size}")
        return found

    def _write(self, e: Encoded, read: list[_Read]) -> None:
        """The tables: of all trees one after the other, with numbers that are each tree's own."""
        names = TABLES[self.spec.arity]
        found: dict[str, list[np.ndarray]] = {k: [np.zeros(0, np.int32)] for k in names}
        before = 0
        for r in read:
            parent, place = np.zeros(r.nodes, np.int32), np.zeros(r.nodes, np.int32)
            first = np.cumsum(r.counts) - r.counts
            parent[r.children] = np.repeat(np.arange(r.leaves, r.nodes), r.counts)
            place[r.children] = np.arange(len(r.children)) - np.repeat(first, r.counts)
            # Leaves too have an entry, as whoever reads the tables may ask for any node.
            none = np.zeros(r.leaves, np.int32)
            tables = {
                "parent": parent,
                "place": place,
                "child": r.children,
                "first": np.r_[none, first + before],
                "count": np.r_[none, r.counts],
            }
            before += len(r.children)
            for k in names:
                found[k].append(tables[k])
        for k, parts in found.items():
            table = np.concatenate(parts).astype(np.int32)
            pairs = k == "child" and self.spec.arity == 2
            e.tables[join((*self.path, k))] = table.reshape(-1, 2) if pairs else table

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
