"""What the operations of fixed-point programs mean, on int64 arrays [rows, width].

Every place where a wide result becomes 16 bits goes through a `Narrow`, which may count what is lost there.
Wide results may be whole numbers in float64: sums of products come from BLAS, and doubles hold them exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from amphw.ir.primitives import PRIMITIVES, RowContext
from amphw.rtl.fixed.curves import curve
from amphw.rtl.numbers.formats import BITS

Array = np.ndarray
Params = Mapping[str, Array]


LOW, HIGH = -(1 << (BITS - 1)), (1 << (BITS - 1)) - 1


class Narrow(Protocol):
    def __call__(self, exact: Array, shift: int = 0) -> Array:
        """Round and saturate to 16 bits, as `amphw.rtl.numbers.arithmetic.narrow` does; int64."""
        ...


def rounded(exact: Array, shift: int) -> Array:
    """As `rtl.numbers.arithmetic.round_shift`, in a quarter of the time; whole numbers, int64 or float64.

    Scaling by a power of two is exact. Integers beyond 2**53, which float64 does not hold, saturate anyway.
    """
    if not shift:
        return exact
    scaled: Array = exact * 2.0**-shift
    return np.rint(scaled, out=scaled)


def limits(whole: Array) -> tuple[int, int]:
    """Least and greatest; there is at least one. Two passes cost less than to clip what need not be."""
    return int(np.minimum.reduce(whole, axis=None)), int(np.maximum.reduce(whole, axis=None))


def plain(exact: Array, shift: int = 0) -> Array:
    """Narrowing that counts nothing."""
    whole = rounded(exact, shift)
    if whole.size:
        low, high = limits(whole)
        if high > HIGH or low < LOW:
            whole = np.clip(whole, LOW, HIGH)
    return whole.astype(np.int64, copy=False)


def exact_product(a: Array, b: Array) -> Array:
    """a @ b of whole numbers, float64, which holds it: |sum| < 2**53 for 16-bit numbers and 2**22 terms."""
    return a.astype(np.float64, copy=False) @ b.astype(np.float64, copy=False)


Evaluate = Callable[[RowContext, dict[str, Any], Params, list[Array], Narrow], Array]

OPERATIONS: dict[str, Evaluate] = {}
"""(rows of the frame, attributes, visible weights (int64 or float64), operands, narrow) -> the result."""


def operation(name: str) -> Callable[[Evaluate], Evaluate]:
    def register(f: Evaluate) -> Evaluate:
        OPERATIONS[name] = f
        return f

    return register


def _rearranged(name: str) -> Evaluate:
    """Primitives that move numbers and make none: the definition serves as it is."""
    return lambda ctx, at, p, a, fit: PRIMITIVES[name].evaluate(ctx, at, p, a)


for _name in (
    "concat", "slice", "pad", "spread_cols", "max_cols", "pick", "place", "gather_rows", "spread_rows",
    "max_rows", "relu", "maximum", "argmax",
):  # fmt: skip
    OPERATIONS[_name] = _rearranged(_name)

OPERATIONS["step"] = lambda ctx, at, p, a, fit: np.where(a[0] > 0, at["constant"], 0)
OPERATIONS["sign"] = lambda ctx, at, p, a, fit: np.sign(a[0]) * at["constant"]
OPERATIONS["equal"] = lambda ctx, at, p, a, fit: np.where(a[0] == a[1], at["constant"], 0)
OPERATIONS["same"] = lambda ctx, at, p, a, fit: np.where(a[0] == a[1], at["constant"], 0)[:, None]
OPERATIONS["affine_t"] = lambda ctx, at, p, a, fit: fit(exact_product(a[0], p[at["param"]].T), at["shift"])
OPERATIONS["take"] = lambda ctx, at, p, a, fit: fit(PRIMITIVES["take"].evaluate(ctx, at, p, a), at["shift"])
OPERATIONS["add"] = lambda ctx, at, p, a, fit: fit(a[0] + a[1])
OPERATIONS["sub"] = lambda ctx, at, p, a, fit: fit(a[0] - a[1])
OPERATIONS["mul"] = lambda ctx, at, p, a, fit: fit(a[0] * a[1], at["shift"])
OPERATIONS["scale"] = lambda ctx, at, p, a, fit: fit(a[0] * at["constant"], at["shift"])
OPERATIONS["shift"] = lambda ctx, at, p, a, fit: fit(a[0] + at["constant"])
OPERATIONS["abs"] = lambda ctx, at, p, a, fit: fit(np.abs(a[0]))
OPERATIONS["gate"] = lambda ctx, at, p, a, fit: np.where(a[1] > 0, a[0], 0)
OPERATIONS["above"] = lambda ctx, at, p, a, fit: (a[0][:, 0] > at["constant"]).astype(np.int64)
OPERATIONS["lift"] = lambda ctx, at, p, a, fit: fit(np.asarray(a[0], np.int64)[:, None] << at["shift"])
OPERATIONS["curve"] = lambda ctx, at, p, a, fit: curve(at["curve"], at["frac"]).evaluate(a[0])
OPERATIONS["sum_cols"] = lambda ctx, at, p, a, fit: fit(a[0].sum(axis=1, keepdims=True))
OPERATIONS["fill"] = lambda ctx, at, p, a, fit: np.full(
    (ctx.total(at["space"]), at["width"]), at["constant"], np.int64
)


@operation("affine")
def _affine(ctx: RowContext, at: dict[str, Any], p: Params, a: list[Array], fit: Narrow) -> Array:
    """A product with a weight and a bias, rounded once; each of them may be missing."""
    bias = p[at["bias"]] * 2.0 ** at["lift"] if at["bias"] is not None else None
    if not a:
        assert bias is not None
        return fit(np.broadcast_to(bias, (ctx.total(at["space"]), len(bias))), at["shift"])
    total = exact_product(a[0], p[at["param"]])
    if bias is not None:
        total += bias
    return fit(total, at["shift"])


@operation("sum_rows")
def _sum_rows(ctx: RowContext, at: dict[str, Any], p: Params, a: list[Array], fit: Narrow) -> Array:
    return fit(PRIMITIVES["sum_rows"].evaluate(ctx, at, p, a))


@operation("scatter_rows")
def _scatter_rows(ctx: RowContext, at: dict[str, Any], p: Params, a: list[Array], fit: Narrow) -> Array:
    """Rows added one after another, each sum saturated: memory holds 16 bits in between."""
    scatter = PRIMITIVES["scatter_rows"].evaluate
    fitted = fit(scatter(ctx, at, p, a))
    if not a[0].size or scatter(ctx, at, p, [np.abs(a[0]), a[1]]).max() <= HIGH:
        return fitted  # nothing can saturate in between
    out = np.zeros((ctx.total(at["space"]), a[0].shape[1]), np.int64)
    starts = ctx.starts(at["space"])[ctx.message_of_row(at["source"])]
    for row, to in zip(a[0], starts + a[1], strict=True):
        out[to] = plain(out[to] + row)
    return out
