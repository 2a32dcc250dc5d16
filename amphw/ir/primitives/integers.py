"""Integers read off payloads or states, and randomness keyed by state."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from amphw.ir import rng
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


def _int_of(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    return ValueType("int", types[0].space, 1)


PRIMITIVES["argmax"] = Primitive(
    _int_of,
    lambda c, at, p, a: a[0].argmax(axis=1),
    lambda t, at, a, y, d: [None],
    hardware=Recipe.SAME,
    flops="reads",
)
PRIMITIVES["above"] = Primitive(
    _int_of,
    lambda c, at, p, a: (a[0][:, 0] > at["threshold"]).astype(np.int64),
    lambda t, at, a, y, d: [None],
    hardware=Recipe.OWN,
)


def _float_of(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    need_ints(types, 0)
    return ValueType("float", types[0].space, 1)


PRIMITIVES["to_float"] = Primitive(
    _float_of,
    lambda c, at, p, a: np.asarray(a[0]).astype(c.dtype)[:, None],
    lambda t, at, a, y, d: [None],
    hardware=Recipe.OWN,
    flops="moves",
)


def _to_int_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    if types[0].kind != "float" or types[0].width != 1:
        raise ProgramError(f"to_int: a column of numbers is needed, found {types[0].kind} [{types[0].width}]")
    return ValueType("int", types[0].space, 1)


LARGEST_WHOLE = 2**24
"""Up to this magnitude every integer is a number of 32 bits, so that one may travel as a number."""


def _to_int(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    x = a[0][:, 0]
    with np.errstate(invalid="ignore"):
        wrong = ~((np.abs(x) <= LARGEST_WHOLE) & (x == np.rint(x)))
    if wrong.any():
        raise ProgramError(f"to_int: {x[wrong][0]:.7g} is no whole number, as an index is")
    return x.astype(np.int64)


PRIMITIVES["to_int"] = Primitive(
    _to_int_infer,
    _to_int,
    lambda t, at, a, y, d: [None],
    hardware="its numbers do not hold the index of a large table; let an Integer of the instance choose, or "
    "`switch` among branches",
    flops="moves",
)
PRIMITIVES["same_int"] = Primitive(
    _float_of,
    lambda c, at, p, a: (a[0] == a[1]).astype(c.dtype)[:, None],
    lambda t, at, a, y, d: [None, None],
    hardware=Recipe.OWN,
)


def _dropout_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    need_ints(types, 1)
    if not 0.0 <= attrs["rate"] < 1.0:
        raise ProgramError(f"dropout: the rate must be in [0, 1), got {attrs['rate']}")
    return types[0]


def _uniform_infer(attrs: Attrs, types: list[ValueType]) -> ValueType:
    made = ValueType("float", attrs["space"], attrs["width"])
    need_ints([made, *types], 1)
    return made


def _dropout(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    x = a[0]
    keep = rng.uniform(a[1:], at["seed"], x.shape[0], x.shape[1]) >= at["rate"]
    return x * keep * x.dtype.type(1.0 / (1.0 - at["rate"]))


PRIMITIVES["uniform"] = Primitive(
    lambda at, ts, shapes: _uniform_infer(at, ts),
    lambda c, at, p, a: rng.uniform(a, at["seed"], c.total(at["space"]), at["width"]),
    lambda t, at, a, y, d: [None] * len(a),
    hardware="it draws no random numbers; choose with `argmax`",
)
# The mask is a function of the state, so the backward direction draws it again instead of keeping it.
PRIMITIVES["dropout"] = Primitive(
    _dropout_infer,
    _dropout,
    lambda t, at, a, y, d: [
        t.emit("dropout", [d, *(t.forward(k) for k in a[1:])], rate=at["rate"], seed=at["seed"]),
        *[None] * (len(a) - 1),
    ],
    hardware="it draws no random masks; train with dropout 0",
)
