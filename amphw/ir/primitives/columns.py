"""Primitives that rearrange or reduce columns, among them those that an integer operand chooses."""

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
    checked,
    need_ints,
    same,
    width_of,
)

if TYPE_CHECKING:
    from amphw.ir.derive import Tape
    from amphw.ir.program import Value


def _concat_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    for t in types:
        same(attrs, [ValueType(t.kind, t.space, 1), ValueType("float", types[0].space, 1)], shapes)
    return ValueType("float", types[0].space, sum(t.width for t in types))


def _concat_vjp(t: Tape, attrs: Attrs, args: list[int], y: int, d: Value) -> list[Value | None]:
    out: list[Value | None] = []
    start = 0
    for a in args:
        width = t.type_of(a).width
        out.append(t.emit("slice", [d], start=start, width=width))
        start += width
    return out


PRIMITIVES["concat"] = Primitive(
    _concat_infer,
    lambda c, at, p, a: np.concatenate(a, axis=1),
    _concat_vjp,
    hardware=Recipe.SAME,
    flops="moves",
)


def _slice_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    start, width, have = attrs["start"], attrs["width"], types[0].width
    if start < 0 or width < 1 or start + width > have:
        raise ProgramError(f"slice {start}:{start + width} is outside the operand's width {have}")
    return ValueType("float", types[0].space, width)


def _pad(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    out = np.zeros((a[0].shape[0], at["width"]), dtype=a[0].dtype)
    out[:, at["start"] : at["start"] + a[0].shape[1]] = a[0]
    return out


PRIMITIVES["slice"] = Primitive(
    _slice_infer,
    lambda c, at, p, a: a[0][:, at["start"] : at["start"] + at["width"]],
    lambda t, at, a, y, d: [t.emit("pad", [d], start=at["start"], width=t.type_of(a[0]).width)],
    hardware=Recipe.SAME,
    flops="moves",
    view=True,
)
PRIMITIVES["pad"] = Primitive(
    width_of(lambda at, ts: at["width"]),
    _pad,
    lambda t, at, a, y, d: [t.emit("slice", [d], start=at["start"], width=t.type_of(a[0]).width)],
    hardware=Recipe.SAME,
    flops="moves",
)
PRIMITIVES["sum_cols"] = Primitive(
    width_of(lambda at, ts: 1),
    lambda c, at, p, a: a[0].sum(axis=1, keepdims=True),
    lambda t, at, a, y, d: [t.emit("spread_cols", [d], width=t.type_of(a[0]).width)],
    hardware=Recipe.SAME,
    flops="reads",
)
PRIMITIVES["spread_cols"] = Primitive(
    width_of(lambda at, ts: at["width"]),
    lambda c, at, p, a: np.repeat(a[0], at["width"], axis=1),
    lambda t, at, a, y, d: [t.emit("sum_cols", [d])],
    hardware=Recipe.SAME,
    flops="moves",
)
# The maximum is only used to shift a softmax, where its gradient cancels; so it has none.
PRIMITIVES["max_cols"] = Primitive(
    width_of(lambda at, ts: 1),
    lambda c, at, p, a: a[0].max(axis=1, keepdims=True),
    lambda t, at, a, y, d: [None],
    hardware=Recipe.SAME,
    flops="reads",
)


def _pick_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    need_ints(types, 1)
    return ValueType("float", types[0].space, 1)


def _place_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    need_ints(types, 1)
    return ValueType("float", types[0].space, attrs["width"])


def _place(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    out = np.zeros((a[0].shape[0], at["width"]), dtype=a[0].dtype)
    np.put_along_axis(out, checked(a[1], at["width"], "place")[:, None], a[0], axis=1)
    return out


PRIMITIVES["pick"] = Primitive(
    _pick_infer,
    lambda c, at, p, a: np.take_along_axis(a[0], checked(a[1], a[0].shape[1], "pick")[:, None], axis=1),
    lambda t, at, a, y, d: [t.emit("place", [d, t.forward(a[1])], width=t.type_of(a[0]).width), None],
    hardware=Recipe.SAME,
    flops="moves",
)
PRIMITIVES["place"] = Primitive(
    _place_infer,
    _place,
    lambda t, at, a, y, d: [t.emit("pick", [d, t.forward(a[1])]), None],
    hardware=Recipe.SAME,
    flops="moves",
)
