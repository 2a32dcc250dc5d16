"""A binary Tree-LSTM (Tai et al., ACL 2015, section 3.2) with a loss at every node of the tree.

    words(n leaf) - embed - leaf cell - phi(n) - bcast -- split - h - head - loss
                                        |        |           `- c - discard
                                        |        `-- root? - yes - discard
                                        |                `- no - climb (n, side) - side? - left, right
                                        `--------------------- branch cell - concat <----------'

A message carries h and c side by side. `climb` replaces the node by its parent and remembers the side;
the way back is `child[parent, side]`, an axiom of the tables. The side is dropped behind the Cond that
looks at it. The tree's shape is the instance's: one graph serves single leaves, caterpillars and balanced
trees.
"""

from __future__ import annotations

import numpy as np

from amphw.ir.behaviour import StateMap
from amphw.ir.expr import Attr, Field, lift, table
from amphw.ir.functions import (
    argmax,
    columns,
    concat,
    cross_entropy,
    linear,
    same,
    sigmoid,
    split,
    take,
    tanh,
)
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema, TableType, inverse_of
from amphw.ir.nodes import NPT, PPT, Concat, Loss, Source, Split
from amphw.ir.program import ParamRef, Params, ParamSpec, Program, Value, trace
from amphw.ir.routing import Bcast, Cond, Discard, Isu, Phi
from amphw.ir.state import StateType, state_field

VOCABULARY, CLASSES = 9, 3
MAX_LEAVES = 20
MAX_NODES = 2 * MAX_LEAVES - 1

n, side, nodes, root = Field("n"), Field("side"), Attr("nodes"), Attr("root")
parent, child, side_of = table("parent"), table("child"), table("side")
is_leaf = table("is_leaf")(n)
N = state_field("n", nodes, MAX_NODES)
SIDE = state_field("side", 2)


def build(hidden: int = 4, pump: str = "leaves") -> Graph:
    """pump "leaves": the source enumerates leaves only; "all": every node, and a Cond drops inner ones."""
    g = Graph(f"tree-{pump}", _schema())
    with g.region("tree", "loop", "n", "side"):
        _leaves(g, hidden, pump)
        _climb(g, hidden)
        _losses(g, hidden)
    return g


def instance(rng: np.random.Generator, leaves: int | None = None, shape: str = "random") -> Instance:
    """A random tree, its nodes shuffled. shape: "random", or "caterpillar" (every inner node has a leaf)."""
    n_leaves = int(rng.integers(1, MAX_LEAVES + 1)) if leaves is None else leaves
    count = 2 * n_leaves - 1
    number = rng.permutation(count)
    tables = {
        "parent": np.zeros(count, np.int64),
        "side": np.zeros(count, np.int64),
        "child": np.zeros((count, 2), np.int64),
        "word": rng.integers(0, VOCABULARY, count),
        "label": rng.integers(0, CLASSES, count),
        "is_leaf": np.zeros(count, np.int64),
    }
    open_subtrees = [int(i) for i in number[:n_leaves]]
    tables["is_leaf"][open_subtrees] = 1
    for inner in map(int, number[n_leaves:]):
        k = len(open_subtrees)
        picked = (
            (k - 1, int(rng.integers(k - 1))) if shape == "caterpillar" else rng.choice(k, 2, replace=False)
        )
        pair = [open_subtrees[int(i)] for i in picked]
        if rng.integers(2):
            pair.reverse()
        for s, below in enumerate(pair):
            tables["child"][inner, s] = below
            tables["parent"][below], tables["side"][below] = inner, s
        # The newest subtree stands last, so that a caterpillar always continues from it.
        open_subtrees = [x for x in open_subtrees if x not in pair] + [inner]
    return Instance({"nodes": count, "root": open_subtrees[0]}, tables)


def _schema() -> Schema:
    index = TableType((nodes,), nodes)
    tables = {
        "parent": index,
        "side": TableType((nodes,), lift(2)),
        "child": TableType((nodes, lift(2)), nodes),
        "word": TableType((nodes,), lift(VOCABULARY)),
        "label": TableType((nodes,), lift(CLASSES)),
        "is_leaf": TableType((nodes,), lift(2)),
    }
    axiom = inverse_of("child", ("parent", "side"), N, where=n.ne(root))
    return Schema({"nodes": MAX_NODES, "root": MAX_NODES}, tables, axioms=(axiom,))


