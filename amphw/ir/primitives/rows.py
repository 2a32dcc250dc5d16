"""Rows of a message: segments, gathers and scatters within it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from amphw.ir.errors import ProgramError
from amphw.ir.primitives.base import (
    PRIMITIVES,
    Array,
    Attrs,
    Primitive,
    Recipe,
    RowContext,
    Shapes,
    ValueType,
    need_ints,
)

if TYPE_CHECKING:
    from amphw.ir.derive import Tape
    from amphw.ir.program import Value


def _to_space(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    return ValueType("float", attrs["space"], types[0].width)


def _gather_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    if types[1].kind != "int" or types[1].space != attrs["space"]:
        raise ProgramError(f"gather_rows: the index must be an integer operand in space '{attrs['space']}'")
    return _to_space(attrs, types, shapes)


def _scatter_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    need_ints(types, 1)
    return _to_space(attrs, types, shapes)


def _global_rows(ctx: RowContext, index: Array, index_space: str, target: str, what: str) -> Array:
    message = ctx.message_of_row(index_space)
    counts = np.broadcast_to(np.asarray(ctx.counts[target]), (ctx.n,))
    if index.size and ((index < 0) | (index >= counts[message])).any():
        i = int(np.flatnonzero((index < 0) | (index >= counts[message]))[0])
        raise ProgramError(
            f"{what}: row {int(index[i])} is outside the message's 0..{int(counts[message][i]) - 1}"
        )
    return ctx.starts(target)[message] + index


def _gather(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    return a[0][_global_rows(ctx, a[1], at["space"], at["source"], "gather_rows")]


def _scatter(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    out = np.zeros((ctx.total(at["space"]), a[0].shape[1]), dtype=a[0].dtype)
    np.add.at(out, _global_rows(ctx, a[1], at["source"], at["space"], "scatter_rows"), a[0])
    return out


PRIMITIVES["gather_rows"] = Primitive(
    _gather_infer,
    _gather,
    lambda t, at, a, y, d: [
        t.emit("scatter_rows", [d, t.forward(a[1])], space=at["source"], source=at["space"]),
        None,
    ],
    hardware=Recipe.SAME,
    flops="moves",
)
PRIMITIVES["scatter_rows"] = Primitive(
    _scatter_infer,
    _scatter,
    lambda t, at, a, y, d: [
        t.emit("gather_rows", [d, t.forward(a[1])], space=at["source"], source=at["space"]),
        None,
    ],
    hardware=Recipe.SAME,
    flops="reads",
)


def _segments(ctx: RowContext, at: Attrs, a: Array, reduce: np.ufunc) -> Array:
    """Reduce the rows of each message to one; a message without rows gives 0."""
    out = np.zeros((ctx.n, a.shape[1]), dtype=a.dtype)
    counts = np.broadcast_to(np.asarray(ctx.counts[at["source"]]), (ctx.n,))
    full = counts > 0
    if full.any():
        out[full] = reduce.reduceat(a, ctx.starts(at["source"])[full], axis=0)
    return out


PRIMITIVES["sum_rows"] = Primitive(
    _to_space,
    lambda c, at, p, a: _segments(c, at, a[0], np.add),
    lambda t, at, a, y, d: [t.emit("spread_rows", [d], space=at["source"], source=at["space"])],
    hardware=Recipe.SAME,
    flops="reads",
)
PRIMITIVES["spread_rows"] = Primitive(
    _to_space,
    lambda c, at, p, a: np.repeat(a[0], c.counts[at["space"]], axis=0),
    lambda t, at, a, y, d: [t.emit("sum_rows", [d], space=at["source"], source=at["space"])],
    hardware=Recipe.SAME,
    flops="moves",
)


def _max_rows_vjp(t: Tape, attrs: Attrs, args: list[int], y: int, d: Value) -> list[Value | None]:
    # Equal maxima share the gradient evenly.
    spread = {"space": attrs["source"], "source": attrs["space"]}
    mask = t.emit("equal", [t.forward(args[0]), t.emit("spread_rows", [t.forward(y)], **spread)])
    ties = t.emit(
        "spread_rows", [t.emit("sum_rows", [mask], space=attrs["space"], source=attrs["source"])], **spread
    )
    return [t.emit("spread_rows", [d], **spread) * mask / ties]


PRIMITIVES["max_rows"] = Primitive(
    _to_space,
    lambda c, at, p, a: _segments(c, at, a[0], np.maximum),
    _max_rows_vjp,
    hardware=Recipe.SAME,
    flops="reads",
)
