"""Small graphs for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from amphw.ir.behaviour import StateMap
from amphw.ir.expr import ROW, Attr, Field, lift, table
from amphw.ir.functions import cross_entropy, linear, relu, sum_cols
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema, TableType
from amphw.ir.nodes import NPT, PPT, Concat, Loss, Source
from amphw.ir.program import ParamSpec, Value, trace
from amphw.ir.routing import Cond, Isu, Phi
from amphw.ir.state import StateType, state_field

FEATURES, CLASSES, MAX_BATCH = 3, 4, 8
batch, n = Attr("batch"), Field("n")


def mlp(
    hidden: int = 5, layers: int = 2, classes: int = CLASSES, activation: Callable[[Value], Value] = relu
) -> Graph:
    """x - layer0 - layer1 - ... - head - loss. classes: as many scores; labels are the first few."""
    g = Graph(
        "mlp", Schema({"batch": MAX_BATCH}, {"label": TableType((batch,), lift(CLASSES))}, {"x": FEATURES})
    )
    g.add(Source("x", width=FEATURES, rows=batch, data="x"))
    chain, width = ["x"], FEATURES
    for k in range(layers):
        params: dict[str, tuple[int, ...] | ParamSpec] = {
            "W": (width, hidden),
            "b": ParamSpec("b", (hidden,), "uniform:0.3"),
        }
        g.add(PPT(f"layer{k}", trace(lambda p, x: activation(linear(x, p.W, p.b)), {"x": width}, params)))
        chain.append(f"layer{k}")
        width = hidden
    g.add(PPT("head", trace(lambda p, x: linear(x, p.W), {"x": width}, {"W": (width, classes)})))
    g.add(Loss("loss", trace(lambda y: cross_entropy(y, table("label")(ROW)), {"y": classes})))
    g.connect(*chain, "head", "loss")
    return g


def rows(count: int, size: int = 4, seed: int = 0) -> list[Instance]:
    """Instances of `mlp`: `size` rows of random features each."""
    rng = np.random.default_rng(seed)
    return [
        Instance(
            {"batch": size},
            {"label": rng.integers(0, CLASSES, size)},
            {"x": rng.normal(size=(size, FEATURES)).astype(np.float32)},
            number,
        )
        for number in range(count)
    ]


def lopsided() -> Graph:
    """Of two sources that are joined, the second leaves out n = 2: the join never completes there."""
    four = state_field("n", 4)
    g = Graph("lopsided", Schema())
    g.add(Source("left", StateType((four,))))
    g.add(Source("right", StateType((four,)), where=n.ne(2)))
    g.add(NPT("ones", trace(lambda x: x.builder.emit("to_float", [x.builder.integer(1)]), {"x": 0})))
    g.add(Concat("join", ("a", "b")))
    g.add(Loss("loss", trace(sum_cols, {"y": 1})))
    g.connect("left", "ones", "join.a")
    g.connect("right", "join.b")
    g.connect("join", "loss")
    return g


def scaled(function: Callable[[Value], Value]) -> Graph:
    """x - scale (owns the factor) - loss = function of it, for functions that are not finite everywhere."""
    g = Graph("scaled", Schema(data={"x": 1}))
    g.add(Source("x", width=1, data="x"))
    g.add(PPT("scale", trace(lambda p, x: x @ p.W, {"x": 1}, {"W": ParamSpec("W", (1, 1), "identity")})))
    g.add(Loss("loss", trace(function, {"y": 1})))
    g.connect("x", "scale", "loss")
    return g


def collision() -> Graph:
    """Two states that differ in `n` alone leave through an exit that stores `n`: one too many."""
    g = Graph("collision", Schema())
    g.add(Source("two", StateType((state_field("n", 2),))))
    g.add(NPT("number", trace(lambda x: x.builder.emit("to_float", [x.builder.integer(n)]), {"x": 0})))
    g.add(Isu("forget", StateMap(store=("n",))))
    g.add(Loss("loss", trace(lambda y: y * 2.0, {"y": 1})))
    g.connect("two", "number", "forget", "loss")
    return g


def reads_if_asked() -> Graph:
    """A number, to which an entry of a table of two is added where the attribute `use` is 1.

    The entry's place is the attribute `at`, which may lie outside the table.
    """
    g = Graph("reads", Schema({"use": 1, "at": 9}, {"t": TableType((lift(2),), lift(5))}))
    one = trace(lambda x: x.builder.emit("to_float", [x.builder.integer(1)]), {"x": 0})
    read = trace(
        lambda x: x + x.builder.emit("to_float", [x.builder.integer(table("t")(Attr("at")))]), {"x": 1}
    )
    g.add(Source("start"))
    g.add(NPT("one", one))
    g.add(Cond("which", Attr("use").eq(1)))
    g.add(NPT("read", read))
    g.add(Phi("phi"))
    g.add(Loss("loss", trace(lambda y: y, {"y": 1})))
    g.connect("start", "one", "which")
    g.connect("which.yes", "read", "phi.a")
    g.connect("which.no", "phi.b")
    g.connect("phi", "loss")
    return g
