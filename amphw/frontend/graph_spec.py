"""Graphs as instances have them: what is declared, how it is stored, and what a model reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from amphw.frontend.encoding import (
    SHOWN,
    Encoded,
    Encoder,
    Integers,
    Locate,
    Parts,
    dotted,
    integers,
    odd_key,
)
from amphw.frontend.index import Dim
from amphw.frontend.integer import Integer
from amphw.frontend.source import FrontendError, SourceLine
from amphw.frontend.spec import Declared, Level, Path, RecordValue, Spec, join, record_of, whole_number
from amphw.frontend.trace import current
from amphw.ir.expr import Attr, Expr, Field, Table, lift
from amphw.ir.instance import Axiom, TableType
from amphw.ir.state import state_field

TABLES = ("source", "target", "degree", "first", "in_degree", "in_first", "in_edge", "place")
TABLES_OF_TYPES = ("of_type", "type_first")
_OWN = {*TABLES, *TABLES_OF_TYPES, "edges", "nodes", "type", "position"}


class Graph(Spec):
    """A directed graph; edges may be parallel, lead back to their node, or be of several types.

    node, edge, whole: what every node, every edge and the graph has. types: how many types of edges there
    are; if more than one, each edge has a "type". An instance is a dict with "edges", pairs of (source,
    target), the parts of nodes and edges as columns, those of the whole, and "nodes", the number of nodes,
    where nodes have no parts.
    """

    def __init__(
        self,
        node: Mapping[str, Spec] | None = None,
        edge: Mapping[str, Spec] | None = None,
        whole: Mapping[str, Spec] | None = None,
        *,
        most_nodes: int,
        most_edges: int,
        types: int = 1,
    ) -> None:
        super().__init__()
        self.node, self.edge = record_of(node, "a graph's nodes"), record_of(edge, "a graph's edges")
        self.whole = record_of(whole, "a graph")
        taken = [*self.node.parts, *self.edge.parts, *self.whole.parts]
        if odd := sorted({k for k in taken if k in _OWN or taken.count(k) > 1}):
            raise FrontendError(f"the parts {odd} of a graph's nodes and edges need other names")
        self.most_nodes = whole_number("`most_nodes`", most_nodes, 1)
        self.most_edges = whole_number("`most_edges`", most_edges, 1)
        self.types = whole_number("`types`, the number of types of edges,", types, 1)

    def declare(self, d: Declared, path: Path, level: Level) -> tuple[GraphValue, Encoder]:
        if level.context:
            raise FrontendError(
                "a graph within a sequence is not supported; an instance may have several graphs", self.place
            )
        nodes = d.attr((*path, "nodes"), self.most_nodes, self.place)
        edges = d.attr((*path, "edges"), self.most_edges, self.place)
        name = join(path)
        v = current().dim("v", Attr(nodes), self.most_nodes, f"node of '{name}'", place=self.place)
        e = current().dim("e", Attr(edges), self.most_edges, f"edge of '{name}'", least=0, place=self.place)
        shape = Shape(path, v, e, self.types)
        shape.declare(d, self.place)
        node, node_parts = self.node.declare(d, path, Level((v,), v.at, v.extent, self.most_nodes))
        edge, edge_parts = self.edge.declare(d, path, Level((e,), e.at, e.extent, self.most_edges))
        whole, whole_parts = self.whole.declare(d, path, level)
        encoder = GraphEncoder(self, path, node_parts, edge_parts, whole_parts)
        return GraphValue(shape, node, edge, whole), encoder


class GraphEncoder(Encoder):
    """Sorts the edges by type and source; what belongs to them with them."""

    def __init__(self, spec: Graph, path: Path, node: Parts, edge: Parts, whole: Parts) -> None:
        super().__init__(spec.place)
        self.spec, self.node, self.edge, self.whole = spec, node, edge, whole
        self.names = {k: join((*path, k)) for k in ("nodes", "edges", *TABLES, *TABLES_OF_TYPES)}
        self.kind = Integers(spec.place, "type", spec.types)
        self.known = {"edges", *node.parts, *edge.parts, *whole.parts} | (
            {"type"} if spec.types > 1 else set()
        )

    def encode(self, e: Encoded, values: Any, locate: Locate) -> None:
        (graph,) = values
        at, spec = locate(0), self.spec
        if not isinstance(graph, Mapping):
            raise self.wrong(
                at, f"is {SHOWN.repr(graph)}, expected a dict with 'edges' and the parts of nodes and edges"
            )
        known = self.known | ({"nodes"} & graph.keys())
        if e.answers is not None:
            parts = {*self.node.parts, *self.edge.parts, *self.whole.parts}
            known -= parts - graph.keys()
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
        order = np.argsort(kind * count + ends[:, 0], kind="stable")
        e.attrs |= {self.names["nodes"]: count, self.names["edges"]: len(ends)}
        tables = _tables(count, spec.types, ends[order], kind[order])
        e.tables |= {self.names[k]: t.astype(np.int32) for k, t in tables.items()}
        for key, part in _given(self.whole, graph):
            part.encode(e, [graph[key]], lambda _, key=key: dotted(at, key))  # type: ignore[misc]
        for key, part in _given(self.node, graph):
            part.encode(e, graph[key], lambda i, key=key: dotted(at, f"{key}[{i}]"))  # type: ignore[misc]
        for key, part in _given(self.edge, graph):
            column = graph[key]
            if (size := self.size(column, dotted(at, key))) != len(ends):
                raise self.wrong(dotted(at, key), f"has {size} values, expected {len(ends)}")
            if not isinstance(column, np.ndarray):
                given = list(column)
                column = [given[i] for i in order]
            else:
                column = column[order]
            # Errors speak of the numbers that the author gave, not of our order.
            where: Locate = lambda i, key=key: dotted(at, f"{key}[{order[i]}]")  # type: ignore[misc]  # noqa: E731
            part.encode(e, column, where)
        for record, size in ((self.whole, 1), (self.node, count), (self.edge, len(ends))):
            record.fill(e, graph, size, lambda _: at)

    def _nodes(self, graph: Mapping[str, Any], at: str) -> int:
        sizes = {k: self.size(graph[k], dotted(at, k)) for k, _ in _given(self.node, graph)}
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


def _given(record: Parts, graph: Mapping[str, Any]) -> list[tuple[str, Encoder]]:
    """The parts that the instance has."""
    return [(key, part) for key, part in record.parts.items() if key in graph]


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


class Shape:
    """The tables of a graph, and what they prove."""

    def __init__(self, path: Path, v: Dim, e: Dim, types: int) -> None:
        self.path, self.v, self.e, self.types = path, v, e, types

    def table(self, part: str, *index: Expr | int) -> Expr:
        return Table(join((*self.path, part)), tuple(lift(i) for i in index))

    def declare(self, d: Declared, place: SourceLine) -> None:
        v, e, name = self.v, self.e, join(self.path)
        nodes, edges, types = v.extent, e.extent, lift(self.types)
        by_type = (types, nodes)
        tables = {
            "source": TableType((edges,), nodes),
            "target": TableType((edges,), nodes),
            "degree": TableType(by_type, edges + 1),
            "first": TableType(by_type, edges + 1),
            "in_degree": TableType((nodes,), edges + 1),
            "in_first": TableType((nodes,), edges + 1),
            "in_edge": TableType((edges,), edges),
            "place": TableType((edges,), edges),
            "of_type": TableType((types,), edges + 1),
            "type_first": TableType((types,), edges + 1),
        }
        for part, table in tables.items():
            d.table((*self.path, part), table, place)
        kind = state_field(join((*self.path, "type")), self.types)
        sent = state_field(join((*self.path, "sent")), self.table("degree", Field(kind.name), v.at), e.bound)
        at = self.table("first", Field(kind.name), v.at) + Field(sent.name)
        by_source = Axiom(
            f"{name}: first, degree csr of source", (kind, v.field, sent), self.table("source", at), v.at
        )
        arrived = self.table("in_first", self.table("target", e.at)) + self.table("place", e.at)
        by_target = Axiom(
            f"{name}: in_first csr of in_edge", (e.field,), self.table("in_edge", arrived), e.at
        )
        d.axioms += [by_source, by_target]


class GraphValue:
    """A graph as a model reads it: parts of nodes and edges as attributes; `source`, `target` of edges;
    `position` and `in_degree` of nodes."""

    def __init__(self, shape: Shape, node: RecordValue, edge: RecordValue, whole: RecordValue) -> None:
        self._shape, self._records = shape, (node, edge, whole)

    @property
    def nodes(self) -> Dim:
        return self._shape.v

    @property
    def edges(self) -> Dim:
        return self._shape.e

    @property
    def source(self) -> Integer:
        return Integer(self._shape.table("source", self.edges.at), (self.edges,), lift(self.nodes.bound))

    @property
    def target(self) -> Integer:
        return Integer(self._shape.table("target", self.edges.at), (self.edges,), lift(self.nodes.bound))

    @property
    def position(self) -> Integer:
        return Integer(self.nodes.at, (self.nodes,), self.nodes.extent)

    @property
    def in_degree(self) -> Integer:
        return Integer(
            self._shape.table("in_degree", self.nodes.at), (self.nodes,), lift(self.edges.bound + 1)
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        for record in self._records:
            if name in record._parts:
                return getattr(record, name)
        known = ", ".join(k for record in self._records for k in record._parts)
        raise FrontendError(f"the graph has no '{name}' (it has {known})")
