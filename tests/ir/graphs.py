"""Small graphs for the tests of this folder."""

from __future__ import annotations

from amphw.ir.behaviour import MEMBER, StateMap
from amphw.ir.expr import ROW, Attr, Const, Field, lift, table, where
from amphw.ir.functions import argmax, cross_entropy, linear, scatter_rows, sum_cols, sum_rows, take, tanh
from amphw.ir.graph import Graph
from amphw.ir.grouping import Collect, Distribute, Group
from amphw.ir.instance import Instance, Schema, TableType, permutation
from amphw.ir.nodes import NPT, PPT, Concat, Loss, Node, Observe, OwningLoss, Source, Split
from amphw.ir.primitives import ValueType
from amphw.ir.program import ParamSpec, trace
from amphw.ir.routing import Bcast, Cond, Discard, Flatmap, Isu, Phi, Replicate, Ungroup
from amphw.ir.state import FieldType, StateType, state_field

T = state_field("t", Attr("length"), 8)
t = Field("t")


def counting_loop(trips: int = 3, width: int = 2) -> Graph:
    """x -> tanh(x W), `trips` times, then a loss: the smallest graph with a loop and a parameter."""
    k = Field("k")
    g = Graph("counting", Schema(data={"x": width}))
    g.add(Source("x", width=width, data="x"))
    with g.region("loop", "loop", "k"):
        g.add(Isu("enter", StateMap(add=((state_field("k", trips), Const(0)),))))
        g.add(Phi("phi"))
        g.add(PPT("cell", trace(lambda p, x: tanh(x @ p.W), {"x": width}, {"W": (width, width)})))
        g.add(Cond("last", k.eq(trips - 1), drop=()))
        g.add(Isu("next", StateMap(set={"k": k + 1})))
        g.add(Isu("leave", StateMap(drop={"k": None})))
    g.add(Loss("loss", trace(lambda y: cross_entropy(y, 0), {"y": width})))
    g.connect("x", "enter", "phi.a")
    g.connect("phi", "cell", "last")
    g.connect("last.no", "next", "phi.b")
    g.connect("last.yes", "leave", "loss")
    return g


def sequence(states: int = 8) -> Graph:
    """Tokens one by one -> embedding -> loss: several messages an instance, one field."""
    schema = Schema({"length": states}, {"tokens": TableType((Attr("length"),), lift(5))})
    g = Graph("sequence", schema)
    embed = trace(
        lambda p, x: take(p.E, table("tokens")(t)), {"x": 0}, {"E": ParamSpec("E", (5, 3), "normal:1")}
    )
    g.add(Source("tokens", StateType((state_field("t", Attr("length"), states),))))
    g.add(PPT("embed", embed))
    g.add(PPT("head", trace(lambda p, h: linear(h, p.W), {"h": 3}, {"W": (3, 5)})))
    loss = trace(lambda y: (cross_entropy(y, table("tokens")(t)), argmax(y)), {"y": 5})
    g.add(Loss("loss", loss, ("loss", "guess")))
    g.connect("tokens", "embed", "head", "loss")
    return g


def every_family() -> Graph:
    """One node of each family, with every kind of field filled in; not a graph that makes sense."""
    n = Field("n")
    field = state_field("n", Attr("k"), 9)
    schema = Schema(
        {"k": 9},
        {"order": TableType((Attr("k"),), Attr("k")), "place": TableType((Attr("k"),), Attr("k"))},
        {"x": 3},
        (permutation("order", "place", field),),
    )
    g = Graph("every-family", schema)
    members = {"init": 2, "in": ValueType("float", "members", 2)}
    params = {"W": ParamSpec("W", (3, 3), "uniform:0.5"), "b": (3,)}
    observed = trace(lambda x: (x, argmax(x)), {"x": 3})
    nodes: list[Node] = [
        Source("source", StateType((field,)), 3, Attr("k"), "x", n < 2),
        PPT("ppt", trace(lambda p, x: linear(x, p.W, p.b), {"x": 3}, params)),
        NPT("npt", trace(lambda x: scatter_rows(x, ROW, "s"), {"x": 3}, spaces={"s": Attr("k") + n})),
        Concat("concat", ("x", "y", "z")),
        Split("split", (1, 2)),
        Group(
            "group",
            StateMap(drop={"n": table("place")(Field(MEMBER))}),
            table("order")(n),
            Attr("k"),
            True,
            trace(lambda h, x: h + sum_rows(x), members),
        ),
        Distribute("distribute", (("p", ROW * 2, Attr("k")), ("q", ROW, Const(0)))),
        Collect("collect", (("p", ROW), ("q", table("order")(ROW))), Attr("k")),
        Loss("loss", trace(lambda y: (cross_entropy(y, n), argmax(y)), {"y": 3}), ("loss", "guess")),
        Observe("observe", observed, state_field("d", 3)),
    ]
    with g.region("outer", "loop", "n", "m"):
        for node in nodes:
            g.add(node)
        with g.region("inner", "branch"):
            g.add(Cond("cond", where(n.eq(2), 1, n % 2), ("left", "right"), ("n",)))
            g.add(Phi("phi", ("a", "b", "c"), "site"))
            g.add(
                Isu(
                    "isu",
                    StateMap({"n": n + 1}, ((field, n),), {"m": None}, {"n": n - 1}, ("d",)),
                )
            )
    g.add(Bcast("fork", 3))
    g.add(Flatmap("flatmap", FieldType("j", Attr("k"), 9), StateMap(drop={"j": n})))
    g.add(Ungroup("ungroup", FieldType("r", Attr("k"), 9)))
    g.add(Replicate("replicate", "r", 3, n % 3))
    g.add(Discard("discard"))
    g.add(OwningLoss("head", trace(lambda p, x: sum_cols(linear(x, p.W, p.b)), {"x": 3}, params), of="cost"))
    g.connect("source", "ppt", "npt", "concat.x")
    g.connect("concat", "split")
    g.connect("split.out1", "fork")
    g.replicas.append(("ppt", "npt"))
    return g


def features(rows: list[list[float]], number: int = 0) -> Instance:
    """An instance of `counting_loop`."""
    import numpy as np

    return Instance(data={"x": np.array(rows, np.float32)}, number=number)
