"""A gated graph network over typed directed edges (Li et al., ICLR 2016), written in two ways.

`build` sends one message a node and one an edge:

    nodes(v) - embed - enter - phi(k, v) - bcast -- flatmap(k, e) - type? - edge0..2 - merge -.
                                |              `------------------------------ init - update (Group by dst)
                                `-- k + 1 <-- no -- last? <---------------------------'
                                                      `- yes - leave(v) - readout (Group of all) - head - loss

A message on an edge carries the edge's position in the CSR index (parallel edges differ in nothing else),
and the node is recovered as `src[e]`. `update` gathers the in-edges of a node beside its own state, so a
node without in-edges fires at once; a node without out-edges gets a zero gradient from its empty Flatmap.

`build_dense` sends all nodes as the rows of one message, Distributes them over the edges of each type and
Collects the sums. Nodes that own parameters have the same names and shapes in both, so the gradients must
agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from amphw.ir.behaviour import MEMBER, StateMap
from amphw.ir.expr import ROW, Attr, Const, Expr, Field, lift, table
from amphw.ir.functions import (
    argmax,
    concat,
    cross_entropy,
    linear,
    same,
    sigmoid,
    split,
    sum_rows,
    take,
    tanh,
)
from amphw.ir.graph import Graph
from amphw.ir.grouping import Collect, Distribute, Group
from amphw.ir.instance import Axiom, Instance, Schema, TableType, csr_of, permutation
from amphw.ir.nodes import NPT, PPT, Loss, Source
from amphw.ir.primitives import ValueType
from amphw.ir.program import Params, ParamSpec, Program, Value, trace
from amphw.ir.routing import Bcast, Cond, Flatmap, Isu, Phi
from amphw.ir.state import FieldType, StateType, state_field

KINDS, TYPES, CLASSES = 4, 3, 3
MAX_NODES, MAX_EDGES = 16, 64

v, e, j, k = Field("v"), Field("e"), Field("j"), Field("k")
nodes, edges = Attr("nodes"), Attr("edges")
out_off, src, dst, kind_of_edge = table("out_off"), table("src"), table("dst"), table("type")
in_off, in_edge, in_pos = table("in_off"), table("in_edge"), table("in_pos")
type_off, type_edge, kind = table("type_off"), table("type_edge"), table("kind")

out_degree, in_degree = out_off(v + 1) - out_off(v), in_off(v + 1) - in_off(v)


def _fields(most: tuple[int, int]) -> tuple[FieldType, FieldType, FieldType, FieldType]:
    """The node, the edge, and which of a node's edges it is, on the way out and in."""
    return (
        state_field("v", nodes, most[0]),
        state_field("e", edges, most[1]),
        state_field("j", out_degree, most[1]),
        state_field("j", in_degree, most[1]),
    )


def instance(rng: np.random.Generator, n: int = 6, arcs: Sequence[tuple[int, int]] | None = None) -> Instance:
    """A graph of n nodes; `arcs` are (source, destination), random (with loops, doubles) where left out."""
    if arcs is None:
        count = int(rng.integers(0, 2 * n + 1))
        arcs = [(int(a), int(b)) for a, b in rng.integers(0, n, (count, 2))]
    ends = np.array(arcs, dtype=np.int64).reshape(-1, 2)
    ends = ends[np.argsort(ends[:, 0], kind="stable")]
    types = rng.integers(0, TYPES, len(ends))
    by_dst = np.argsort(ends[:, 1], kind="stable")
    tables = {
        "kind": rng.integers(0, KINDS, n),
        "src": ends[:, 0],
        "dst": ends[:, 1],
        "type": types,
        "out_off": _offsets(ends[:, 0], n),
        "in_off": _offsets(ends[:, 1], n),
        "in_edge": by_dst,
        "in_pos": np.argsort(by_dst, kind="stable"),
        "type_off": _offsets(types, TYPES),
        "type_edge": np.argsort(types, kind="stable"),
        "label": rng.integers(0, CLASSES, 1),
    }
    return Instance({"nodes": n, "edges": len(ends)}, tables)


