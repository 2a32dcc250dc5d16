"""Whether an instance keeps its schema: shapes, ranges and axioms."""

from __future__ import annotations

import numpy as np

from amphw.ir.errors import InstanceError, StateError
from amphw.ir.expr import Expr, evaluate, lift
from amphw.ir.instance import Axiom, Instance, Schema, TableType
from amphw.ir.state import Columns, KeySpace, StateType


def check_instance(schema: Schema, instance: Instance) -> None:
    """Raise InstanceError naming the instance, the table and the entry that breaks the schema."""
    n = instance.number
    for kind, declared, given in (
        ("attribute", schema.attrs, instance.attrs),
        ("table", schema.tables, instance.tables),
        ("data array", schema.data, instance.data),
    ):
        for name in declared:
            if name not in given:
                raise InstanceError(f"instance {n}: the {kind} '{name}' is missing")
        for name in given:
            if name not in declared:
                raise InstanceError(f"instance {n}: the {kind} '{name}' is not declared in the schema")
    for name, high in schema.attrs.items():
        if not isinstance(instance.attrs[name], (int, np.integer)):
            raise InstanceError(
                f"instance {n}: attribute '{name}' = {instance.attrs[name]!r}, expected an integer"
            )
        if not 0 <= instance.attrs[name] <= high:
            raise InstanceError(
                f"instance {n}: attribute '{name}' = {instance.attrs[name]}, allowed is 0..{high}"
            )
    for name, width in schema.data.items():
        shape = instance.data[name].shape
        if len(shape) != 2 or shape[1] != width:
            raise InstanceError(
                f"instance {n}: data array '{name}' has shape {shape}, expected [rows, {width}]"
            )
    for name, declaration in schema.tables.items():
        _check_table(instance, name, declaration)
    for axiom in schema.axioms:
        _check_axiom(instance, axiom)


def _check_table(instance: Instance, name: str, declaration: TableType) -> None:
    n, data = instance.number, instance.tables[name]
    if not np.issubdtype(data.dtype, np.integer):
        raise InstanceError(f"instance {n}: table '{name}' holds {data.dtype}, expected integers")
    wanted = tuple(_scalar(instance, e) for e in declaration.shape)
    if data.shape != wanted:
        shape = ", ".join(map(str, declaration.shape))
        raise InstanceError(
            f"instance {n}: table '{name}' has shape {data.shape}, declared is [{shape}] = {wanted}"
        )
    high = _scalar(instance, declaration.high)
    if data.size and (data.min() < declaration.low or data.max() >= high):
        flat = int(np.flatnonzero((data.ravel() < declaration.low) | (data.ravel() >= high))[0])
        at = ", ".join(str(int(i)) for i in np.unravel_index(flat, data.shape))
        raise InstanceError(
            f"instance {n}: {name}[{at}] = {int(data.ravel()[flat])}, allowed is "
            f"{declaration.low}..{high - 1}"
        )


def _scalar(instance: Instance, e: Expr) -> int:
    return int(evaluate(lift(e), Columns(instance, {}, 1))[0])


def _check_axiom(instance: Instance, axiom: Axiom) -> None:
    try:
        env = KeySpace(StateType(axiom.over), instance).env()
        if axiom.where is not None:
            env = env.subset(np.flatnonzero(evaluate(axiom.where, env)))
        left, right = evaluate(axiom.left, env), evaluate(axiom.right, env)
    except StateError as error:
        raise InstanceError(
            f"instance {instance.number}: axiom '{axiom.name}' cannot be read: {error}"
        ) from None
    wrong = np.flatnonzero(left != right)
    if len(wrong):
        i = int(wrong[0])
        at = {f.name: int(env.columns[f.name][i]) for f in axiom.over}
        raise InstanceError(
            f"instance {instance.number}: axiom '{axiom.name}' fails at {at}: "
            f"{axiom.left} = {int(left[i])}, {axiom.right} = {int(right[i])}"
        )
