"""What sinks say, in the order in which an instance was given.

The edges of a graph are numbered by type and source, so that those of a node lie together; an instance says
which number each of them had (`Instance.given`). What a sink says has a row for each of its states, in the
order of these numbers, and is told in that of the instance.
"""

from __future__ import annotations

import numpy as np

from amphw.ir.check import infer
from amphw.ir.expr import ROW, Attr, Const, Expr, Table, evaluate
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.nodes import Loss
from amphw.ir.state import MOST_STATES, FieldType, KeySpace, StateType

Outputs = dict[str, dict[str, np.ndarray]]
"""By sink and name [rows, width]."""


class GivenOrder:
    """Puts the rows of what a graph's sinks say into the order of the instance."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._states: dict[str, StateType] = {}

    def of(self, instance: Instance, outputs: Outputs) -> Outputs:
        """The same rows, in the order of the instance. Where some states are not there, as in one branch of
        a choice, nobody can tell which they were, and their order stays as it is."""
        if not instance.given:
            return outputs
        self._states = self._states or _states(self._graph)
        return {node: self._told(instance, self._states[node], said) for node, said in outputs.items()}

    def _told(
        self, instance: Instance, state: StateType, said: dict[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        if not any(_count(f.extent) in instance.given for f in state.fields):
            return said
        keys = KeySpace(state, instance)
        given = [_number(instance, keys, f) for f in state.fields]
        order = np.lexsort(given[::-1])
        return {name: rows[order] if len(rows) == keys.size else rows for name, rows in said.items()}


def _states(graph: Graph) -> dict[str, StateType]:
    """By sink; what has several rows a message has a field more, for these."""
    typed, found = infer(graph), {}
    for name, node in graph.nodes.items():
        if isinstance(node, Loss):
            edge = typed.into(name, node.ins[0])
            rows = () if edge.rows == Const(1) else (FieldType(ROW.name, edge.rows, MOST_STATES),)
            found[name] = StateType((*edge.state.fields, *rows))
    return found


def _count(extent: Expr) -> str:
    """The attribute or the table that says how many there are."""
    return extent.name if isinstance(extent, Attr | Table) else ""


def _number(instance: Instance, keys: KeySpace, field: FieldType) -> np.ndarray:
    """Of each state, the value of a field, or which number it had where the instance was given."""
    value, name = keys.columns[field.name], _count(field.extent)
    if name not in instance.given:
        return value
    if isinstance(field.extent, Table):  # those of several graphs lie one behind the other
        (item,) = (evaluate(i, keys.env()) for i in field.extent.index)
        counts = instance.tables[name]
        value = value + (np.cumsum(counts) - counts)[item]
    return instance.given[name][value]
