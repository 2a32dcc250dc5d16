"""Expressions over one state of an instance, one number at a time: what the interpreter computes with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from amphw.ir.behaviour import Behaviour, Emit
from amphw.ir.check import EdgeType
from amphw.ir.errors import InstanceError, StateError
from amphw.ir.expr import ROW, Expr, evaluate
from amphw.ir.in_flight import State
from amphw.ir.instance import Instance
from amphw.ir.primitives import RowContext
from amphw.ir.primitives.base import Product
from amphw.ir.state import Columns, KeySpace, StateType


def one(instance: Instance, fields: Mapping[str, int]) -> Columns:
    """The state with these fields."""
    return Columns(instance, {name: np.array([v], dtype=np.int64) for name, v in fields.items()}, 1)


def scalar(e: Expr, instance: Instance, type: StateType, state: State) -> int:
    """The expression's value in a state."""
    return int(evaluate(e, one(instance, dict(zip(type.names, state, strict=True))))[0])


def expanded(emit: Emit, instance: Instance, base: Mapping[str, int]) -> list[dict[str, int]]:
    """The states that one firing enumerates at an out-port."""
    rows = [dict(base)]
    for f in emit.expand:
        rows = [
            {**row, f.name: value}
            for row in rows
            for value in range(int(evaluate(f.extent, one(instance, row))[0]))
        ]
    return rows


def rows_of(
    b: Behaviour, instance: Instance, state: State, dtype: type, product: Product
) -> tuple[RowContext, list[np.ndarray]]:
    """Of a firing: how many rows each space has, and the integers of its program. dtype: of its numbers.
    product: how they are multiplied by matrices."""
    counts: dict[str, int | np.ndarray] = {s: scalar(e, instance, b.state, state) for s, e in b.spaces}
    context = RowContext(1, counts, dtype, product)
    ints = []
    for e, space in b.program.ints if b.program else ():
        n = context.total(space)
        columns = {f: np.full(n, v, dtype=np.int64) for f, v in zip(b.state.names, state, strict=True)}
        columns[ROW.name] = np.arange(n, dtype=np.int64)
        ints.append(np.array(evaluate(e, Columns(instance, columns, n))))
    return context, ints


def data_rows(
    name: str, rows: int, edge: EdgeType, instance: Instance, state: State, node: str
) -> np.ndarray:
    """The rows of a data array that a source sends with a state. edge: that it sends on."""
    space = KeySpace(edge.state, instance)
    fields = {n: np.array([v]) for n, v in zip(edge.state.names, state, strict=True)}
    before = int(evaluate(edge.rows, space.env())[: space.address(fields, 1)[0]].sum())
    there = instance.data[name]
    if len(there) < before + rows:
        raise InstanceError(
            f"instance {instance.number}: data array '{name}' has {len(there)} rows, node '{node}' sends "
            f"{before + rows} or more"
        )
    return there[before : before + rows]


def check_domain(type: StateType, state: State, instance: Instance, node: str, port: str) -> None:
    """Raises StateError for a state outside the domain of its type. node, port: where it leaves."""
    fields: dict[str, int] = {}
    for f, value in zip(type.fields, state, strict=True):
        extent = int(evaluate(f.extent, one(instance, fields))[0])
        if extent > f.bound:
            raise StateError(
                f"node '{node}' port '{port}': instance {instance.number}: field '{f.name}' has extent "
                f"{f.extent} = {extent}, outside 0..{f.bound}; raise its bound or mend the instance"
            )
        if not 0 <= value < extent:
            raise StateError(
                f"node '{node}' port '{port}': instance {instance.number}: field '{f.name}' = {value} "
                f"is outside 0..{extent - 1}"
            )
        fields[f.name] = value