def _offsets(column: np.ndarray, n: int) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.bincount(column, minlength=n))]).astype(np.int64)


def _schema(most: tuple[int, int] = (MAX_NODES, MAX_EDGES)) -> Schema:
    node, edge, outgoing, incoming = _fields(most)
    offsets, edge_table = TableType((nodes + 1,), edges + 1), TableType((edges,), edges)
    tables = {
        "kind": TableType((nodes,), lift(KINDS)),
        "src": TableType((edges,), nodes),
        "dst": TableType((edges,), nodes),
        "type": TableType((edges,), lift(TYPES)),
        "out_off": offsets,
        "in_off": offsets,
        "in_edge": edge_table,
        "in_pos": edge_table,
        "type_off": TableType((lift(TYPES + 1),), edges + 1),
        "type_edge": edge_table,
        "label": TableType((lift(1),), lift(CLASSES)),
    }
    by_destination = Axiom("in_off csr_of dst[in_edge]", (node, incoming), dst(in_edge(in_off(v) + j)), v)
    axioms = (
        csr_of("out_off", "src", node, outgoing),
        permutation("in_pos", "in_edge", edge),
        by_destination,
    )
    return Schema({"nodes": most[0], "edges": most[1]}, tables, axioms=axioms)


# --- what both ways share: the programs that own parameters -------------------------------------


def _embed(hidden: int, index: Expr) -> PPT:
    params = {"E": ParamSpec("E", (KINDS, hidden), "normal:0.7")}
    return PPT("embed", trace(lambda p, x: take(p.E, index), {"x": 0}, params))


def _edge(number: int, hidden: int) -> PPT:
    params: dict[str, tuple[int, ...] | ParamSpec] = {
        "W": (hidden, hidden),
        "b": ParamSpec("b", (hidden,), "uniform:0.3"),
    }
    return PPT(f"edge{number}", trace(lambda p, x: linear(x, p.W, p.b), {"x": hidden}, params))


def _gru(hidden: int, *, members: bool) -> Program:
    """h (init) and its messages (in) -> h'. members: "in" has a row for each message, yet to be added up."""

    def function(p: Params, h: Value, x: Value) -> Value:
        m = sum_rows(x) if members else x
        reset, keep = split(sigmoid(linear(concat(m, h), p.W, p.b)), 2)
        new = tanh(linear(concat(m, reset * h), p.U, p.c))
        return h + keep * (new - h)

    wide = ValueType("float", "members" if members else "rows", hidden)
    params: dict[str, tuple[int, ...] | ParamSpec] = {
        "W": (2 * hidden, 2 * hidden),
        "b": ParamSpec("b", (2 * hidden,), "uniform:0.3"),
        "U": (2 * hidden, hidden),
        "c": ParamSpec("c", (hidden,), "uniform:0.3"),
    }
    return trace(function, {"init": hidden, "in": wide}, params)


def _head(g: Graph, hidden: int) -> None:
    def loss(y: Value) -> tuple[Value, Value]:
        label = table("label")(0)
        return cross_entropy(y, label), same(argmax(y), label)

    params: dict[str, tuple[int, ...] | ParamSpec] = {
        "W": (hidden, CLASSES),
        "b": ParamSpec("b", (CLASSES,), "uniform:0.1"),
    }
    g.add(PPT("head", trace(lambda p, h: linear(h, p.W, p.b), {"h": hidden}, params)))
    g.add(Loss("loss", trace(loss, {"y": CLASSES}), ("loss", "accuracy")))
    g.connect("readout", "head", "loss")


# --- one message a node, one an edge ------------------------------------------------------------


