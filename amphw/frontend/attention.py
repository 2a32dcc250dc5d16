"""Softmax over columns, positions and edges; attention: for each query the mean of values, weighted by how
well their keys fit it."""

from __future__ import annotations

from typing import Any

from amphw.frontend.functions import stop_gradient
from amphw.frontend.gather import Over, innermost, reduce, take
from amphw.frontend.graph_spec import GraphValue
from amphw.frontend.graphs import receive
from amphw.frontend.index import union, without
from amphw.frontend.integer import items_of
from amphw.frontend.operands import applied, operand
from amphw.frontend.remedies import no_keyword
from amphw.frontend.source import FrontendError
from amphw.frontend.tensor import Constant, Tensor, compute, messages, spread, ungroup
from amphw.frontend.tensor import group as group_by
from amphw.frontend.trace import current
from amphw.frontend.values import Rename, looking, renamed
from amphw.ir import functions as f
from amphw.ir.expr import ROW, Expr, where
from amphw.ir.nodes import NPT
from amphw.ir.program import Value, trace


def attention(
    query: Any,
    key: Any,
    value: Any,
    over: Over = None,
    *,
    heads: int = 1,
    causal: bool = False,
) -> Tensor:
    """softmax(query · key / sqrt(width)) over the positions of `over`, times the values there.

    Scaled dot-product attention (Vaswani et al., NIPS 2017). query, key [width], value [any width]; key and
    value depend on the positions of `over`, by default the innermost ones of the key. The query may depend on
    the same ones, as in self-attention, on others, or on none. heads: equal blocks of columns, each with
    weights of its own. causal: of a query with a position of `over`, positions behind it are not looked at.
    Without any position the result is 0. Queries that have a position of `over` lie in one message with all
    keys and values, unless something in between hangs on their position; others have a message each.
    """
    q, k, v = (operand(x, "attention") for x in (query, key, value))
    if not all(isinstance(x, Tensor) for x in (q, k, v)) or isinstance(k, Constant):
        raise FrontendError("attention is over positions of the model's values, not of those inside a layer")
    if q.width != k.width:
        raise FrontendError(f"attention compares a query of width {q.width} with keys of width {k.width}")
    if heads < 1 or k.width % heads or v.width % heads:
        raise FrontendError(f"widths of {k.width} and {v.width} columns have no {heads} equal heads")
    dim = innermost(k, over)
    k, v = group_by(k, dim), group_by(v, dim)
    own = dim in messages(q)
    if causal and not own:
        raise FrontendError(
            f"a causal attention is of queries at the positions of {dim.name} themselves, which this query "
            "does not depend on"
        )
    around = union(without(messages(q), dim), k.context, v.context, tuple(current().active))
    if own and not any(e is dim or dim in e.needs for e in around):
        q, k, v = (spread(x, around, dim) for x in (group_by(q, dim), k, v))
        return _attended(q, k, v, heads, ROW + 1 if causal else None)
    q = ungroup(q) if q.rows is not None else q
    along = looking(dim, "query") if own else None
    q = renamed(q, along) if along is not None else q
    context = union(q.context, k.context, v.context, tuple(current().active))
    seen = along.new.at + 1 if causal and along is not None else None
    q, k, v = (spread(x, context, dim) for x in (q, k, v))
    made = _attended(q, k, v, heads, seen, alone=True)
    return renamed(made, _back(along)) if along is not None else made


_OVER = "without `over=` it is over the columns, with `over=x.words` along the positions of that sequence"


def softmax(x: Any, over: Over | GraphValue = None, **others: Any) -> Any:
    """exp(x) over its sum: the columns as probabilities, which add up to 1 in each row.

    over: a dimension or a sequence, along whose positions each column adds up to 1 instead: attention; or a
    graph, for values of edges: each column adds up to 1 over the edges that lead to the same node.
    """
    no_keyword("softmax", others, {"dim": _OVER, "axis": _OVER})
    x = operand(x, "softmax")
    if over is not None and not isinstance(x, Tensor):
        raise FrontendError("a softmax over positions is of the model's values, not of those inside a layer")
    graph = items_of(over)
    if isinstance(graph, GraphValue) and (graph is over or graph.edges in messages(x)):
        return _over_edges(x, graph)
    assert not isinstance(over, GraphValue)
    if over is not None:
        powers = applied("exp", f.exp, x - stop_gradient(reduce(x, "max", over)))
        return powers / reduce(powers, "sum", over)
    if x.width == 1:
        raise FrontendError(
            "a softmax is over the columns of each row, and here is one, so that it is always 1; `over=` a "
            "sequence makes it one over positions"
        )
    return applied("softmax", f.softmax, x)


def _over_edges(m: Tensor, graph: GraphValue) -> Tensor:
    """exp(m) over its sum along all edges that lead to the same node: graph attention (Velickovic et al.,
    ICLR 2018)."""
    m = ungroup(m) if m.rows is not None else m
    if graph.edges not in m.context:
        raise FrontendError("a softmax over a graph is of values of its edges; `send` makes them")

    def at_target(x: Tensor) -> Tensor:
        found = take(x, graph.target)
        return ungroup(found) if found.rows is not None else found

    best = at_target(receive(m, graph, "max"))
    powers = compute(lambda x, y: f.exp(x - f.stop_gradient(y)), m, best, stem="exp")
    return powers / at_target(receive(powers, graph, "sum"))


def _back(along: Rename) -> Rename:
    return Rename(along.new, along.old, along.old_of_new, along.new_of_old)


def _attended(q: Tensor, k: Tensor, v: Tensor, heads: int, seen: Expr | None, alone: bool = False) -> Tensor:
    """The node, of rows of k and v and as many of q. seen: how many of the first rows a query looks at; None:
    all. alone: there is one query, the same on all rows."""
    space = "one" if alone else "rows"

    def attended(q: Value, k: Value, v: Value) -> Value:
        if alone:
            # Where there are no rows, there is no first one to gather.
            q = f.sum_rows(q * f.number(q, where(ROW.eq(0), 1, 0)), space)
        return f.attend(q, k, v, heads, None if seen is None else q.builder.integer(seen, space))

    widths = {"q": q.width, "k": k.width, "v": v.width}
    program = trace(attended, widths, spaces={space: 1} if alone else None)
    name = current().name("attention")
    current().emit(NPT(name, program), {"q": q.port, "k": k.port, "v": v.port})
    return Tensor((name, "out"), v.width, q.context, None if alone else q.rows)
