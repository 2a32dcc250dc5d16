"""Reading graphs of instances: checked, their edges sorted, and written into tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from amphw.frontend.encoding import (
    SHOWN,
    Encoded,
    Encoder,
    Integers,
    Locate,
    Parts,
    dotted,
    flat,
    integers,
    odd_key,
)
from amphw.frontend.spec import Path, join
from amphw.frontend.within import among, store

if TYPE_CHECKING:
    from amphw.frontend.graph_spec import Graph

TABLES = {
    "source": "edges",
    "target": "edges",
    "degree": "types, nodes",
    "first": "types, nodes",
    "in_degree": "nodes",
    "in_first": "nodes",
    "in_edge": "edges",
    "place": "edges",
    "of_type": "types",
    "type_first": "types",
}
"""Of what each table has an entry."""


@dataclass(frozen=True)
class _Read:
    """A graph of an instance. order: of its edges, by type and source. tables: with its own numbers."""

    graph: Mapping[str, Any]
    at: str
    nodes: int
    order: np.ndarray
    tables: Mapping[str, np.ndarray]

    def of_edges(self, key: str) -> Any:
        """The values of a part, in the order of the edges."""
        column = self.graph[key]
        if isinstance(column, np.ndarray):
            return column[self.order]
        given = list(column)
        return [given[i] for i in self.order]

    def path(self, key: str) -> Locate:
        return lambda i: dotted(self.at, f"{key}[{i}]")

    def path_of_edges(self, key: str) -> Locate:
        """Errors speak of the numbers that the author gave, not of our order."""
        return lambda i: dotted(self.at, f"{key}[{self.order[i]}]")


class GraphEncoder(Encoder):
    """Sorts the edges by type and source; what belongs to them with them."""

    def __init__(self, spec: Graph, path: Path, node: Parts, edge: Parts, whole: Parts, alone: bool) -> None:
        """alone: whether the instance has one, else a sequence has one for each of its items."""
        super().__init__(spec.place)
        self.spec, self.path, self.alone = spec, path, alone
        self.node, self.edge, self.whole = node, edge, whole
        self.kind = Integers(spec.place, "type", spec.types)
        self.parts = {*node.parts, *edge.parts, *whole.parts}

    def encode(self, e: Encoded, values: Any, locate: Locate) -> None:
        absent: set[str] = set()
        if e.answers is not None and len(values):
            absent = self.parts - {k for graph in values if isinstance(graph, Mapping) for k in graph}
        read = [self._read(graph, absent, locate(i)) for i, graph in enumerate(values)]
        nodes, edges = [r.nodes for r in read], [len(r.order) for r in read]
        store(e, self.path, "nodes", nodes, self.alone)
        store(e, self.path, "edges", edges, self.alone)
        if any((np.diff(r.order) < 0).any() for r in read):
            e.given[join((*self.path, "edges"))] = np.concatenate([r.order for r in read])
        for k, axis in TABLES.items():
            e.tables[join((*self.path, k))] = self._table(axis, [r.tables[k] for r in read])
        for key, part in self.whole.parts.items():
            if key not in absent:
                part.encode(e, [r.graph[key] for r in read], lambda i, key=key: dotted(locate(i), key))  # type: ignore[misc]
        for key, part in self.node.parts.items():
            if key not in absent:
                part.encode(e, flat([r.graph[key] for r in read]), among(nodes, [r.path(key) for r in read]))
        for key, part in self.edge.parts.items():
            if key not in absent:
                where = among(edges, [r.path_of_edges(key) for r in read])
                part.encode(e, flat([r.of_edges(key) for r in read]), where)
        for record, size in ((self.whole, len(read)), (self.node, sum(nodes)), (self.edge, sum(edges))):
            record.fill(e, self.parts - absent, size, locate)

    def _table(self, axis: str, found: list[np.ndarray]) -> np.ndarray:
        """That of all graphs: their entries one after the other, those of types above one another."""
        types = self.spec.types
        if axis == "types":
            table = found[0] if self.alone else np.array(found).reshape(-1, types)
        else:
            none = np.zeros((types, 0) if axis == "types, nodes" else 0)
            table = np.concatenate([none, *found], axis=-1)
        return table.astype(np.int32)

    def _read(self, graph: Any, absent: set[str], at: str) -> _Read:
        """One graph, checked."""
        spec = self.spec
        if not isinstance(graph, Mapping):
            raise self.wrong(
                at, f"is {SHOWN.repr(graph)}, expected a dict with 'edges' and the parts of nodes and edges"
            )
        known = {"edges", *self.parts} - absent | ({"nodes"} & graph.keys())
        known |= {"type"} if spec.types > 1 else set()
        if graph.keys() != known:
            raise self.wrong(*odd_key(graph, known, known, at))
        count = self._nodes(graph, at)
        ends = self._ends(graph["edges"], count, dotted(at, "edges"))
        for what, size, most in (
            ("nodes", count, spec.most_nodes),
            ("edges", len(ends), spec.most_edges),
        ):
            if size > most:
                raise self.wrong(at, f"has {size} {what}, allowed are {most}")
        kind = self._kinds(graph, len(ends), dotted(at, "type"))
        for key in self.edge.parts.keys() - absent:
            if (size := self.size(graph[key], dotted(at, key))) != len(ends):
                raise self.wrong(dotted(at, key), f"has {size} values, expected {len(ends)}")
        order = np.argsort(kind * count + ends[:, 0], kind="stable")
        return _Read(graph, at, count, order, _tables(count, spec.types, ends[order], kind[order]))

    def _nodes(self, graph: Mapping[str, Any], at: str) -> int:
        sizes = {k: self.size(graph[k], dotted(at, k)) for k in self.node.parts if k in graph}
        if "nodes" in graph:
            sizes["nodes"] = self.count(graph["nodes"], dotted(at, "nodes"))
        if not sizes:
            raise self.wrong(dotted(at, "nodes"), "is missing: the number of nodes")
        if len(set(sizes.values())) > 1:
            raise self.wrong(at, f"has parts of nodes with different lengths: {sizes}")
        count = next(iter(sizes.values()))
        if count < 1:
            raise self.wrong(at, "has no nodes, expected 1 or more")
        return count

    def _ends(self, edges: Any, nodes: int, path: str) -> np.ndarray:
        """[edges, 2]."""
        pairs = "pairs (source, target) of node numbers"
        if not self.size(edges, path, pairs):
            return np.zeros((0, 2), np.int64)
        ends = integers(edges)
        if ends is None or ends.ndim != 2 or ends.shape[1] != 2:
            raise self.wrong(path, f"is no list of {pairs}")
        if ends.min() < 0 or ends.max() >= nodes:
            i = np.flatnonzero(((ends < 0) | (ends >= nodes)).any(axis=1))[0]
            raise self.wrong(f"{path}[{i}]", f"is {tuple(ends[i].tolist())}, but there are {nodes} nodes")
        return ends.astype(np.int64)

    def _kinds(self, graph: Mapping[str, Any], edges: int, path: str) -> np.ndarray:
        """[edges]: the type of each."""
        if self.spec.types == 1:
            return np.zeros(edges, np.int64)
        if (size := self.size(graph["type"], path)) != edges:
            raise self.wrong(path, f"has {size} values, there are {edges} edges")
        return self.kind.column(graph["type"], lambda i: f"{path}[{i}]").astype(np.int64)


def _tables(count: int, types: int, ends: np.ndarray, kind: np.ndarray) -> dict[str, np.ndarray]:
    """first, degree [types, nodes]: a node's edges of a type; in_edge [edges]: the edges by target."""
    src, dst = ends.T
    degree = np.bincount(kind * count + src, minlength=types * count)
    in_degree = np.bincount(dst, minlength=count)
    in_first = np.cumsum(in_degree) - in_degree
    in_edge = np.argsort(dst, kind="stable")
    position = np.empty(len(dst), np.int64)
    position[in_edge] = np.arange(len(dst))
    of_type = np.bincount(kind, minlength=types)
    return {
        "source": src,
        "target": dst,
        "degree": degree.reshape(types, count),
        "first": (np.cumsum(degree) - degree).reshape(types, count),
        "in_degree": in_degree,
        "in_first": in_first,
        "in_edge": in_edge,
        "place": position - in_first[dst],
        "of_type": of_type,
        "type_first": np.cumsum(of_type) - of_type,
    }
