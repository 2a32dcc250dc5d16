"""Elementwise primitives: operands and result of one shape.

A new one is a row here: its meaning in numpy, its derivative, the kernel's text, what circuits do with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from amphw.ir.primitives.base import PRIMITIVES, Array, Attrs, Primitive, Recipe, same
from amphw.ir.primitives.kernel_text import KernelText

if TYPE_CHECKING:
    from amphw.ir.derive import Tape
    from amphw.ir.program import Value


def _normal_cdf(x: Array) -> Array:
    erfc = np.frompyfunc(math.erfc, 1, 1)  # numpy has none
    return (0.5 * erfc(x * -(0.5**0.5)).astype(np.float64)).astype(x.dtype)


Vjp = Callable[["Tape", Attrs, list[int], int, "Value"], list["Value | None"]]

UFUNCS: dict[str, np.ufunc] = {}
"""Those that are one call of numpy, which can write over an operand."""


def _sigmoid(x: Array) -> Array:
    # exp of a non-positive number only, so that it never overflows
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + e), e / (1.0 + e)).astype(x.dtype, copy=False)


def _elementwise(
    name: str,
    f: Callable[..., Array],
    vjp: Vjp,
    kernel: str,
    hardware: Recipe | str = Recipe.SAME,
) -> None:
    PRIMITIVES[name] = Primitive(
        same,
        lambda ctx, attrs, params, args: f(*args),
        vjp,
        hardware=hardware,
        kernel=KernelText(kernel),
    )
    if isinstance(f, np.ufunc):
        UFUNCS[name] = f


def _maximum_vjp(t: Tape, attrs: Attrs, args: list[int], y: int, d: Value) -> list[Value | None]:
    # All of it goes to the larger one; of equals to the second.
    first = d * t.emit("step", [t.forward(args[0]) - t.forward(args[1])])
    return [first, d - first]


def _normal_cdf_vjp(t: Tape, attrs: Attrs, args: list[int], y: int, d: Value) -> list[Value | None]:
    x = t.forward(args[0])
    return [d * t.emit("exp", [x * x * -0.5]) * (2 * math.pi) ** -0.5]


# Kernel texts of exp, sigmoid, tanh and log: greatest relative errors, measured on every 331st float, are
# 8.3e-8 (1.02 units in the last place), 1.4e-7 (2.2), 1.8e-7 (2.4) and 8.2e-8 (0.81). A NaN stays one,
# infinities and saturation come out exact, and results below the least normal float as 0 or a denormal.
_elementwise("add", np.add, lambda t, at, a, y, d: [d, d], "a + b")
_elementwise("sub", np.subtract, lambda t, at, a, y, d: [d, -d], "a - b")
_elementwise(
    "mul",
    np.multiply,
    lambda t, at, a, y, d: [d * t.forward(a[1]), d * t.forward(a[0])],
    "a * b",
    Recipe.OWN,
)
_elementwise(
    "div",
    np.divide,
    lambda t, at, a, y, d: [d / t.forward(a[1]), -(d * t.forward(y) / t.forward(a[1]))],
    "a / b",
    "it has no division; multiply with a constant, or leave the node to the host",
)
_elementwise(
    "maximum",
    np.maximum,
    _maximum_vjp,
    "return ((a > b) | (a != a)) ? a : b;  // NaN if either is",
)
_elementwise(
    "sigmoid",
    _sigmoid,
    lambda t, at, a, y, d: [d * (t.forward(y) * (1.0 - t.forward(y)))],
    "return 1.0f / (1.0f + exp(-a));",
    Recipe.CURVE,
)
_elementwise(
    "tanh",
    np.tanh,
    lambda t, at, a, y, d: [d * (1.0 - t.forward(y) * t.forward(y))],
    """
    // (e^2a - 1) / (e^2a - 1 + 2): unlike 2 sigmoid(2a) - 1 it keeps its relative accuracy near 0.
    const Word sign_bit = as_Word(a) & 0x80000000u;
    Real twice = as_Real(as_Word(a) ^ sign_bit) * 2.0f;
    twice = twice > 20.0f ? all(20.0f) : twice;  // 1 to the last bit from 9.02 on
    const Real shifted = rounded(twice);
    const Real scale = power_of_two(exponent(shifted));
    const Real e = scale * expm1_reduced(remainder(twice, shifted)) + (scale - 1.0f);
    return as_Real(as_Word(e / (e + 2.0f)) | sign_bit);
    """,
    Recipe.CURVE,
)
_elementwise(
    "relu",
    lambda x: np.maximum(x, 0),
    lambda t, at, a, y, d: [d * t.emit("step", [t.forward(y)])],
    "return a < 0.0f ? all(0.0f) : a;  // a NaN stays one",
)
_elementwise(
    "step",
    lambda x: (x > 0).astype(x.dtype),
    lambda t, at, a, y, d: [None],
    "return a > 0.0f ? all(1.0f) : all(0.0f);",
    Recipe.ONES,
)
_elementwise(
    "exp",
    np.exp,
    lambda t, at, a, y, d: [d * t.forward(y)],
    """
    // Beyond these the result is infinite or 0 in any case. A NaN fails both comparisons and passes through.
    Real x = a > 89.0f ? all(89.0f) : a;
    x = x < -104.0f ? all(-104.0f) : x;
    const Real shifted = rounded(x);
    return scaled(expm1_reduced(remainder(x, shifted)) + 1.0f, exponent(shifted));
    """,
    "it has no exponential; a softmax belongs into the loss, which runs on the host",
)
_elementwise(
    "log",
    np.log,
    lambda t, at, a, y, d: [d / t.forward(a[0])],
    """
    const Real y = a < 1.17549435e-38f ? a * 8388608.0f : a;
    // y = mantissa * 2^whole, with the mantissa in [sqrt(1/2), sqrt(2))
    const Int whole = as_Int(as_Word(y) - 0x3f3504f3u) >> 23;
    const Real m = as_Real(as_Word(y) - (as_Word(whole) << 23)) - 1.0f;
    // A small integer as a float, the other way round than in `exponent`.
    const Real number = as_Real(as_Word(whole) + 0x4b400000u) - 12582912.0f;
    const Real n = a < 1.17549435e-38f ? number - 23.0f : number;
    // log(1 + m) = m - m^2 / 2 + m^3 p(m), a minimax fit with a relative error of 5.9e-9
    Real p = m * -7.63449743e-2f + 1.27615780e-1f;
    p = p * m - 1.31601825e-1f;
    p = p * m + 1.42017573e-1f;
    p = p * m - 1.66233569e-1f;
    p = p * m + 2.00012267e-1f;
    p = p * m - 2.50008196e-1f;
    p = p * m + 3.33333313e-1f;
    const Real square = m * m;
    const Real low = p * m * square - square * 0.5f - n * 2.12194440e-4f;
    Real result = (low + m) + n * 0.693359375f;
    result = a == INFINITY ? all(INFINITY) : result;
    result = a == 0.0f ? all(-INFINITY) : result;
    result = a < 0.0f ? all(NAN) : result;
    return a != a ? a : result;
    """,
    "it has no logarithm; what needs one belongs into the loss, which runs on the host",
)
_elementwise(
    "softplus",
    lambda x: np.logaddexp(x, x.dtype.type(0)),
    lambda t, at, a, y, d: [d * t.emit("sigmoid", [t.forward(a[0])])],
    """
    // log(1 + e^a) with an exponential that never overflows. 1 + e is rounded: e / (sum - 1) makes up for it.
    const Real e = exp(-abs(a));
    const Real sum = 1.0f + e;
    const Real low = sum == 1.0f ? e : log(sum) * (e / (sum - 1.0f));
    return relu(a) + low;
    """,
    "it has no logarithm; what needs one belongs into the loss, which runs on the host",
)
_elementwise(
    "normal_cdf",
    _normal_cdf,
    _normal_cdf_vjp,
    """
    // That of -|a| is exp(-a^2 / 2) t q(t), t = 1 / (1 + 0.35 |a|), with a minimax fit q of relative error
    // 3.2e-8 up to |a| = 14; behind that it is 0 in any case.
    const Real size = abs(a);
    const Real t = 1.0f / (1.0f + size * 0.35f);
    Real q = t * -2.91459393e-2f + 1.43971741e-1f;
    q = q * t - 2.55714357e-1f;
    q = q * t + 1.59174263e-1f;
    q = q * t - 2.31099036e-2f;
    q = q * t + 1.05508029e-1f;
    q = q * t + 1.19832858e-1f;
    q = q * t + 1.39861867e-1f;
    q = q * t + 1.39621407e-1f;
    const Real tail = q * t * exp(size * size * -0.5f);
    return a > 0.0f ? 1.0f - tail : tail;
    """,
    "it has no curve of a normal distribution; sigmoid and tanh are those that it has",
)
_elementwise(
    "sqrt",
    np.sqrt,
    lambda t, at, a, y, d: [d * 0.5 / t.forward(y)],
    "square_root(a)",
    "it has no square root",
)
_elementwise(
    "abs",
    np.abs,
    lambda t, at, a, y, d: [d * t.emit("sign", [t.forward(a[0])])],
    "return as_Real(as_Word(a) & 0x7fffffffu);",
)
_elementwise(
    "sign",
    np.sign,
    lambda t, at, a, y, d: [None],
    """
    const Real number = a > 0.0f ? all(1.0f) : a < 0.0f ? all(-1.0f) : all(0.0f);
    return a != a ? a : number;
    """,
    Recipe.ONES,
)
_elementwise(
    "equal",
    lambda a, b: (a == b).astype(a.dtype),
    lambda t, at, a, y, d: [None, None],
    "return a == b ? all(1.0f) : all(0.0f);",
    Recipe.ONES,
)

PRIMITIVES["stop_gradient"] = Primitive(
    same,
    lambda c, at, p, a: a[0],
    lambda t, at, a, y, d: [None],
    hardware=Recipe.NONE_NEEDED,
    flops="moves",
    view=True,
)
PRIMITIVES["scale"] = Primitive(
    same,
    lambda c, at, p, a: a[0] * a[0].dtype.type(at["factor"]),
    lambda t, at, a, y, d: [d * at["factor"]],
    hardware=Recipe.OWN,
    kernel=KernelText("a * f"),
)
PRIMITIVES["shift"] = Primitive(
    same,
    lambda c, at, p, a: a[0] + a[0].dtype.type(at["factor"]),
    lambda t, at, a, y, d: [d],
    hardware=Recipe.OWN,
    kernel=KernelText("a + f"),
)

COLUMNWISE = frozenset(n for n, p in PRIMITIVES.items() if p.kernel is not None) | {"stop_gradient"}
"""Primitives each column of whose result needs that column of their operands alone."""
