"""A network that decides its own control flow: of two experts, a gate picks one for each row.

    rows() - ungroup(b) - encode - group - mix - ungroup(b) - gate - observe(b, expert) - split
    split -- x - expert? - expert0, expert1 - merge - times - loss
         `-- p - pick p[expert] ----------------------'

Observe writes argmax of the gate's probabilities into the field `expert`; a Cond on it sends the row to
one expert. Multiplying the expert's answer by the probability of the choice is what gives the gate a
gradient (Shazeer et al., ICLR 2017, top-1). The first Ungroup and Group take the rows of one message
apart and put them together again; the group has an init operand, so a message without rows passes too.
Nothing else in the state determines the decision, so no static check could let it be dropped. Either it stays
in the state up to the loss, or an exit behind `times` stores it for the way back.
"""

from __future__ import annotations

import numpy as np

from amphw.ir.behaviour import MEMBER, StateMap
from amphw.ir.expr import Attr, Field, lift, table
from amphw.ir.functions import (
    argmax,
    columns,
    concat,
    cross_entropy,
    linear,
    pick,
    same,
    softmax,
    tanh,
)
from amphw.ir.graph import Graph
from amphw.ir.grouping import Group
from amphw.ir.instance import Instance, Schema, TableType
from amphw.ir.nodes import NPT, PPT, Loss, Observe, Source, Split
from amphw.ir.program import Params, ParamSpec, Program, Value, trace
from amphw.ir.routing import Bcast, Cond, Isu, Phi, Ungroup
from amphw.ir.state import state_field

FEATURES, CLASSES, EXPERTS = 3, 4, 2
MAX_BATCH = 8

b, expert, batch = Field("b"), Field("expert"), Attr("batch")
B = state_field("b", batch, MAX_BATCH)
EXPERT = state_field("expert", EXPERTS)


def build(hidden: int = 5, exit: str = "keep") -> Graph:
    """exit: what becomes of the decision behind the experts, "keep" or "store"."""
    schema = Schema({"batch": MAX_BATCH}, {"label": TableType((batch,), lift(CLASSES))}, {"x": FEATURES})
    g = Graph(f"decide-{exit}", schema)
    _encode(g, hidden)
    with g.region("rows-again", "map", "b"):
        g.add(Ungroup("apart_again", B))
        with g.region("choice", "branch", "expert"):
            _choose(g, hidden)
            if exit == "keep":
                _loss(g)
            else:
                g.add(Isu("forget", StateMap(store=("expert",))))
        if exit == "store":
            _loss(g)
    g.connect("mix", "apart_again", "gate")
    g.connect("times", *(["forget"] if exit == "store" else []), "loss")
    return g


def instance(rng: np.random.Generator, batch: int = 4) -> Instance:
    """`batch` rows of random features; 0 is allowed."""
    x = rng.normal(size=(batch, FEATURES)).astype(np.float32)
    return Instance({"batch": batch}, {"label": rng.integers(0, CLASSES, batch)}, {"x": x})


def _affine(inputs: int, outputs: int, *, squash: bool = False) -> Program:
    def function(p: Params, x: Value) -> Value:
        y = linear(x, p.W, p.b)
        return tanh(y) if squash else y

    params: dict[str, tuple[int, ...] | ParamSpec] = {
        "W": (inputs, outputs),
        "b": ParamSpec("b", (outputs,), "uniform:0.3"),
    }
    return trace(function, {"x": inputs}, params)


def _encode(g: Graph, hidden: int) -> None:
    g.add(Source("rows", width=FEATURES, rows=batch, data="x"))
    g.add(Bcast("fork"))
    g.add(NPT("empty", trace(lambda x: columns(x, 0, 1) * 0.0, {"x": FEATURES})))
    with g.region("rows-apart", "map", "b"):
        g.add(Ungroup("apart", B))
        g.add(PPT("encode", _affine(FEATURES, hidden, squash=True)))
        # The init operand only says that the group exists: without it a batch of 0 rows never completes.
        together = StateMap(drop={"b": Field(MEMBER)})
        g.add(Group("together", together, b, batch, init=True))
    g.add(PPT("mix", _affine(hidden, hidden, squash=True)))
    g.connect("rows", "fork")
    g.connect("fork.out0", "apart", "encode", "together.in")
    g.connect("fork.out1", "empty", "together.init")
    g.connect("together", "mix")


def _gate(hidden: int) -> Program:
    params: dict[str, tuple[int, ...] | ParamSpec] = {
        "W": (hidden, EXPERTS),
        "b": ParamSpec("b", (EXPERTS,), "uniform:0.1"),
    }
    return trace(lambda p, x: concat(x, softmax(linear(x, p.W, p.b))), {"x": hidden}, params)


def _choose(g: Graph, hidden: int) -> None:
    def observe(x: Value) -> tuple[Value, Value]:
        return x, argmax(columns(x, hidden, EXPERTS))

    g.add(PPT("gate", _gate(hidden)))
    g.add(Observe("choose", trace(observe, {"x": hidden + EXPERTS}), EXPERT))
    g.add(Split("parts", (hidden, EXPERTS)))
    g.add(Cond("expert?", expert, ("first", "second")))
    g.add(PPT("expert0", _affine(hidden, CLASSES)))
    g.add(PPT("expert1", _affine(hidden, CLASSES)))
    g.add(Phi("merge", ("first", "second")))
    g.add(NPT("chosen", trace(lambda p: pick(p, expert), {"p": EXPERTS})))
    g.add(NPT("times", trace(lambda y, p: y * p, {"y": CLASSES, "p": 1})))
    g.connect("gate", "choose", "parts")
    g.connect("parts.out0", "expert?")
    g.connect("expert?.first", "expert0", "merge.first")
    g.connect("expert?.second", "expert1", "merge.second")
    g.connect("merge", "times.y")
    g.connect("parts.out1", "chosen", "times.p")


def _loss(g: Graph) -> None:
    def loss(y: Value) -> tuple[Value, Value]:
        label = table("label")(b)
        return cross_entropy(y, label), same(argmax(y), label)

    g.add(Loss("loss", trace(loss, {"y": CLASSES}), ("loss", "accuracy")))
