"""What a model is trained for, and what it reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amphw.frontend.index import dims_of
from amphw.frontend.integer import Integer, items_of
from amphw.frontend.operands import operand
from amphw.frontend.source import FrontendError
from amphw.frontend.tensor import Constant, Tensor, align, expressions, messages, ports, traced
from amphw.frontend.trace import current
from amphw.ir import functions as f
from amphw.ir.expr import Const, Expr
from amphw.ir.nodes import Loss
from amphw.ir.program import Value

_CONSTANT = "no value that is computed is in the loss, so there is nothing to learn"


def classify(logits: Tensor, label: Integer, *, name: str = "loss") -> None:
    """Cross-entropy of the logits against the label. Reports loss, accuracy (1 or 0) and prediction."""

    def values(y: Value, label: Expr) -> list[Value]:
        best = f.argmax(y)
        return [f.cross_entropy(y, label), f.same(best, label), f.number(y, best)]  # type: ignore[arg-type]

    logits, label = items_of(logits), items_of(label)
    if not isinstance(logits, Tensor) or not isinstance(label, Integer):
        raise FrontendError(
            f"classify takes logits and an Integer of the instance, got {logits!r}, {label!r}"
        )
    if isinstance(label.high, Const) and label.high.value > logits.width:
        raise FrontendError(f"{logits.width} logits for labels of up to {label.high.value - 1}")
    if more := [e.name for e in dims_of(messages(logits)) if e not in label.context]:
        current().note(
            f"one label is compared with the logits at every position of {', '.join(more)}; "
            "reduce or pick one before the last layer, or give each position a label of its own"
        )
    _loss(values, [logits], [label], ("loss", "accuracy", "prediction"), name)


def regress(y: Tensor, target: Tensor, *, name: str = "loss") -> None:
    """Squared error, summed over the columns. Reports loss, error (the mean absolute one) and prediction."""
    y, target = operand(y, "regress"), operand(target, "regress")
    if y.width != target.width:
        raise FrontendError(f"{y.width} numbers cannot be compared with a target of {target.width}")

    def values(a: Value, b: Value) -> list[Value]:
        off = f.absolute(a - b)
        return [f.squared_error(a, b), f.sum_cols(off) * (1 / y.width) if y.width > 1 else off, a]

    _loss(values, [y, target], [], ("loss", "error", "prediction"), name)


def loss(value: Tensor, *, name: str = "loss", **reported: Tensor) -> None:
    """One number a row to be made small, and values to report beside it, by name."""
    value = operand(value, "loss")
    if isinstance(value, Constant):
        raise FrontendError(_CONSTANT)
    if value.width != 1:
        raise FrontendError(f"a loss is one number a row, got {value.width}; add them up first")
    values = [value, *(operand(x, f"what `{k}` reports") for k, x in reported.items())]
    _loss(lambda *xs: list(xs), values, [], ("loss", *reported), name)


def loss_of(
    function: Callable[..., Any],
    *operands: Tensor | Integer,
    reported: Sequence[str] = (),
    name: str = "loss",
) -> None:
    """`function(*values, *state expressions)` -> the loss of a row, and what is reported beside it, by name.

    As `loss`, without a node between the values and the loss.
    """
    given = [items_of(x) for x in operands]
    ints = [x for x in given if isinstance(x, Integer)]
    tensors = [operand(x, "loss_of") for x in given if not isinstance(x, Integer)]
    _loss(function, tensors, ints, ("loss", *reported), name)


def _loss(function, tensors: list[Tensor], ints: list[Integer], names: tuple[str, ...], name: str) -> None:  # type: ignore[no-untyped-def]
    if all(isinstance(x, Constant) for x in tensors):
        raise FrontendError(_CONSTANT)
    aligned, _, rows = align(tensors, ints)
    program = traced(function, tensors, aligned, expressions(ints, rows))
    if current().net.names.get(name):
        raise FrontendError(f"there is a node '{name}' already; give this loss another name: name=...")
    node = current().name(name)
    current().emit(Loss(node, program, names), ports(program, aligned))
