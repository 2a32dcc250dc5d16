"""Integers that an instance brings or a loop counts: tokens, labels, positions.

They are known before anything is computed, so they cost no message: they are expressions over the state that
a message carries anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

from amphw.frontend.index import Context, Dim, union, without
from amphw.frontend.place import FrontendError
from amphw.ir.expr import Expr, lift, maximum, minimum, substitute, where


@dataclass(frozen=True, eq=False, repr=False)
class Integer:
    """`expr` over the fields of the context; 0 <= value < high, where that is known.

    Arithmetic and comparisons give integers; a comparison is 1 or 0. `==` compares values, as `<` does.
    """

    expr: Expr
    context: Context = ()
    high: Expr | None = None

    def __add__(self, other: Integer | int) -> Integer:
        return _binary(self, other, lambda a, b: a + b)

    def __radd__(self, other: int) -> Integer:
        return self + other

    def __sub__(self, other: Integer | int) -> Integer:
        return _binary(self, other, lambda a, b: a - b)

    def __rsub__(self, other: int) -> Integer:
        return _binary(integer(other), self, lambda a, b: a - b)

    def __mul__(self, other: Integer | int) -> Integer:
        return _binary(self, other, lambda a, b: a * b)

    def __rmul__(self, other: int) -> Integer:
        return self * other

    def __floordiv__(self, other: Integer | int) -> Integer:
        return _binary(self, other, lambda a, b: a // b)

    def __mod__(self, other: Integer | int) -> Integer:
        return _binary(self, other, lambda a, b: a % b)

    def __lt__(self, other: Integer | int) -> Integer:
        return _holds(self, other, lambda a, b: a < b)

    def __le__(self, other: Integer | int) -> Integer:
        return _holds(self, other, lambda a, b: a <= b)

    def __gt__(self, other: Integer | int) -> Integer:
        return _holds(integer(other), self, lambda a, b: a < b)

    def __ge__(self, other: Integer | int) -> Integer:
        return _holds(integer(other), self, lambda a, b: a <= b)

    def __eq__(self, other: object) -> Integer:  # type: ignore[override]  # a comparison of the model's
        return _holds(self, other, lambda a, b: a.eq(b))

    def __ne__(self, other: object) -> Integer:  # type: ignore[override]
        return _holds(self, other, lambda a, b: a.ne(b))

    def __repr__(self) -> str:
        return f"Integer({self.expr})"

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise FrontendError(
            f"'{self.expr}' is known for each instance, not while the model is built; use cond or switch"
        )

    def __index__(self) -> int:
        raise FrontendError(f"'{self.expr}' is not a number yet; it differs from instance to instance")

    def at(self, dim: Dim, position: Integer) -> Integer:
        """This integer where `dim` has the given position."""
        expr = substitute(self.expr, {dim.name: position.expr})
        return Integer(expr, union(without(self.context, dim), position.context), self.high)


def integer(value: object) -> Integer:
    """A constant as an Integer; an Integer as it is."""
    if isinstance(value, Integer):
        return value
    if isinstance(value, bool | int):
        return Integer(lift(value), (), lift(int(value) + 1))
    raise FrontendError(f"expected an integer of the instance, or a number; got {value!r}")


def _binary(a: Integer, b: object, function) -> Integer:  # type: ignore[no-untyped-def]
    other = integer(b)
    return Integer(function(a.expr, other.expr), union(a.context, other.context))


def _holds(a: Integer, b: object, function) -> Integer:  # type: ignore[no-untyped-def]
    """A comparison, which is 0 or 1."""
    compared = _binary(a, b, function)
    return Integer(compared.expr, compared.context, lift(2))


def choose(condition: Integer, then: Integer | int, otherwise: Integer | int) -> Integer:
    """`then` where the condition holds, else `otherwise`."""
    t, o = integer(then), integer(otherwise)
    return Integer(where(condition.expr, t.expr, o.expr), union(condition.context, t.context, o.context))


def smaller(a: Integer | int, b: Integer | int) -> Integer:
    return _binary(integer(a), b, minimum)


def larger(a: Integer | int, b: Integer | int) -> Integer:
    return _binary(integer(a), b, maximum)
