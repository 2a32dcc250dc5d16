"""Graphs as instances have them: what is declared, how it is stored, and what a model reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from amphw.frontend.encoding import Encoder
from amphw.frontend.graph_encoding import TABLES, GraphEncoder
from amphw.frontend.index import Dim, dims_of
from amphw.frontend.integer import Integer
from amphw.frontend.source import FrontendError, SourceLine
from amphw.frontend.spec import Declared, Level, Path, RecordValue, Spec, join, record_of, whole_number
from amphw.frontend.trace import current
from amphw.frontend.within import Stored, axiom_fields, level_of, stored
from amphw.ir.expr import Expr, Field, Table, lift, substitute
from amphw.ir.instance import Axiom, TableType
from amphw.ir.state import state_field

_OWN = {*TABLES, "edges", "nodes", "type", "position"}


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

    @property
    def names(self) -> set[str]:
        return self.node.names | self.edge.names | self.whole.names

    def declare(self, d: Declared, path: Path, level: Level) -> tuple[GraphValue, Encoder]:
        path = level.path_of(path)
        nodes = stored(d, path, "nodes", self.most_nodes, level, self.place)
        edges = stored(d, path, "edges", self.most_edges, level, self.place, least=0)
        name, dim, needs = join(path), current().dim, dims_of(level.context)
        v = dim("v", nodes.count, self.most_nodes, f"node of '{name}'", needs=needs, place=self.place)
        e = dim(
            "e", edges.count, self.most_edges, f"edge of '{name}'", least=0, needs=needs, place=self.place
        )
        item = level.address if level.context else None
        shape = Shape(path, v, e, nodes, edges, item, self.types)
        shape.declare(d, level, (self.most_nodes, self.most_edges), self.place)
        node, node_parts = self.node.declare(d, path, level_of(level, v, nodes))
        edge, edge_parts = self.edge.declare(d, path, level_of(level, e, edges))
        whole, whole_parts = self.whole.declare(d, path, level)
        encoder = GraphEncoder(self, path, node_parts, edge_parts, whole_parts, not level.context)
        return GraphValue(shape, node, edge, whole), encoder


@dataclass(frozen=True)
class Shape:
    """The tables of a graph, and what they prove. nodes, edges: where its own are in them. item: of a
    sequence, whose graph it is."""

    path: Path
    v: Dim
    e: Dim
    nodes: Stored
    edges: Stored
    item: Expr | None
    types: int

    def table(self, part: str, *index: Expr | int) -> Expr:
        """What a table says of an edge, of a node (and, before it, a type of edges), or of a type."""
        *types, last = (lift(i) for i in index)
        axis = TABLES[part]
        if axis == "types":
            of = [last] if self.item is None else [self.item, last]
        else:
            of = [*types, (self.edges if axis == "edges" else self.nodes).at(last)]
        return Table(join((*self.path, part)), tuple(of))

    def declare(self, d: Declared, level: Level, most: tuple[int, int], place: SourceLine) -> None:
        """most: so many nodes and edges has the largest."""
        v, e, name, types = self.v, self.e, join(self.path), lift(self.types)
        shapes = {
            "edges": (self.edges.total,),
            "nodes": (self.nodes.total,),
            "types, nodes": (types, self.nodes.total),
            "types": (types,) if self.item is None else (level.count, types),
        }
        nodes, edges = (v.extent, e.extent) if self.item is None else map(lift, most)
        high = {"source": nodes, "target": nodes, "in_edge": edges, "place": edges}
        for part, axis in TABLES.items():
            d.table((*self.path, part), TableType(shapes[axis], high.get(part, edges + 1)), place)
        kind = state_field(join((*self.path, "type")), self.types)
        sent = state_field(join((*self.path, "sent")), self.table("degree", Field(kind.name), v.at), e.bound)
        at = self.table("first", Field(kind.name), v.at) + Field(sent.name)
        by_source = Axiom(
            f"{name}: first, degree csr of source",
            (kind, *axiom_fields(level.context, v), sent),
            self.table("source", at),
            v.at,
        )
        arrived = self.table("in_first", self.table("target", e.at)) + self.table("place", e.at)
        by_target = Axiom(
            f"{name}: in_first csr of in_edge",
            axiom_fields(level.context, e),
            self.table("in_edge", arrived),
            e.at,
        )
        d.axioms += [by_source, by_target]

    def moved(self, v: Dim, e: Dim, to: Mapping[str, Expr]) -> Shape:
        nodes, edges = self.nodes.moved(to), self.edges.moved(to)
        item = None if self.item is None else substitute(self.item, to)
        return replace(self, v=v, e=e, nodes=nodes, edges=edges, item=item)


class GraphValue:
    """A graph as a model reads it: parts of nodes and edges as attributes; `source`, `target` of edges;
    `position` and `in_degree` of nodes."""

    def __init__(self, shape: Shape, node: RecordValue, edge: RecordValue, whole: RecordValue) -> None:
        self._shape, self._records = shape, (node, edge, whole)

    @property
    def dims(self) -> tuple[Dim, Dim]:
        return self._shape.v, self._shape.e

    def moved(self, dims: tuple[Dim, Dim], to: Mapping[str, Expr], bring: Callable[[Any], Any]) -> GraphValue:
        """As the body of a loop reads it, with other dimensions. to: new for old ones, by name. bring: of the
        records."""
        return GraphValue(self._shape.moved(*dims, to), *(bring(record) for record in self._records))

    def __repr__(self) -> str:
        return f"the graph '{join(self._shape.path)}'"

    @property
    def nodes(self) -> Dim:
        return self._shape.v

    @property
    def edges(self) -> Dim:
        return self._shape.e

    @property
    def source(self) -> Integer:
        return Integer(
            self._shape.table("source", self.edges.at),
            (*self.edges.needs, self.edges),
            lift(self.nodes.bound),
        )

    @property
    def target(self) -> Integer:
        return Integer(
            self._shape.table("target", self.edges.at),
            (*self.edges.needs, self.edges),
            lift(self.nodes.bound),
        )

    @property
    def position(self) -> Integer:
        return Integer(self.nodes.at, (*self.nodes.needs, self.nodes), self.nodes.extent)

    @property
    def in_degree(self) -> Integer:
        return Integer(
            self._shape.table("in_degree", self.nodes.at),
            (*self.nodes.needs, self.nodes),
            lift(self.edges.bound + 1),
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        for record in self._records:
            if name in record._parts:
                return getattr(record, name)
        known = ", ".join(k for record in self._records for k in record._parts)
        raise FrontendError(f"the graph has no '{name}' (it has {known})")
