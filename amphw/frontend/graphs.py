"""Sending values along the edges of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from amphw.frontend.functions import maximum, number
from amphw.frontend.gather import REDUCTIONS, reduced
from amphw.frontend.graph_spec import GraphValue, Shape
from amphw.frontend.index import Context, Dim, dims_of, union, without
from amphw.frontend.integer import items_of
from amphw.frontend.layers import Layer
from amphw.frontend.loops import fold
from amphw.frontend.masks import rows_of
from amphw.frontend.source import FrontendError, called
from amphw.frontend.spec import SequenceValue
from amphw.frontend.states import reordered
from amphw.frontend.tensor import Tensor, align, spread, ungroup, unit
from amphw.frontend.tensor import group as group_by
from amphw.frontend.trace import Call, current
from amphw.ir.behaviour import MEMBER
from amphw.ir.expr import ROW, Field
from amphw.ir.grouping import Collect, Distribute, Group
from amphw.ir.nodes import PPT, Node
from amphw.ir.program import Program, ValueType, trace
from amphw.ir.routing import Flatmap, Phi

Message = Callable[[Tensor], Tensor]


def send(
    h: Tensor, graph: GraphValue | SequenceValue, message: Message | Sequence[Message] | None = None
) -> Tensor:
    """For each edge the value of the node that it comes from, through `message` if there is one.

    message: of the node's value, one for all or a list with one for each type of edges. What a node sends is
    the same along all of its edges of one type, so it is computed once for them.
    """
    s, t = _shape_of(graph), current()
    h = _by_node(h, s)
    messages: list[Message] = _messages(message, s.types)
    sent = []
    for kind, function in enumerate(messages):
        degree = s.table("degree", kind, s.v.at)
        (choice,) = t.choice(f"sends_{kind}?", degree > 0, 2, (s.v,))[1:]
        with t.within(choice):
            x = spread(h, union(h.context, (choice,)))
            y = called("a message", function, x)
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
        _same_everywhere(without(y.context, choice), s.v, "sends along its edges")
        context = union(without(y.context, choice, s.v), (s.e,))
        sent.append(Tensor((name, "out"), y.width, context))
    return sent[0] if len(sent) == 1 else _merge(sent)


def _same_everywhere(context: Context, dim: Dim, what: str) -> None:
    """Raise FrontendError where only some nodes, or each in its own time, would do something together."""
    for e in context:
        if dim in e.needs:
            inside = "the loop" if isinstance(e, Dim) else "a branch of the choice"
            whole = "; or let the condition be one of the whole graph, such as a mean over its nodes"
            hint = whole if isinstance(e, Dim) and e.capture else ""
            raise FrontendError(
                f"a node {what} inside of {inside} at {e.place}, which is another for every node; nodes send "
                "and receive outside of it" + hint
            )


def _shape_of(graph: object) -> Shape:
    graph = items_of(graph)
    if not isinstance(graph, GraphValue):
        raise FrontendError(
            f"values are sent along the edges of a graph of the instance, or of several; got {graph!r}"
        )
    return graph._shape


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


def _by_node(h: Tensor, s: Shape) -> Tensor:
    h = ungroup(h) if h.rows is not None else h
    if s.v not in h.context:
        return spread(h, union(h.context, (s.v,)))
    return h


def receive(m: Tensor, graph: GraphValue | SequenceValue, how: str = "sum") -> Tensor:
    """For each node the sum, mean or maximum of the values of the edges that lead to it; 0 without any."""
    s = _shape_of(graph)
    m = ungroup(m) if m.rows is not None else m
    if s.v in m.context:
        raise FrontendError(
            "what a node receives depends on an edge and, beside it, on every node; `take(h, graph.target)` "
            "or `send(h, graph)` brings a node's value to its edges"
        )
    trigger = unit(union(without(m.context, s.e), (s.v,)))
    group = _group(m, s, current().name("receive"), _reduction(m, s, trigger.width, how))
    return _arrive(group, m, trigger)


def _known(how: str) -> str:
    if how not in REDUCTIONS:
        raise FrontendError(f"unknown reduction '{how}'; there are {', '.join(REDUCTIONS)}")
    return how


def _reduction(m: Tensor, s: Shape, opened: int, how: str) -> Program:
    """Of what a node receives; the operand of this width that opens the group is not read."""
    count = s.table("in_degree", s.v.at)
    types: dict[str, int | ValueType] = {"init": opened, "in": ValueType("float", "members", m.width)}
    return trace(lambda _, x: reduced(x, _known(how), count, "rows"), types)


def _group(m: Tensor, s: Shape, name: str, program: Program) -> Group:
    """The values of the edges that lead to a node, gathered there."""
    if s.e not in m.context:
        raise FrontendError("a node receives values of edges; `send` makes them")
    count = s.table("in_degree", s.v.at)
    in_edge = s.table("in_edge", s.table("in_first", s.v.at) + Field(MEMBER))
    map = reordered(dims_of(m.context), drop={s.e: in_edge}, add={s.v: s.table("target", s.e.at)})
    return Group(name, map, s.table("place", s.e.at), count, init=True, program=program)


def _arrive(group: Group, m: Tensor, opened: Tensor) -> Tensor:
    current().emit(group, {"init": opened.port, "in": m.port})
    assert group.program is not None
    return Tensor((group.name, "out"), group.program.outputs_types[0].width, opened.context)


def message_passing(
    h: Tensor,
    graph: GraphValue | SequenceValue,
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
        rows = group_by(_by_node(h, _shape_of(graph)) if h.rows is not graph.nodes else h, graph.nodes)
        return fold(lambda x: update(x, _exchange(x, graph, message, how)), rows, length=steps)
    if form != "messages":
        raise FrontendError(f"a graph is passed over by 'messages' or by 'rows', not by '{form}'")

    def step(x: Tensor) -> Tensor:
        sent = send(x, graph, message)
        fused = _fused(x, sent, graph, update, how)
        return called("an update", update, x, receive(sent, graph, how)) if fused is None else fused

    return fold(step, _by_node(h, _shape_of(graph)), length=steps)


def _fused(h: Tensor, m: Tensor, graph: GraphValue | SequenceValue, layer: object, how: str) -> Tensor | None:
    """The layer inside the Group that receives, so that no message is spent on the sum.

    None for what is more than one program with one result: a function, or a layer with a way of its own to
    be called. Where the layer turns out to be used elsewhere too, `sites.share` takes the two apart again.
    """
    plain = isinstance(layer, Layer) and all(
        getattr(type(layer), method) is getattr(Layer, method) for method in ("__call__", "program")
    )
    if not plain:
        return None
    assert isinstance(layer, Layer)
    s, t = _shape_of(graph), current()
    (opened,), context, _ = align([h], least=union(without(m.context, s.e), (s.v,)))
    name = t.layer_name(layer)
    calls = t.net.calls.setdefault(layer, [])
    node = f"{name}@{len(calls)}"
    count = s.table("in_degree", s.v.at)
    with rows_of(name, context, None, use=len(calls)):
        alone = layer.program([h, m], [h, m], [])
    if len(alone.outputs) > 1:
        return None
    with rows_of(name, context, None, use=len(calls)):
        together = trace(
            lambda p, x, received: layer.function(p, x, reduced(received, _known(how), count, "rows")),
            {"init": h.width, "in": ValueType("float", "members", m.width)},
            {p.name: p for p in alone.params},
        )
    m = spread(m, union(m.context, without(context, s.v)))
    group = _group(m, s, node, together)
    apart = replace(group, program=_reduction(m, s, h.width, how)), PPT(node, alone)
    calls.append(Call(node, context, None, apart))
    return _arrive(group, m, opened)


def _exchange(
    x: Tensor, graph: GraphValue | SequenceValue, message: Message | Sequence[Message], how: str
) -> Tensor:
    """What the rows of a message receive from one another."""
    if how == "max":
        raise FrontendError("the form 'rows' adds up what a node receives; use form='messages' for a maximum")
    s, t = _shape_of(graph), current()
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