def build(hidden: int = 4, steps: int = 2, most: tuple[int, int] = (MAX_NODES, MAX_EDGES)) -> Graph:
    """most: nodes and edges of an instance."""
    node, edge, outgoing, _ = _fields(most)
    g = Graph("message-passing", _schema(most))
    step = state_field("k", steps)
    ports = tuple(f"type{c}" for c in range(TYPES))
    with g.region("nodes", "map", "v"):
        g.add(Source("nodes", StateType((node,))))
        g.add(_embed(hidden, kind(v)))
        with g.region("steps", "loop", "k"):
            # v is dropped and added again so that it stands behind k, where the Group puts it too.
            g.add(Isu("enter", StateMap(drop={"v": v}, add=((step, Const(0)), (node, v)))))
            g.add(Phi("phi"))
            g.add(Bcast("fork"))
            with g.region("edges", "map", "e"):
                leave_node = StateMap(
                    drop={"v": src(e), "j": e - out_off(src(e))}, add=((edge, out_off(v) + j),)
                )
                g.add(Flatmap("scatter", outgoing, leave_node))
                g.add(Cond("type?", kind_of_edge(e), ports))
                for c in range(TYPES):
                    g.add(_edge(c, hidden))
                g.add(Phi("merge", ports))
                # The way back: the member's position counts from the first in-edge of the node.
                arrive = StateMap(drop={"e": in_edge(in_off(v) + Field(MEMBER))}, add=((node, dst(e)),))
                position = in_pos(e) - in_off(dst(e))
                gru = _gru(hidden, members=True)
                g.add(Group("update", arrive, position, in_degree, init=True, program=gru))
            g.add(Cond("last?", k.eq(steps - 1)))
            g.add(Isu("next", StateMap(set={"k": k + 1})))
            g.add(Isu("leave", StateMap(drop={"k": None})))
        everyone = trace(sum_rows, {"in": ValueType("float", "members", hidden)})
        g.add(Group("readout", StateMap(drop={"v": Field(MEMBER)}), v, nodes, program=everyone))
    g.connect("nodes", "embed", "enter", "phi.a")
    g.connect("phi", "fork")
    g.connect("fork.out0", "scatter", "type?")
    g.connect("fork.out1", "update.init")
    for c, port in enumerate(ports):
        g.connect(f"type?.{port}", f"edge{c}", f"merge.{port}")
    g.connect("merge", "update.in")
    g.connect("update", "last?")
    g.connect("last?.no", "next", "phi.b")
    g.connect("last?.yes", "leave", "readout")
    _head(g, hidden)
    return g


# --- all nodes in one message -------------------------------------------------------------------


def build_dense(hidden: int = 4, steps: int = 2) -> Graph:
    """The same model with Distribute and Collect; types without edges send messages without rows."""
    g = Graph("message-passing-dense", _schema())
    step = state_field("k", steps)
    ports = tuple(f"type{c}" for c in range(TYPES))
    number = [type_edge(type_off(c) + ROW) for c in range(TYPES)]
    count = [type_off(c + 1) - type_off(c) for c in range(TYPES)]
    g.add(Source("nodes", rows=nodes))
    g.add(_embed(hidden, kind(ROW)))
    with g.region("steps", "loop", "k"):
        g.add(Isu("enter", StateMap(add=((step, Const(0)),))))
        g.add(Phi("phi"))
        g.add(Bcast("fork"))
        g.add(Distribute("scatter", tuple(zip(ports, map(src, number), count, strict=True))))
        for c in range(TYPES):
            g.add(_edge(c, hidden))
        g.add(Collect("gather", tuple(zip(ports, map(dst, number), strict=True)), rows=nodes))
        g.add(PPT("update", _gru(hidden, members=False)))
        g.add(Cond("last?", k.eq(steps - 1)))
        g.add(Isu("next", StateMap(set={"k": k + 1})))
        g.add(Isu("leave", StateMap(drop={"k": None})))
    g.add(NPT("readout", trace(lambda x: sum_rows(x, "graph"), {"x": hidden}, spaces={"graph": 1})))
    g.connect("nodes", "embed", "enter", "phi.a")
    g.connect("phi", "fork")
    g.connect("fork.out0", "scatter")
    g.connect("fork.out1", "update.init")
    for c, port in enumerate(ports):
        g.connect(f"scatter.{port}", f"edge{c}", f"gather.{port}")
    g.connect("gather", "update.in")
    g.connect("update", "last?")
    g.connect("last?.no", "next", "phi.b")
    g.connect("last?.yes", "leave", "readout")
    _head(g, hidden)
    return g
