"""Functions of values: on a model's values they make a node, on those inside a layer they are part of it.

>>> from amphw import frontend as fe
>>> swish = lambda x: x * fe.sigmoid(x)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amphw.frontend.integer import Integer
from amphw.frontend.place import FrontendError
from amphw.frontend.spec import items_of
from amphw.frontend.tensor import Tensor, align, compute, expressions
from amphw.frontend.trace import current
from amphw.ir import functions as f
from amphw.ir.nodes import NPT
from amphw.ir.program import Value, trace


def _either(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of row values that takes a model's tensors too."""

    def call(*args: Any) -> Any:
        args = tuple(items_of(a) for a in args)
        for a in args:
            if isinstance(a, Integer):
                raise FrontendError(f"{function.__name__} is of values; `number(i)` makes one of an Integer")
        if any(isinstance(a, Tensor) for a in args):
            return compute(function, *args, stem=function.__name__)
        return function(*args)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call


sigmoid = _either(f.sigmoid)
tanh = _either(f.tanh)
relu = _either(f.relu)
exp = _either(f.exp)
log = _either(f.log)
sqrt = _either(f.sqrt)
absolute = _either(f.absolute)
softmax = _either(f.softmax)
log_softmax = _either(f.log_softmax)
sum_columns = _either(f.sum_cols)
stop_gradient = _either(f.stop_gradient)
squared_error = _either(f.squared_error)
concat = _either(f.concat)


def split(x: Any, parts: int) -> list[Any]:
    """Equal blocks of columns."""
    x = items_of(x)
    if x.width % parts:
        raise FrontendError(f"{x.width} columns cannot be split into {parts} equal parts")
    if not isinstance(x, Tensor):
        return f.split(x, parts)
    width = x.width // parts
    return [x[i * width : (i + 1) * width] for i in range(parts)]


def maximum(a: Any, b: Any) -> Any:
    """The larger of both, number by number; one of them may be a constant number."""
    a, b = items_of(a), items_of(b)
    if isinstance(a, int | float):
        a, b = b, a
    if isinstance(b, int | float):
        return b + relu(a - b)
    if a.width != b.width:
        raise FrontendError(f"maximum of widths {a.width} and {b.width}; both must be the same")
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return compute(f.maximum, a, b, stem="maximum")
    return f.maximum(a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller of both, number by number; one of them may be a constant number."""
    return -maximum(-a, -b)


def cross_entropy(logits: Any, label: Any) -> Any:
    """-log softmax(logits)[label] -> width 1."""
    logits, label = items_of(logits), items_of(label)
    if isinstance(logits, Tensor):
        return compute(f.cross_entropy, logits, ints=[label], stem="cross_entropy")
    return f.cross_entropy(logits, label)


def is_best(x: Any, label: Any) -> Any:
    """1 where the largest column is that of the label, else 0 -> width 1."""
    x, label = items_of(x), items_of(label)
    if isinstance(x, Tensor):
        return compute(is_best, x, ints=[label], stem="is_best")
    return f.same(f.argmax(x), label)


def largest(x: Any) -> Any:
    """The largest number of each row -> width 1."""
    return compute(_largest, x, stem="largest") if isinstance(x, Tensor) else _largest(x)


def _largest(x: Value) -> Value:
    return f.pick(x, f.argmax(x))


def above(x: Any, threshold: float = 0.0) -> Any:
    """1 where the number is above the threshold, else 0 -> width 1. It has no gradient."""
    x = items_of(x)
    if x.width != 1:
        raise FrontendError(f"one number a row is compared with a threshold, got {x.width}")

    def compare(v: Value) -> Value:
        return v.builder.emit("to_float", [f.above(v, threshold)])

    return compute(compare, x, stem="above") if isinstance(x, Tensor) else compare(x)


def column(x: Any, index: Integer | Any) -> Any:
    """The column that an Integer names -> width 1."""
    x, index = items_of(x), items_of(index)
    if isinstance(x, Tensor):
        return compute(f.pick, x, ints=[index], stem="column")
    return f.pick(x, index)  # type: ignore[arg-type]


def number(index: Integer) -> Tensor:
    """An Integer as a number to compute with -> width 1."""
    index = items_of(index)
    (trigger,), context, rows = align((), [index])
    (expr,) = expressions([index], rows)
    program = trace(lambda u: f.number(u, expr), {"x0": trigger.width})
    name = current().name("number")
    current().emit(NPT(name, program), {"x0": trigger.port})
    return Tensor((name, "out"), 1, context, rows)
