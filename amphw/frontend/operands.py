"""What a function of the language is called with: operands as they are meant, and what is no operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amphw.frontend.integer import Integer, integer, items_of
from amphw.frontend.source import FrontendError
from amphw.frontend.tensor import Tensor, compute
from amphw.ir import functions as f
from amphw.ir.expr import Const, Expr, lift
from amphw.ir.program import Value


def operand(x: Any, what: str) -> Any:
    """A value of the model, or one inside a layer; FrontendError where `what` gets anything else."""
    x = items_of(x)
    if isinstance(x, Tensor | Value):
        return x
    if isinstance(x, Integer | Expr):
        raise FrontendError(f"{what} is of values; `number(i)` makes one of an Integer")
    hint = ""
    if isinstance(x, int | float):
        hint = f"; `constant(width, {x})` makes one of a number"
    elif isinstance(x, tuple | list):
        hint = "; they are given one by one"
    raise FrontendError(f"{what} is of values of the model, got {x!r}{hint}")


def index(i: Any, what: str, columns: int) -> Any:
    """An Integer of the model, a number, a value that the network chose, or what stands for one of these
    inside a layer, that names one of the columns.

    FrontendError where it is none, or where it is known that there are not so many columns.
    """
    i = items_of(i)
    if isinstance(i, Expr):
        return i
    if isinstance(i, Tensor | Value):
        return chosen(i, what)
    i = integer(i)
    if isinstance(i.high, Const) and i.high.value > columns:
        raise FrontendError(f"{what} has {columns} columns, and an Integer of up to {i.high.value - 1}")
    return i


def chosen(i: Tensor | Value, what: str) -> Tensor | Value:
    """A value that is an index, one number a row; FrontendError where it has another width."""
    if i.width != 1:
        raise FrontendError(
            f"{what} is by one number a row, got {i.width}; `argmax(x)` is that of the largest column"
        )
    return i


def applied(what: str, function: Callable[..., Value], *values: Any, ints: tuple[Any, ...] = ()) -> Any:
    """`function(*values, *ints)`: a node `what` on values of the model, or on the values inside a layer."""
    if any(_computed(i) for i in ints):
        n = len(values)

        def by_number(*xs: Value) -> Value:
            return function(*xs[:n], *(f.to_int(x) for x in xs[n:]))

        return applied(what, by_number, *values, *ints)
    values = tuple(operand(x, what) for x in values)
    inside = [x for x in values if isinstance(x, Value)]
    if not inside:
        return compute(function, *values, ints=[integer(i) for i in ints], stem=what)
    if len(inside) < len(values):
        raise FrontendError(
            f"{what} is of a value inside a layer and of one of the model; make that an operand of the layer"
        )
    return function(*values, *(_inside(i) for i in ints))


def _computed(i: Any) -> bool:
    """Whether an index is a number that the network computes."""
    return isinstance(i, Tensor) or (isinstance(i, Value) and i.type.kind == "float")


def _inside(i: Any) -> Any:
    """An index as the values inside a layer know it."""
    if not isinstance(i, Integer):
        return i
    if i.context:
        raise FrontendError("an Integer of the model is used inside a layer; make it an operand of the layer")
    return lift(i.expr)
