"""What stands for PyTorch's tensors in a program: values with rows, and the module's parameters.

A value stands for a tensor [rows, width], so dimension 1, or -1, are the columns.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from amphw.ir import functions as f
from amphw.ir.expr import Expr
from amphw.ir.program import Builder, ParamRef, ParamSpec, Value


class Refused(Exception):
    """An operation, or the way in which it is used, has no counterpart; the message says what and why."""


@dataclass(frozen=True, eq=False)
class Weight:
    """A parameter of the module under its name here, laid out as there.

    turned: its transpose is meant. whole: of a part, such as `weight[2]`, the name of the parameter. place:
    its path in the module, where it is not that of the name.
    """

    name: str
    values: np.ndarray
    turned: bool = False
    whole: str = ""
    place: str = ""


FLOAT = "torch.float32"
"""What a tensor's `dtype` is."""

ROWS = object()
"""What a tensor's `size(0)` is."""


class Shape:
    """What a tensor's `shape` is."""

    def __init__(self, width: int) -> None:
        self.parts = (ROWS, width)


class Operands:
    """Operands of an operation, as values and as parameters of the program.

    turned: by the name of a matrix whether its transpose is stored. parts: by the name of a parameter that is
    used in parts their names, by their index. taken: names that no part may have.
    """

    def __init__(self, builder: Builder, taken: Collection[str] = ()):
        self.builder, self.taken = builder, taken
        self.turned, self.parts = dict[str, bool](), dict[str, dict[int, str]]()

    def matrix(self, weight: Any, turned: bool) -> ParamRef:
        """A weight of two dimensions as a program multiplies with it: [inputs, outputs]."""
        if not isinstance(weight, Weight) or weight.values.ndim != 2:
            raise Refused("a matrix of two dimensions must be a parameter of the module")
        turned = weight.turned != turned
        if self.turned.setdefault(weight.name, turned) != turned:
            raise Refused(f"the parameter '{weight.name}' is used as it is and transposed; that takes two")
        return self._parameter(weight, weight.values.T if turned else weight.values)

    def part(self, weight: Weight, index: int) -> Weight:
        """`weight[index]`, a parameter of its own."""
        if weight.whole or weight.turned or weight.values.ndim < 2:
            raise Refused(f"the parameter '{weight.name}' of shape {weight.values.shape} is not taken apart")
        count = len(weight.values)
        if not -count <= index < count:
            raise Refused(f"the parameter '{weight.name}' has {count} parts, and none is number {index}")
        index %= count
        name = f"{weight.name}_{index}"
        while name in self.taken:
            name += "_"
        self.parts.setdefault(weight.name, {})[index] = name
        return Weight(name, weight.values[index], whole=weight.name)

    def _parameter(self, weight: Weight, values: np.ndarray) -> ParamRef:
        name = weight.name
        if (weight.whole or name) in (self.builder.params if weight.whole else self.parts):
            raise Refused(f"the parameter '{weight.whole or name}' is used as a whole and in parts")
        if self.builder.params.setdefault(name, ParamSpec.given(name, values)).shape != values.shape:
            raise Refused(f"the parameter '{name}' is used as a matrix and as a row; that takes two")
        return ParamRef(name, self.builder)

    def row(self, x: Any) -> Value:
        """An operand as a value: a parameter is on every row."""
        if isinstance(x, Value) and x.type.kind == "float":
            return x
        if isinstance(x, Weight):
            if x.turned or x.values.size != (x.values.shape or (1,))[-1]:
                raise Refused(f"the parameter '{x.name}' of shape {x.values.shape} is no row of numbers")
            return f.row_param(self._parameter(x, x.values.reshape(-1)))
        if isinstance(x, Expr):
            raise Refused("an Integer may only be the index of an embedding here; fe.number makes it a value")
        raise Refused(f"a value was expected, got {'no operand' if x is None else repr(x)}")

    def numbers(self, x: Value, c: float) -> Value:
        """The number c in every row and column of x."""
        return f.zeros(x, x.width) + c


def is_number(x: Any) -> bool:
    """Whether it is a number of Python's."""
    return isinstance(x, int | float) and not isinstance(x, bool)


def columns_of(dim: Any) -> None:
    """Refused for a dimension that is not that of the columns."""
    if dim in ((-1,), [-1], (1,), [1]):
        (dim,) = dim
    if dim not in (-1, 1):
        raise Refused(
            f"along dimension {dim}; a value is [rows, width], and only its columns, -1, are together"
        )


def float_of(dtype: Any) -> None:
    """Refused for another type than that of values."""
    if dtype is not None and str(dtype) != FLOAT:
        raise Refused(f"dtype {dtype}; values are float32")
