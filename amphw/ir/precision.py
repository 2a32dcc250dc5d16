"""What a matrix product is taken of: the setting `device.precision`, in the one place that defines it.

float32: numbers as they are. bf16: both sides of every product of a program with a matrix, and of every
product that makes a matrix's gradient, are rounded to bfloat16 (8 significant bits, the exponents of float32)
first; what is multiplied is added up in float32, and everything else stays as it is: parameters, the
optimiser's arrays, states, gradients, biases and their sums, rows that are looked up. So x @ W + b is
rounded(x) @ rounded(W) + b, its gradients are rounded(dz) @ rounded(W).T, rounded(x).T @ rounded(dz) and the
sum of dz.

Executors agree on this within what float32 leaves open: the order of additions, and whether numbers below
2^-126 are zero. Where a number lies between two of bfloat16 and float32 cannot tell which is nearer, they may
take either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from amphw.ir.errors import AmphwError
from amphw.ir.primitives.base import Array, Product, product


def rounded(a: Array) -> Array:
    """The nearest numbers of bfloat16, in the array's own type, float32 or float64, and shape.

    To even where two are equally near. A NaN stays one; what is nearer to 2^128 than to the largest number
    becomes infinite.
    """
    word: Any = np.uint64 if a.dtype == np.float64 else np.uint32
    dropped = word(np.finfo(a.dtype).nmant - 7)
    half = (word(1) << (dropped - word(1))) - word(1)
    words = np.ascontiguousarray(a).view(word)
    up = (words + half + ((words >> dropped) & word(1))) >> dropped << dropped
    out: Array = up.view(a.dtype).reshape(a.shape)
    if a.dtype == np.float64:  # whose exponents go further
        with np.errstate(invalid="ignore"):
            out = np.where(np.abs(out) >= 2.0**128, np.copysign(np.inf, a), out)
    return np.where(np.isnan(a), a, out)


def rounded_product(a: Array, b: Array) -> Array:
    """rounded(a) @ rounded(b)."""
    return product(rounded(a), rounded(b))


PRECISIONS: dict[str, Product] = {"float32": product, "bf16": rounded_product}
"""The products by the setting's values."""


def precision_of(settings: Mapping[str, Any]) -> str:
    """The setting, a key of PRECISIONS. Raises AmphwError for any other value."""
    wanted = str(settings.get("precision", "float32"))
    if wanted not in PRECISIONS:
        raise AmphwError(f"device.precision = '{wanted}', allowed is {', '.join(PRECISIONS)}")
    return wanted


def product_of(settings: Mapping[str, Any]) -> Product:
    """How a device with these settings multiplies."""
    return PRECISIONS[precision_of(settings)]


def only_float32(settings: Mapping[str, Any], device: str) -> None:
    """Raise AmphwError where another precision is asked of a device that has none. device: as it is named."""
    wanted = precision_of(settings)
    if wanted != "float32":
        raise AmphwError(
            f"device.precision = '{wanted}' is for a run on the CPU alone, and {device} is none: set "
            "device.precision=float32, or run with --device cpu"
        )
