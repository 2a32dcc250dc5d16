"""What nodes read of an instance."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from amphw.ir.expr import Expr, tables_of
from amphw.ir.graph import Graph
from amphw.ir.nodes import Loss, Node, Observe, Source
from amphw.ir.told import predicted


def answers(graph: Graph) -> frozenset[str]:
    """Names of the tables and data that nothing but figures depend on: what a model is to predict.

    A prediction does not depend on them, so an instance to predict for may have anything in them. What a
    node computes with may be an answer where figures alone are made of its values. What decides where a
    message goes, or how many there are, is none, wherever it goes.
    """
    schema = graph.schema
    predicting = _predicting(graph)
    read = set[str]()
    for expression in _expressions((list(schema.tables.values()), schema.axioms)):
        read |= tables_of(expression)
    for name, node in graph.nodes.items():
        if name in predicting and isinstance(node, Source) and node.data is not None:
            read.add(node.data)
        for expression in _read(node, name in predicting):
            read |= tables_of(expression)
    return frozenset((schema.tables.keys() | schema.data.keys()) - read)


def _predicting(graph: Graph) -> set[str]:
    """The nodes that predictions depend on, or where messages go; losses are not among them."""
    waiting = list[str]()
    for name, node in graph.nodes.items():
        if isinstance(node, Loss):
            read = node.program.read_by(predicted(node))
            ports = [port for i, (port, _) in enumerate(node.program.inputs) if i in read]
            waiting += [graph.sources_of[(name, port)][0] for port in ports]
        elif isinstance(node, Observe):
            waiting.append(name)
    found = set[str]()
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += [graph.sources_of[(name, port)][0] for port in graph.nodes[name].ins]
    return found


def _read(node: Node, predicting: bool) -> Iterator[Expr]:
    """The expressions of a node that predictions depend on: all but those that others compute with."""
    program = getattr(node, "program", None)
    if program is None or predicting:
        yield from _expressions(node)
        return
    fields = dataclasses.fields(node)  # type: ignore[arg-type]  # all families are dataclasses
    yield from _expressions([getattr(node, f.name) for f in fields if f.name != "program"])
    yield from _expressions(program.spaces)
    if isinstance(node, Loss):
        kept = program.read_by(predicted(node))
        yield from (e for i, (e, _) in enumerate(program.ints, len(program.inputs)) if i in kept)


def _expressions(part: Any) -> Iterator[Expr]:
    """All that a part of a graph's definition has in it, at any depth."""
    if isinstance(part, Expr):
        yield part
    elif isinstance(part, Mapping):
        for value in part.values():
            yield from _expressions(value)
    elif isinstance(part, list | tuple):
        for value in part:
            yield from _expressions(value)
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        for field in dataclasses.fields(part):
            yield from _expressions(getattr(part, field.name))
