"""Graphs: how an instance holds one, and sending values along its edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from amphw.frontend.functions import maximum, number
from amphw.frontend.gather import REDUCTIONS, reduced
from amphw.frontend.index import Dim, dims_of, union, without
from amphw.frontend.integer import Integer
from amphw.frontend.layers import Layer
from amphw.frontend.loops import fold
from amphw.frontend.place import FrontendError
from amphw.frontend.spec import Declared, Encoded, Level, Locate, Record, RecordValue, Spec, dotted, join
from amphw.frontend.states import reordered
from amphw.frontend.tensor import Tensor, align, spread, traced, ungroup, unit
from amphw.frontend.tensor import group as group_by
from amphw.frontend.trace import Call, current
from amphw.ir.behaviour import MEMBER
from amphw.ir.expr import ROW, Attr, Expr, Field, Table, lift
from amphw.ir.grouping import Collect, Distribute, Group
from amphw.ir.instance import Axiom, TableType
from amphw.ir.nodes import Node
from amphw.ir.program import Program, ValueType, trace
from amphw.ir.routing import Flatmap, Phi
from amphw.ir.state import state_field


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
        own = {"edges", "nodes", "type", "source", "target", "position", "in_degree"}
        taken = [*(node or {}), *(edge or {}), *(whole or {})]
        if odd := sorted({k for k in taken if k in own or taken.count(k) > 1}):
            raise FrontendError(f"the parts {odd} of a graph's nodes and edges need other names")
        if types < 1:
            raise FrontendError(f"a graph has one type of edges or more, got {types}")
        self.node, self.edge, self.whole = (Record(**parts or {}) for parts in (node, edge, whole))
        self.types = types
        self.most_nodes, self.most_edges = most_nodes, most_edges

    def declare(self, d: Declared, name: str, level: Level) -> GraphValue:
        if level.context:
            raise FrontendError(
                "a graph within a sequence is not supported; an instance may have several graphs"
            )
        nodes, edges = join(name, "nodes"), join(name, "edges")
        d.attrs |= {nodes: self.most_nodes, edges: self.most_edges}
        v = current().dim("v", Attr(nodes), self.most_nodes, f"node of '{name}'")
        e = current().dim("e", Attr(edges), self.most_edges, f"edge of '{name}'", least=0)
        shape = _Shape(name, v, e, self.types)
        shape.declare(d)
        node = self.node.declare(d, name, Level((v,), v.at, v.extent, self.most_nodes))
        edge = self.edge.declare(d, name, Level((e,), e.at, e.extent, self.most_edges))
        return GraphValue(shape, node, edge, self.whole.declare(d, name, level))

    def encode(self, e: Encoded, name: str, values: Any, locate: Locate) -> None:
        (graph,) = values
        at = locate(0)
        if not isinstance(graph, Mapping) or "edges" not in graph:
            raise self.wrong(
                at, f"is {graph!r}, expected a dict with 'edges' and the parts of nodes and edges"
            )
        known = {"edges", *self.node.parts, *self.edge.parts, *self.whole.parts}
        known |= ({"type"} if self.types > 1 else set()) | ({"nodes"} & set(graph))
        if odd := sorted(set(graph) ^ known):
            raise self.wrong(dotted(at, f"{odd[0]}"), "is missing" if odd[0] in known else "is not declared")
        count = self._nodes(graph, at)
        ends = np.asarray(graph["edges"]) if len(graph["edges"]) else np.zeros((0, 2), np.int64)
        if ends.dtype.kind not in "iu" or ends.ndim != 2 or ends.shape[1] != 2:
            raise self.wrong(dotted(at, "edges"), "is no list of pairs (source, target) of node numbers")
        for i in np.flatnonzero(((ends < 0) | (ends >= count)).any(axis=1)):
            raise self.wrong(
                dotted(at, f"edges[{i}]"), f"is {tuple(ends[i].tolist())}, but there are {count} nodes"
            )
        for what, size, most in (("nodes", count, self.most_nodes), ("edges", len(ends), self.most_edges)):
            if size > most:
                raise self.wrong(at, f"has {size} {what}, allowed are {most}")
        kind = np.asarray(graph["type"]) if self.types > 1 else np.zeros(len(ends), np.int64)
        if kind.shape != (len(ends),):
            raise self.wrong(dotted(at, "type"), f"has {kind.size} values, there are {len(ends)} edges")
        for i in np.flatnonzero((kind < 0) | (kind >= self.types)):
            raise self.wrong(dotted(at, f"type[{i}]"), f"is {kind[i]}, allowed is 0..{self.types - 1}")
        order = np.argsort(kind * count + ends[:, 0], kind="stable")
        e.attrs |= {join(name, "nodes"): count, join(name, "edges"): len(ends)}
        tables = _tables(count, self.types, ends[order], kind[order])
        e.tables |= {join(name, k): t.astype(np.int32) for k, t in tables.items()}
        for key, part in self.whole.parts.items():
            part.encode(e, join(name, key), [graph[key]], lambda _, key=key: dotted(at, key))  # type: ignore[misc]
        for record, size in ((self.node, count), (self.edge, len(ends))):
            for key, part in record.parts.items():
                column = graph[key]
                if len(column) != size:
                    raise self.wrong(dotted(at, f"{key}"), f"has {len(column)} values, expected {size}")
                # Errors speak of the numbers that the author gave, not of our order.
                numbers = order if record is self.edge else np.arange(size)
                if record is self.edge:
                    column = [column[i] for i in order]
                where: Locate = lambda i, key=key, numbers=numbers: dotted(at, f"{key}[{numbers[i]}]")  # type: ignore[misc]  # noqa: E731
                part.encode(e, join(name, key), column, where)

    def _nodes(self, graph: Mapping[str, Any], at: str) -> int:
        sizes = [len(graph[k]) for k in self.node.parts]
        if "nodes" in graph:
            sizes.append(graph["nodes"])
        if not sizes:
            raise self.wrong(dotted(at, "nodes"), "is missing: the number of nodes")
        if len(set(sizes)) > 1:
            raise self.wrong(at, f"has parts of nodes with different lengths: {sizes}")
        if sizes[0] < 1:
            raise self.wrong(at, "has no nodes, expected 1 or more")
        return int(sizes[0])


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


class _Shape:
    """The tables of a graph, and what they prove."""

    def __init__(self, name: str, v: Dim, e: Dim, types: int) -> None:
        self.name, self.v, self.e, self.types = name, v, e, types

    def table(self, part: str, *index: Expr | int) -> Expr:
        return Table(join(self.name, part), tuple(lift(i) for i in index))

    def declare(self, d: Declared) -> None:
        v, e, name = self.v, self.e, self.name
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
        d.tables |= {join(name, k): t for k, t in tables.items()}
        kind = state_field(join(name, "type"), self.types)
        sent = state_field(join(name, "sent"), self.table("degree", Field(kind.name), v.at), e.bound)
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

    def __init__(self, shape: _Shape, node: RecordValue, edge: RecordValue, whole: RecordValue) -> None:
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


Message = Callable[[Tensor], Tensor]


def send(h: Tensor, graph: GraphValue, message: Message | Sequence[Message] | None = None) -> Tensor:
    """For each edge the value of the node that it comes from, through `message` if there is one.

    message: of the node's value, one for all or a list with one for each type of edges. What a node sends is
    the same along all of its edges of one type, so it is computed once for them.
    """
    s, t = graph._shape, current()
    h = _by_node(h, s)
    messages: list[Message] = _messages(message, s.types)
    sent = []
    for kind, function in enumerate(messages):
        degree = s.table("degree", kind, s.v.at)
        (choice,) = t.choice(f"sends_{kind}?", degree > 0, 2, (s.v,))[1:]
        with t.within(choice):
            x = spread(h, union(h.context, (choice,)))
            y = function(x)
        if isinstance(y, Tensor) and (s.e in y.context or y.rows is s.e):
            raise FrontendError(
                "a message is of a node, and the same along all of its edges; take what edges have into "
                "what `send` returns, before `receive`"
            )
        if not isinstance(y, Tensor) or s.v not in y.context or y.rows is not None:
            raise FrontendError(f"a message is a function of the node's value, it returned {y!r}")
        j = t.dim("j", degree, s.e.bound, "edge of a node", needs=(s.v,))
        first, e = (lambda v, kind=kind: s.table("first", kind, v)), s.e.at
        source = s.table("source", e)
        wide = (*dims_of(y.context), j)
        along = reordered(wide, drop={s.v: source, j: e - first(source)}, add={s.e: first(s.v.at) + j.at})
        name = t.name(f"send_{kind}")
        t.emit(Flatmap(name, j.field, along), {"in": y.port})
        context = union(without(y.context, choice, s.v), (s.e,))
        sent.append(Tensor((name, "out"), y.width, context))
    return sent[0] if len(sent) == 1 else _merge(sent)


def _messages(message: Message | Sequence[Message] | None, types: int) -> list[Message]:
    if message is None:
        return [lambda x: x] * types
    if isinstance(message, Sequence):
        if len(message) != types:
            raise FrontendError(f"{len(message)} messages for {types} types of edges")
        return list(message)
    return [message] * types


def _merge(sent: list[Tensor]) -> Tensor:
    if len({x.width for x in sent}) > 1:
        raise FrontendError(f"the messages of different types have widths {[x.width for x in sent]}")
    context = union(*(x.context for x in sent))
    ports = {f"type{k}": spread(x, context).port for k, x in enumerate(sent)}
    phi = current().emit(Phi(current().name("sent"), tuple(ports)), ports)
    return Tensor((phi, "out"), sent[0].width, context)


def _by_node(h: Tensor, s: _Shape) -> Tensor:
    h = ungroup(h) if h.rows is not None else h
    if s.v not in h.context:
        return spread(h, union(h.context, (s.v,)))
    return h


def receive(m: Tensor, graph: GraphValue, how: str = "sum") -> Tensor:
    """For each node the sum, mean or maximum of the values of the edges that lead to it; 0 without any."""
    s = graph._shape
    count = s.table("in_degree", s.v.at)
    m = ungroup(m) if m.rows is not None else m
    trigger = unit(union(without(m.context, s.e), (s.v,)))
    program = trace(
        lambda _, x: reduced(x, _known(how), count, "rows"),
        {"init": trigger.width, "in": ValueType("float", "members", m.width)},
    )
    return _arrive(m, s, trigger, current().name("receive"), program)


def _known(how: str) -> str:
    if how not in REDUCTIONS:
        raise FrontendError(f"unknown reduction '{how}'; there are {', '.join(REDUCTIONS)}")
    return how


def _arrive(m: Tensor, s: _Shape, opened: Tensor, name: str, program: Program) -> Tensor:
    if s.e not in m.context:
        raise FrontendError("a node receives values of edges; `send` makes them")
    count = s.table("in_degree", s.v.at)
    in_edge = s.table("in_edge", s.table("in_first", s.v.at) + Field(MEMBER))
    map = reordered(dims_of(m.context), drop={s.e: in_edge}, add={s.v: s.table("target", s.e.at)})
    group = Group(name, map, s.table("place", s.e.at), count, init=True, program=program)
    current().emit(group, {"init": opened.port, "in": m.port})
    return Tensor((name, "out"), program.outputs_types[0].width, opened.context)


def message_passing(
    h: Tensor,
    graph: GraphValue,
    message: Message | Sequence[Message],
    update: Callable[[Tensor, Tensor], Tensor],
    *,
    steps: int,
    how: str = "sum",
    form: str = "messages",
) -> Tensor:
    """`steps` times every node sends along its edges, receives, and updates its value -> the last values.

    message: see `send`. update: of a node's value and what it received. how: sum, mean or max. form:
    "messages" sends one for each edge (Flatmap and Group); "rows" has all nodes of a graph in one message and
    takes its rows apart by type (Distribute and Collect), which has no max.
    """
    if form == "rows":
        rows = group_by(_by_node(h, graph._shape) if h.rows is not graph.nodes else h, graph.nodes)
        return fold(lambda x: update(x, _exchange(x, graph, message, how)), rows, length=steps)
    if form != "messages":
        raise FrontendError(f"a graph is passed over by 'messages' or by 'rows', not by '{form}'")

    def step(x: Tensor) -> Tensor:
        sent = send(x, graph, message)
        if isinstance(update, Layer):
            return _updated(x, sent, graph, update, how)
        return update(x, receive(sent, graph, how))

    return fold(step, _by_node(h, graph._shape), length=steps)


def _updated(h: Tensor, m: Tensor, graph: GraphValue, layer: Layer, how: str) -> Tensor:
    """The layer inside the Group that receives: no message is spent on the sum."""
    s, t = graph._shape, current()
    (opened,), context, _ = align([h], least=union(without(m.context, s.e), (s.v,)))
    count = s.table("in_degree", s.v.at)
    plain = traced(layer.function, [h, m], [h, m], [], layer.named(h.width, m.width))
    shapes = {p.name: p for p in plain.params}
    program = trace(
        lambda p, x, received: layer.function(p, x, reduced(received, _known(how), count, "rows")),
        {"init": h.width, "in": ValueType("float", "members", m.width)},
        shapes,
    )
    name = t.layer_name(layer)
    calls = t.net.calls.setdefault(layer, [])
    node = f"{name}@{len(calls)}"
    calls.append(Call(node, context, None))
    return _arrive(spread(m, union(m.context, without(context, s.v))), s, opened, node, program)


def _exchange(x: Tensor, graph: GraphValue, message: Message | Sequence[Message], how: str) -> Tensor:
    """What the rows of a message receive from one another."""
    if how == "max":
        raise FrontendError("the form 'rows' adds up what a node receives; use form='messages' for a maximum")
    s, t = graph._shape, current()
    row = Field(ROW.name)
    ports, dims = [], []
    for kind in range(s.types):
        count, first = s.table("of_type", kind), s.table("type_first", kind)
        dims.append(t.dim("e", count, s.e.bound, f"edge of type {kind}", least=0))
        ports.append((f"type{kind}", s.table("source", first + row), count))
    apart = t.emit(Distribute(t.name("distribute"), tuple(ports)), {"in": x.port})
    sent = [
        f(Tensor((apart, port[0]), x.width, x.context, dim))
        for f, port, dim in zip(_messages(message, s.types), ports, dims, strict=True)
    ]
    into = tuple((f"type{k}", s.table("target", s.table("type_first", k) + row)) for k in range(s.types))
    node: Node = Collect(t.name("collect"), into, s.v.extent)
    t.emit(node, {f"type{k}": y.port for k, y in enumerate(sent)})
    total = Tensor((node.name, "out"), sent[0].width, x.context, s.v)
    return total / number(maximum(graph.in_degree, 1)) if _known(how) == "mean" else total
