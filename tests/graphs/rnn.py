"""A recurrent network whose cell is replicated, with one output layer called from two places.

    tokens(t) - embed - dropout - split --.
    start() - h0 - enter - phi(t) ---- concat - replicate -- cell0 --.
                            |                            `-- cell1 -- merge - drop r - relu - last?
                            `----------------------- t + 1 <--------------------------- no --'  `- yes - leave
    leave - bcast - (as it is | tanh) - site phi - head - site cond - two losses

The replica `r` is written on entry to the cells and dropped behind them: it is a function of what
remains, which the fact on the edge says. The two uses of `head` are told apart by the static field
`site`. Dropout draws its mask from (instance, t, row). A slice of the embedding is thrown away, so a
Discard returns zeros for it.
"""

from __future__ import annotations

import numpy as np

from amphw.ir.behaviour import StateMap
from amphw.ir.expr import ROW, Attr, Const, Expr, Field, lift, mixed, table
from amphw.ir.functions import argmax, cross_entropy, dropout, linear, relu, same, take, tanh, zeros
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema, TableType
from amphw.ir.nodes import NPT, PPT, Concat, Loss, Source, Split
from amphw.ir.program import ParamSpec, Program, Value, trace
from amphw.ir.routing import Bcast, Cond, Discard, Isu, Phi, Replicate
from amphw.ir.state import StateType, state_field

VOCABULARY, CLASSES, REPLICAS = 7, 4, 2
UNUSED = 2  # columns of the embedding that nobody reads
MAX_LENGTH, MAX_BATCH = 12, 8

t, length, batch = Field("t"), Attr("length"), Attr("batch")
T = state_field("t", length, MAX_LENGTH)

RULES: dict[str, Expr] = {"alternate": t % REPLICAS, "hash": mixed(Attr("instance"), 7) % REPLICAS}
"""How a message finds its replica: by the step, or by a hash of the instance's number."""


def build(hidden: int = 5, replicas: str = "alternate", rate: float = 0.25) -> Graph:
    """hidden: width of the state. replicas: a key of RULES. rate: dropout on the embedded tokens."""
    g = Graph(f"rnn-{replicas}", _schema())
    g.add(Source("start", rows=batch))
    g.add(NPT("h0", trace(lambda x: zeros(x, hidden), {"x": 0})))
    with g.region("time", "loop", "t"):
        _tokens(g, hidden, rate)
        _loop(g, hidden, RULES[replicas])
    g.connect("start", "h0", "enter")
    _heads(g, hidden)
    return g


def instance(rng: np.random.Generator, length: int | None = None, batch: int = 1) -> Instance:
    """A random instance: tokens [length, batch], two labels a row. Length 1 never takes the back edge."""
    n = int(rng.integers(1, MAX_LENGTH + 1)) if length is None else length
    return Instance(
        {"length": n, "batch": batch},
        {
            "tokens": rng.integers(0, VOCABULARY, (n, batch)),
            "label": rng.integers(0, CLASSES, (batch,)),
            "other": rng.integers(0, CLASSES, (batch,)),
        },
    )


def _schema() -> Schema:
    label = TableType((batch,), lift(CLASSES))
    tokens = TableType((length, batch), lift(VOCABULARY))
    return Schema(
        {"length": MAX_LENGTH, "batch": MAX_BATCH}, {"tokens": tokens, "label": label, "other": label}
    )


def _tokens(g: Graph, hidden: int, rate: float) -> None:
    width = hidden + UNUSED
    table_of_words = {"E": ParamSpec("E", (VOCABULARY, width), "normal:0.5")}
    g.add(Source("tokens", StateType((T,)), rows=batch))
    g.add(PPT("embed", trace(lambda p, x: take(p.E, table("tokens")(t, ROW)), {"x": 0}, table_of_words)))
    g.add(NPT("drop", trace(lambda x: dropout(x, rate, [Attr("instance"), t], seed=11), {"x": width})))
    g.add(Split("split", (hidden, UNUSED)))
    g.add(Discard("unused"))
    g.connect("tokens", "embed", "drop", "split")
    g.connect("split.out1", "unused")


def _cell(hidden: int) -> Program:
    # A bias of 0 could put a pre-activation exactly on the kink of relu (all inputs dropped), where a finite
    # difference means nothing.
    params: dict[str, tuple[int, ...] | ParamSpec] = {
        "W": (2 * hidden, hidden),
        "b": ParamSpec("b", (hidden,), "uniform:0.5"),
    }
    return trace(lambda p, x: linear(x, p.W, p.b), {"x": 2 * hidden}, params)


def _loop(g: Graph, hidden: int, rule: Expr) -> None:
    g.add(Isu("enter", StateMap(add=((T, Const(0)),))))
    g.add(Phi("phi"))
    g.add(Concat("concat", ("x", "h")))
    with g.region("replicas", "branch", "r"):
        g.add(Replicate("replicate", "r", REPLICAS, rule))
        for k in range(REPLICAS):
            g.add(PPT(f"cell{k}", _cell(hidden)))
        g.add(Phi("merge"))
        g.add(Isu("forget", StateMap(drop={"r": None})))
    g.add(NPT("relu", trace(relu, {"x": hidden})))
    g.add(Cond("last", t.eq(length - 1)))
    g.add(Isu("next", StateMap(set={"t": t + 1})))
    g.add(Isu("leave", StateMap(drop={"t": None})))
    g.connect("enter", "phi.a")
    g.connect("split.out0", "concat.x")
    g.connect("phi", "concat.h")
    g.connect("concat", "replicate")
    g.connect("replicate.out0", "cell0", "merge.a")
    g.connect("replicate.out1", "cell1", "merge.b")
    g.connect("merge", "forget", "relu", "last")
    g.connect("last.no", "next", "phi.b")
    g.connect("last.yes", "leave")


def _loss(labels: str) -> Program:
    def function(y: Value) -> tuple[Value, Value]:
        label = table(labels)(ROW)
        return cross_entropy(y, label), same(argmax(y), label)

    return trace(function, {"y": CLASSES})


def _heads(g: Graph, hidden: int) -> None:
    params: dict[str, tuple[int, ...] | ParamSpec] = {
        "W": (hidden, CLASSES),
        "b": ParamSpec("b", (CLASSES,), "uniform:0.1"),
    }
    g.add(Bcast("both"))
    g.add(NPT("squash", trace(tanh, {"x": hidden})))
    with g.region("head-calls", "call", "site"):
        g.add(Phi("call", ("plain", "squashed"), site="site"))
        g.add(PPT("head", trace(lambda p, h: linear(h, p.W, p.b), {"h": hidden}, params)))
        g.add(Cond("return", Field("site"), ("plain", "squashed"), drop=("site",)))
    g.add(Loss("loss", _loss("label"), ("loss", "accuracy")))
    g.add(Loss("other_loss", _loss("other"), ("loss", "accuracy")))
    g.connect("leave", "both")
    g.connect("both.out0", "call.plain")
    g.connect("both.out1", "squash", "call.squashed")
    g.connect("call", "head", "return")
    g.connect("return.plain", "loss")
    g.connect("return.squashed", "other_loss")
