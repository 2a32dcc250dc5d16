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
    lambda c, at, p, a: np.asarray(a[0]).astype(np.float32)[:, None],
    lambda t, at, a, y, d: [None],
    hardware=Recipe.OWN,
    flops="moves",
)
PRIMITIVES["same_int"] = Primitive(
    _float_of,
    lambda c, at, p, a: (a[0] == a[1]).astype(np.float32)[:, None],
    lambda t, at, a, y, d: [None, None],
    hardware=Recipe.OWN,
)


def _dropout_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    need_ints(types, 1)
    if not 0.0 <= attrs["rate"] < 1.0:
        raise ProgramError(f"dropout: the rate must be in [0, 1), got {attrs['rate']}")
    return types[0]


def _dropout(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    x = a[0]
    keep = rng.uniform(a[1:], at["seed"], x.shape[0], x.shape[1]) >= at["rate"]
    return x * keep * x.dtype.type(1.0 / (1.0 - at["rate"]))


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
