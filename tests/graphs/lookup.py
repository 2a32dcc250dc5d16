"""Nodes that look up a row of their own table and multiply it with their own weight.

    start - h0 - enter - phi(t) - cell - last? - yes - leave - behind - alone - large - loss
                            `--- t + 1 --- no ---'

The looked-up row is in front of the other columns (cell), behind them (behind, without a bias), or all that
is multiplied (alone, where the row is the maximum's of what arrives). A device may multiply a whole table in
advance, the large one excepted.
"""

from __future__ import annotations

import numpy as np

from amphw.ir.behaviour import StateMap
from amphw.ir.expr import ROW, Attr, Const, Field, lift, table
from amphw.ir.functions import argmax, concat, cross_entropy, linear, row_param, take, tanh, zeros
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema, TableType
from amphw.ir.nodes import NPT, PPT, Loss, Source
from amphw.ir.program import Params, ParamSpec, Value, trace
from amphw.ir.routing import Cond, Isu, Phi
from amphw.ir.state import state_field

VOCABULARY, CLASSES, LARGE = 7, 4, 65
EMBEDDING, HIDDEN = 3, 5
MAX_LENGTH, MAX_BATCH = 6, 8

t, length, batch = Field("t"), Attr("length"), Attr("batch")
T = state_field("t", length, MAX_LENGTH)


def build() -> Graph:
    tokens = TableType((length, batch), lift(VOCABULARY))
    schema = Schema(
        {"length": MAX_LENGTH, "batch": MAX_BATCH},
        {"tokens": tokens, "label": TableType((batch,), lift(CLASSES))},
    )
    g = Graph("look-up", schema)
    g.add(Source("start", rows=batch))
    g.add(NPT("h0", trace(lambda x: zeros(x, HIDDEN), {"x": 0})))
    with g.region("time", "loop", "t"):
        g.add(Isu("enter", StateMap(add=((T, Const(0)),))))
        g.add(Phi("phi"))
        g.add(_node("cell", _cell))
        g.add(Cond("last", t.eq(length - 1)))
        g.add(Isu("next", StateMap(set={"t": t + 1})))
        g.add(Isu("leave", StateMap(drop={"t": None})))
    g.add(_node("behind", _behind, bias=False))
    g.add(_node("alone", _alone, W=(EMBEDDING, HIDDEN), U=(HIDDEN, HIDDEN)))
    g.add(_node("large", _large, E=(LARGE, EMBEDDING), W=(EMBEDDING + HIDDEN, CLASSES), b=(CLASSES,)))
    g.add(Loss("loss", trace(lambda y: cross_entropy(y, table("label")(ROW)), {"y": CLASSES})))
    g.connect("start", "h0", "enter", "phi.a")
    g.connect("phi", "cell", "last")
    g.connect("last.no", "next", "phi.b")
    g.connect("last.yes", "leave", "behind", "alone", "large", "loss")
    return g


def instance(rng: np.random.Generator, length: int | None = None, batch: int = 1) -> Instance:
    """A random instance: tokens [length, batch], a label a row."""
    n = int(rng.integers(1, MAX_LENGTH + 1)) if length is None else length
    return Instance(
        {"length": n, "batch": batch},
        {"tokens": rng.integers(0, VOCABULARY, (n, batch)), "label": rng.integers(0, CLASSES, (batch,))},
    )


def _node(name: str, function, bias: bool = True, **shapes: tuple[int, ...]) -> PPT:  # type: ignore[no-untyped-def]
    wanted = {"E": (VOCABULARY, EMBEDDING), "W": (EMBEDDING + HIDDEN, HIDDEN), "b": (HIDDEN,), **shapes}
    params = {k: ParamSpec(k, s, "normal:0.5") for k, s in wanted.items() if k != "b" or bias}
    return PPT(name, trace(function, {"h": HIDDEN}, params))


def _cell(p: Params, h: Value) -> Value:
    return tanh(linear(concat(take(p.E, table("tokens")(t, ROW)), h), p.W, p.b))


def _behind(p: Params, h: Value) -> Value:
    return tanh(concat(h, take(p.E, table("tokens")(0, ROW))) @ p.W)


def _alone(p: Params, h: Value) -> Value:
    return tanh(take(p.E, argmax(h)) @ p.W + h @ p.U + row_param(p.b))


def _large(p: Params, h: Value) -> Value:
    return linear(concat(take(p.E, table("tokens")(length - 1, ROW)), h), p.W, p.b)