def _bias(name: str, width: int) -> ParamSpec:
    return ParamSpec(name, (width,), "uniform:0.3")


def _leaf_cell(hidden: int) -> Program:
    def function(p: Params, x: Value) -> Value:
        i, o, u = split(linear(x, p.W, p.b), 3)
        c = sigmoid(i) * tanh(u)
        return concat(sigmoid(o) * tanh(c), c)

    return trace(function, {"x": hidden}, {"W": (hidden, 3 * hidden), "b": _bias("b", 3 * hidden)})


def _branch_cell(hidden: int) -> Program:
    """Both children as [h c h c]; a forget gate for each child."""

    def function(p: Params, x: Value) -> Value:
        h_left, c_left, h_right, c_right = split(x, 4)
        i, o, u, f_left, f_right = split(linear(concat(h_left, h_right), p.W, p.b), 5)
        c = sigmoid(i) * tanh(u) + sigmoid(f_left) * c_left + sigmoid(f_right) * c_right
        return concat(sigmoid(o) * tanh(c), c)

    return trace(function, {"x": 4 * hidden}, {"W": (2 * hidden, 5 * hidden), "b": _bias("b", 5 * hidden)})


def _leaves(g: Graph, hidden: int, pump: str) -> None:
    words = ParamSpec("E", (VOCABULARY, hidden), "normal:0.5")
    if pump == "leaves":
        g.add(Source("words", StateType((N,)), where=is_leaf.eq(1)))
        entry = "words"
    else:
        g.add(Source("words", StateType((N,))))
        g.add(Cond("leaf?", is_leaf.eq(1)))
        g.add(Discard("inner"))
        g.connect("words", "leaf?")
        g.connect("leaf?.no", "inner")
        entry = "leaf?.yes"

    def look_up(p: Params, x: Value) -> Value:
        embedding: ParamRef = p.E
        return take(embedding, table("word")(n))

    g.add(PPT("embed", trace(look_up, {"x": 0}, {"E": words})))
    g.add(PPT("leaf", _leaf_cell(hidden)))
    g.connect(entry, "embed", "leaf")


def _climb(g: Graph, hidden: int) -> None:
    g.add(Phi("phi", ("leaf", "branch")))
    g.add(Bcast("fork"))
    g.add(Cond("root?", n.eq(root)))
    g.add(Discard("top"))
    # `child[n, side]` reads the new state: n is the parent there.
    up = StateMap(set={"n": parent(n)}, add=((SIDE, side_of(n)),), inverse={"n": child(n, side)})
    g.add(Isu("climb", up))
    g.add(Cond("side?", side, ("left", "right"), drop=("side",)))
    g.add(Concat("pair", ("left", "right")))
    g.add(PPT("branch", _branch_cell(hidden)))
    g.connect("leaf", "phi.leaf")
    g.connect("phi", "fork")
    g.connect("fork.out0", "root?")
    g.connect("root?.yes", "top")
    g.connect("root?.no", "climb", "side?")
    g.connect("side?.left", "pair.left")
    g.connect("side?.right", "pair.right")
    g.connect("pair", "branch", "phi.branch")


def _losses(g: Graph, hidden: int) -> None:
    def loss(y: Value) -> tuple[Value, Value]:
        label = table("label")(n)
        return cross_entropy(y, label), same(argmax(y), label)

    params: dict[str, tuple[int, ...] | ParamSpec] = {"W": (hidden, CLASSES), "b": _bias("b", CLASSES)}
    g.add(Split("halves", (hidden, hidden)))
    g.add(Discard("cell"))
    g.add(NPT("scale", trace(lambda h: columns(h, 0, hidden) * 1.5, {"h": hidden})))
    g.add(PPT("head", trace(lambda p, h: linear(h, p.W, p.b), {"h": hidden}, params)))
    g.add(Loss("loss", trace(loss, {"y": CLASSES}), ("loss", "accuracy")))
    g.connect("fork.out1", "halves")
    g.connect("halves.out0", "scale", "head", "loss")
    g.connect("halves.out1", "cell")
