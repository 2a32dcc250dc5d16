"""What devices hand out and take in between updates: gradients, and values that somebody else has updated.

Replicas exchange these. Of a table of which instances look up some rows alone, they are rows with their
numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from amphw.ir.update import Applied, NodeParameters

Names = Mapping[str, Collection[str]]
"""Parameters by node."""


@dataclass
class Rows:
    """Some rows of a table. numbers: int32 [count], ascending, each once. values: [count, width]."""

    numbers: np.ndarray
    values: np.ndarray

    @classmethod
    def touched(cls, table: np.ndarray) -> Rows:
        """Those of a gradient in which anything is not zero, as copies."""
        numbers = np.flatnonzero(table.any(axis=1)).astype(np.int32)
        return cls(numbers, table[numbers])

    @classmethod
    def none(cls, width: int, dtype: np.dtype) -> Rows:
        return cls(np.empty(0, np.int32), np.empty((0, width), dtype))

    def into(self, table: np.ndarray) -> None:
        """In place of the table's own rows; the others become zero."""
        table[...] = 0
        table[self.numbers] = self.values


def added(parts: Sequence[Rows]) -> Rows:
    """The sum of several, added up in their order, so that whoever does it ends with the same bits."""
    numbers = np.unique(np.concatenate([p.numbers for p in parts]))
    values = np.zeros((len(numbers), parts[0].values.shape[1]), parts[0].values.dtype)
    for part in parts:
        values[np.searchsorted(numbers, part.numbers)] += part.values
    return Rows(numbers, values)


@dataclass
class NodeGradient:
    """Of one node, by parameter the summed gradient, and the gradient rows that it is over.

    Both go from one replica to another, so that shares may be of different sizes. tables: of those
    parameters that were asked for by rows.
    """

    rows: int
    arrays: dict[str, np.ndarray]
    tables: dict[str, Rows] = field(default_factory=dict)


def gradients_of(parameters: Mapping[str, NodeParameters], by_rows: Names) -> dict[str, NodeGradient]:
    """Copies of what nodes have accumulated."""
    found = {}
    for node, p in parameters.items():
        tables = {name: Rows.touched(p.gradients[name]) for name in by_rows.get(node, ())}
        arrays = {name: g.copy() for name, g in p.gradients.items() if name not in tables}
        found[node] = NodeGradient(p.rows, arrays, tables)
    return found


def tell_all(parameters: Mapping[str, NodeParameters]) -> None:
    """From now on nodes remember what they update with."""
    for p in parameters.values():
        p.tells = True


def take_told(parameters: Mapping[str, NodeParameters]) -> dict[str, Applied]:
    """What nodes have updated with since they were last asked."""
    found = {node: p.told for node, p in parameters.items() if p.told is not None}
    for node in found:
        parameters[node].told = None
    return found


def give_gradients(parameters: Mapping[str, NodeParameters], gradients: Mapping[str, NodeGradient]) -> None:
    """In place of what these nodes have accumulated; what is not given becomes zero."""
    for node, given in gradients.items():
        parameters[node].rows = given.rows
        for name, gradient in parameters[node].gradients.items():
            if name in given.tables:
                given.tables[name].into(gradient)
            else:
                gradient[...] = given.arrays.get(name, 0)


def put_values(
    parameters: Mapping[str, NodeParameters], values: Mapping[str, Mapping[str, np.ndarray | Rows]]
) -> None:
    """In place of what nodes have, all of a parameter or rows of it."""
    for node, given in values.items():
        p = parameters[node]
        for name, new in given.items():
            if isinstance(new, Rows):
                whole = p.values[name].copy()  # whoever holds the version keeps it
                whole[new.numbers] = new.values
                new = whole
            p.values = {**p.values, name: new}


def keep_values(parameters: Mapping[str, NodeParameters], names: Names) -> None:
    """Updates leave these as they are from now on."""
    for node, kept in names.items():
        parameters[node].kept |= set(kept)
