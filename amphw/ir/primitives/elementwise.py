"""Elementwise primitives: operands and result of one shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from amphw.ir.primitives.base import (
    PRIMITIVES,
    Array,
    Attrs,
    Primitive,
    same,
)

if TYPE_CHECKING:
    from amphw.ir.derive import Tape
    from amphw.ir.program import Value


def _sigmoid(x: Array) -> Array:
    # exp of a non-positive number only, so that it never overflows
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + e), e / (1.0 + e)).astype(x.dtype, copy=False)


def _elementwise(
    name: str,
    f: Callable[..., Array],
    vjp: Callable[[Tape, Attrs, list[int], int, Value], list[Value | None]] | None,
) -> None:
    PRIMITIVES[name] = Primitive(same, lambda ctx, attrs, params, args: f(*args), vjp)


def _maximum_vjp(t: Tape, attrs: Attrs, args: list[int], y: int, d: Value) -> list[Value | None]:
    # All of it goes to the larger one; of equals to the second.
    first = d * t.emit("step", [t.forward(args[0]) - t.forward(args[1])])
    return [first, d - first]


_elementwise("add", np.add, lambda t, at, a, y, d: [d, d])
_elementwise("sub", np.subtract, lambda t, at, a, y, d: [d, -d])
_elementwise("mul", np.multiply, lambda t, at, a, y, d: [d * t.forward(a[1]), d * t.forward(a[0])])
_elementwise(
    "div",
    np.divide,
    lambda t, at, a, y, d: [d / t.forward(a[1]), -(d * t.forward(y) / t.forward(a[1]))],
)
_elementwise("maximum", np.maximum, _maximum_vjp)
_elementwise("sigmoid", _sigmoid, lambda t, at, a, y, d: [d * (t.forward(y) * (1.0 - t.forward(y)))])
_elementwise("tanh", np.tanh, lambda t, at, a, y, d: [d * (1.0 - t.forward(y) * t.forward(y))])
_elementwise("relu", lambda x: np.maximum(x, 0), lambda t, at, a, y, d: [d * t.emit("step", [t.forward(y)])])
_elementwise("step", lambda x: (x > 0).astype(x.dtype), lambda t, at, a, y, d: [None])
_elementwise("exp", np.exp, lambda t, at, a, y, d: [d * t.forward(y)])
_elementwise("log", np.log, lambda t, at, a, y, d: [d / t.forward(a[0])])
_elementwise("sqrt", np.sqrt, lambda t, at, a, y, d: [d * 0.5 / t.forward(y)])
_elementwise("abs", np.abs, lambda t, at, a, y, d: [d * t.emit("sign", [t.forward(a[0])])])
_elementwise("sign", np.sign, lambda t, at, a, y, d: [None])
_elementwise("equal", lambda a, b: (a == b).astype(a.dtype), lambda t, at, a, y, d: [None, None])
_elementwise("stop_gradient", lambda x: x, lambda t, at, a, y, d: [None])

PRIMITIVES["scale"] = Primitive(
    same, lambda c, at, p, a: a[0] * a[0].dtype.type(at["factor"]), lambda t, at, a, y, d: [d * at["factor"]]
)
PRIMITIVES["shift"] = Primitive(
    same, lambda c, at, p, a: a[0] + a[0].dtype.type(at["factor"]), lambda t, at, a, y, d: [d]
)
