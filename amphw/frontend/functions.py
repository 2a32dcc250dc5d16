"""Functions of values: on a model's values they make a node, on those inside a layer they are part of it.

>>> from amphw import frontend as fe
>>> swish = lambda x: x * fe.sigmoid(x)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amphw.frontend import values
from amphw.frontend.integer import Integer, binary, integer, items_of
from amphw.frontend.operands import applied, index, operand
from amphw.frontend.source import FrontendError
from amphw.frontend.tensor import Tensor, align, expressions
from amphw.frontend.trace import current
from amphw.ir import expr
from amphw.ir import functions as f
from amphw.ir.expr import Expr
from amphw.ir.nodes import NPT
from amphw.ir.program import Value, trace

# --- number by number -------------------------------------------------------------------------------


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), number by number."""
    return applied("sigmoid", f.sigmoid, x)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent, number by number."""
    return applied("tanh", f.tanh, x)


def relu(x: Any) -> Any:
    """x where it is above 0, else 0, number by number."""
    return applied("relu", f.relu, x)


def exp(x: Any) -> Any:
    """e to the power of x, number by number."""
    return applied("exp", f.exp, x)


def log(x: Any) -> Any:
    """The natural logarithm, number by number; of numbers above 0."""
    return applied("log", f.log, x)


def leaky_relu(x: Any, slope: float = 0.01) -> Any:
    """x where it is above 0, else `slope` times x, number by number."""
    return applied("leaky_relu", lambda v: f.relu(v) - f.relu(-v) * slope, x)


def elu(x: Any, alpha: float = 1.0) -> Any:
    """x where it is above 0, else `alpha` times exp(x) - 1, number by number."""

    def function(v: Value) -> Value:
        below = -f.maximum(-v, f.zeros(v, v.width))  # exp of a large x would be infinite
        return f.relu(v) + (f.exp(below) - 1.0) * alpha

    return applied("elu", function, x)


def softplus(x: Any) -> Any:
    """log(1 + exp(x)), number by number: a smooth relu."""
    return applied("softplus", f.softplus, x)


def gelu(x: Any) -> Any:
    """x times the probability that a number from a standard normal distribution is smaller, number by number.

    The exact form of Hendrycks and Gimpel (arXiv 1606.08415), not the approximation with tanh.
    """
    return applied("gelu", f.gelu, x)


def sqrt(x: Any) -> Any:
    """The square root, number by number. Its gradient at 0 is infinite."""
    return applied("sqrt", f.sqrt, x)


def absolute(x: Any) -> Any:
    """The absolute value of x, number by number. Its gradient at 0 is 0."""
    return applied("absolute", f.absolute, x)


def stop_gradient(x: Any) -> Any:
    """x itself, through which no gradient flows back."""
    return applied("stop_gradient", f.stop_gradient, x)


def maximum(a: Any, b: Any) -> Any:
    """The larger of both: of values, number by number, or of Integers; one of them may be a constant number.

    Of equal numbers the gradient goes to b alone, or to the constant.
    """
    return _extreme("maximum", a, b, f.maximum, expr.maximum)


def minimum(a: Any, b: Any) -> Any:
    """The smaller of both: of values, number by number, or of Integers; one of them may be a constant number.

    Of equal numbers the gradient goes to b alone, or to the constant.
    """
    return _extreme("minimum", a, b, lambda x, y: -f.maximum(-x, -y), expr.minimum)


def _extreme(
    what: str,
    a: Any,
    b: Any,
    of_values: Callable[[Value, Value], Value],
    of_integers: Callable[[Expr | int, Expr | int], Expr],
) -> Any:
    a, b = items_of(a), items_of(b)
    if isinstance(a, int | float):
        a, b = b, a
    if isinstance(a, Integer) and isinstance(b, Integer | int):
        return binary(a, b, of_integers)
    if isinstance(a, Expr) and isinstance(b, Expr | int):  # an Integer inside a layer
        return of_integers(a, b)
    if isinstance(b, int | float):
        return applied(what, lambda x: of_values(x, f.zeros(x, x.width) + float(b)), a)
    a, b = operand(a, what), operand(b, what)
    if a.width != b.width:
        raise FrontendError(f"{what} of widths {a.width} and {b.width}; both must be the same")
    return applied(what, of_values, a, b)


# --- columns ----------------------------------------------------------------------------------------


def concat(*xs: Any) -> Any:
    """Side by side: the numbers of all in one value."""
    if not xs:
        raise FrontendError("concat puts values side by side, and is called with none")
    xs = tuple(operand(x, "concat") for x in xs)
    return values.concat(*xs) if all(isinstance(x, Tensor) for x in xs) else applied("concat", f.concat, *xs)


def split(x: Any, parts: int) -> list[Any]:
    """Equal blocks of columns."""
    x = operand(x, "split")
    if parts < 1 or x.width % parts:
        raise FrontendError(f"{x.width} columns cannot be split into {parts} equal parts")
    if not isinstance(x, Tensor):
        return f.split(x, parts)
    width = x.width // parts
    return [x[i * width : (i + 1) * width] for i in range(parts)]


def log_softmax(x: Any) -> Any:
    """The logarithm of a softmax over the columns, exact for small probabilities too."""
    return applied("log_softmax", f.log_softmax, x)


def sum_columns(x: Any) -> Any:
    """The sum of each row -> width 1."""
    return applied("sum_cols", f.sum_cols, operand(x, "sum_columns"))


def mean_columns(x: Any) -> Any:
    """The mean of each row -> width 1."""
    x = operand(x, "mean_columns")
    return applied("mean_cols", lambda v: f.sum_cols(v) * (1.0 / v.width), x)


def largest(x: Any) -> Any:
    """The largest number of each row -> width 1."""
    return applied("largest", f.largest, x)


def above(x: Any, threshold: float = 0.0) -> Any:
    """1 where the number is above the threshold, else 0 -> width 1. It has no gradient."""
    x = operand(x, "above")
    if x.width != 1:
        raise FrontendError(f"one number a row is compared with a threshold, got {x.width}")
    return applied("above", lambda v: f.number(v, f.above(v, threshold)), x)


def column(x: Any, i: Integer | Tensor | int) -> Any:
    """The column that an Integer, below the width, or a number that the network chose names -> width 1."""
    x = operand(x, "column")
    return applied("column", f.pick, x, ints=(index(i, "column", x.width),))


def squared_error(x: Any, target: Any) -> Any:
    """The sum of the squared differences of each row -> width 1."""
    return applied("squared_error", f.squared_error, x, target)


def cross_entropy(logits: Any, label: Integer | Tensor | int) -> Any:
    """-log softmax(logits)[label] -> width 1."""
    logits = operand(logits, "cross_entropy")
    labels = (index(label, "cross_entropy", logits.width),)
    return applied("cross_entropy", f.cross_entropy, logits, ints=labels)


def is_best(x: Any, label: Integer | Tensor | int) -> Any:
    """1 where the largest column (the first of equals) is that of the label, else 0 -> width 1.

    It has no gradient.
    """
    x = operand(x, "is_best")
    labels = (index(label, "is_best", x.width),)
    return applied("is_best", lambda v, i: f.same(f.argmax(v), i), x, ints=labels)


def number(i: Integer | int) -> Tensor:
    """An Integer as a number to compute with -> width 1."""
    i = integer(i)
    (trigger,), context, rows = align((), [i])
    (e,) = expressions([i], rows)
    program = trace(lambda u: f.number(u, e), {"x0": trigger.width})
    name = current().name("number")
    current().emit(NPT(name, program), {"x0": trigger.port})
    return Tensor((name, "out"), 1, context, rows)
