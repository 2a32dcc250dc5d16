"""Integers that an instance brings or a loop counts: tokens, labels, positions.

They are known before anything is computed, so they cost no message: they are expressions over the state that
a message carries anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from amphw.frontend.index import Context, Dim, union, without
from amphw.frontend.remedies import unknown
from amphw.frontend.source import FrontendError
from amphw.ir.expr import Expr, lift, substitute, where


class Items:
    """What stands for its items where a value or an Integer is wanted: a sequence of the instance."""

    @property
    def item(self) -> Any:
        raise NotImplementedError


def items_of(value: Any) -> Any:
    """An operand as it is meant: the items of a sequence (of sequences), a number of numpy as Python's."""
    while isinstance(value, Items):
        value = value.item
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True, eq=False, repr=False)
class Integer:
    """`expr` over the fields of the context; 0 <= value < high, where that is known.

    Arithmetic and comparisons give integers; a comparison is 1 or 0. `==` compares values, as `<` does.
    """

    expr: Expr
    context: Context = ()
    high: Expr | None = None

    def __add__(self, other: Integer | int) -> Integer:
        return binary(self, other, lambda a, b: a + b)

    def __radd__(self, other: int) -> Integer:
        return self + other

    def __sub__(self, other: Integer | int) -> Integer:
        return binary(self, other, lambda a, b: a - b)

    def __rsub__(self, other: int) -> Integer:
        return binary(other, self, lambda a, b: a - b)

    def __mul__(self, other: Integer | int) -> Integer:
        return binary(self, other, lambda a, b: a * b)

    def __rmul__(self, other: int) -> Integer:
        return self * other

    def __floordiv__(self, other: Integer | int) -> Integer:
        return binary(self, other, lambda a, b: a // b)

    def __mod__(self, other: Integer | int) -> Integer:
        return binary(self, other, lambda a, b: a % b)

    def __lt__(self, other: Integer | int) -> Integer:
        return _holds(self, other, lambda a, b: a < b)

    def __le__(self, other: Integer | int) -> Integer:
        return _holds(self, other, lambda a, b: a <= b)

    def __gt__(self, other: Integer | int) -> Integer:
        return _holds(other, self, lambda a, b: a < b)

    def __ge__(self, other: Integer | int) -> Integer:
        return _holds(other, self, lambda a, b: a <= b)

    def __eq__(self, other: object) -> Integer:  # type: ignore[override]  # a comparison of the model's
        return _holds(self, other, lambda a, b: a.eq(b))

    def __ne__(self, other: object) -> Integer:  # type: ignore[override]
        return _holds(self, other, lambda a, b: a.ne(b))

    __array_ufunc__ = None  # a number of numpy leaves operators to the Integer beside it

    def __repr__(self) -> str:
        return f"Integer({self.expr})"

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise FrontendError(
            f"'{self.expr}' is known for each instance, not while the model is built; use cond or switch"
        )

    def __index__(self) -> int:
        raise FrontendError(f"'{self.expr}' is not a number yet; it differs from instance to instance")

    __float__ = __int__ = __index__

    def __abs__(self) -> NoReturn:
        raise FrontendError("an Integer has no abs(); `maximum(i, 0 - i)` is |i|")

    def __matmul__(self, other: object) -> NoReturn:
        raise FrontendError("an Integer has no `@`; an Embedding or `number(i)` makes a value of it")

    __rmatmul__ = __matmul__

    def __getattr__(self, name: str) -> NoReturn:
        raise unknown("an Integer", name)

    def at(self, dim: Dim, position: Integer) -> Integer:
        """This integer where `dim` has the given position."""
        expr = substitute(self.expr, {dim.name: position.expr})
        return Integer(expr, union(without(self.context, dim), position.context), self.high)


def integer(value: object) -> Integer:
    """A constant as an Integer; an Integer as it is."""
    value = items_of(value)
    if isinstance(value, Integer):
        return value
    if isinstance(value, bool | int):
        return Integer(lift(value), (), lift(int(value) + 1))
    raise FrontendError(f"expected an integer of the instance, or a number; got {value!r}")


def binary(a: object, b: object, function: Callable[[Expr, Expr], Expr]) -> Integer:
    """A function of two Integers, one of which may be a constant."""
    one, other = integer(a), integer(b)
    return Integer(function(one.expr, other.expr), union(one.context, other.context))


def _holds(a: object, b: object, function: Callable[[Expr, Expr], Expr]) -> Integer:
    """A comparison, which is 0 or 1."""
    compared = binary(a, b, function)
    return Integer(compared.expr, compared.context, lift(2))


def choose(condition: Integer, then: Integer | int, otherwise: Integer | int) -> Integer:
    """The Integer `then` where the condition holds, else the Integer `otherwise`."""
    c, t, o = integer(condition), integer(then), integer(otherwise)
    return Integer(where(c.expr, t.expr, o.expr), union(c.context, t.context, o.context))
