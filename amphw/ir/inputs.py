"""What nodes read of an instance."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from amphw.ir.expr import Expr, tables_of
from amphw.ir.graph import Graph
from amphw.ir.nodes import Loss, Source


def answers(graph: Graph) -> frozenset[str]:
    """Names of the tables and data that losses alone read: what a model is to predict.

    A prediction does not depend on them, so an instance to predict for may have anything in them.
    """
    schema = graph.schema
    ends = {name for name, node in graph.nodes.items() if isinstance(node, Loss)}
    read = set[str]()
    for expression in _expressions((list(schema.tables.values()), schema.axioms)):
        read |= tables_of(expression)
    for name, node in graph.nodes.items():
        if isinstance(node, Source) and node.data is not None and set(graph.successors(name)) - ends:
            read.add(node.data)
        if name not in ends:
            for expression in _expressions(node):
                read |= tables_of(expression)
    return frozenset((schema.tables.keys() | schema.data.keys()) - read)


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
