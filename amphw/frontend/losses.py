"""What a model is trained for, and what it reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amphw.frontend.index import Context, Dim, Entry, dims_of, union
from amphw.frontend.integer import Integer, items_of
from amphw.frontend.operands import operand
from amphw.frontend.source import FrontendError
from amphw.frontend.tensor import Constant, Tensor, align, expressions, messages, ports, traced
from amphw.frontend.trace import current
from amphw.ir import functions as f
from amphw.ir.expr import ROW, Const, Expr, fields_of
from amphw.ir.nodes import Loss
from amphw.ir.program import Value

_CONSTANT = "no value that is computed is in the loss, so there is nothing to learn"


def classify(logits: Tensor, label: Integer, *, name: str = "loss") -> None:
    """Cross-entropy of the logits against the label. Reports loss, accuracy (1 or 0) and prediction."""

    def values(y: Value, label: Expr) -> list[Value]:
        best = f.argmax(y)
        return [f.cross_entropy(y, label), f.same(best, label), f.number(y, best)]

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
    """One number a row to be made small, and values to report beside it, by name.

    What is reported has a value for each row of the loss, or one for several; FrontendError for one that has
    more, which `report` takes.
    """
    value = operand(value, "loss")
    if isinstance(value, Constant):
        raise FrontendError(_CONSTANT)
    if value.width != 1:
        raise FrontendError(f"a loss is one number a row, got {value.width}; add them up first")
    values = [value, *(operand(x, f"what `{k}` reports") for k, x in reported.items())]
    _loss(lambda *xs: list(xs), values, [], ("loss", *reported), name)


def report(**values: Tensor) -> None:
    """Values to be told of, by name, such as the weights of an attention: predictions have them.

    Each has rows of its own, whatever a loss is of. No figure of a run is made of it. What comes back from it
    is a gradient of 0, so it changes no sum of gradients; but layers that it goes through count its rows, and
    update after fewer rows of a loss. It has to be finite, as all that a network computes.
    """
    if not values:
        raise FrontendError("report takes values by name, such as report(weights=a)")
    for name, value in values.items():
        value = operand(value, f"what `{name}` reports")
        if isinstance(value, Constant):
            raise FrontendError(f"`{name}` is a constant, which the model need not tell")
        _sink(lambda x: [f.zeros(x, 1), x], [value], [], ("loss", name), current().name(f"report_{name}"))


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
    if current().net.names.get(name):
        raise FrontendError(f"there is a node '{name}' already; give this loss another name: name=...")
    made = _sink(function, tensors, ints, names, current().name(name, chosen=True))
    if not made.trains:
        raise FrontendError(_CONSTANT)


def _sink(function, tensors: list[Tensor], ints: list[Integer], names: tuple[str, ...], node: str) -> Loss:  # type: ignore[no-untyped-def]
    aligned, context, rows = align(tensors, ints)
    program = traced(function, tensors, aligned, expressions(ints, rows))
    made = Loss(node, program, names)
    if made.trains:
        _check_rows(made, tensors, context, rows)
    current().emit(made, ports(program, aligned))
    return made


def _check_rows(loss: Loss, tensors: list[Tensor], context: Context, rows: Dim | None) -> None:
    """FrontendError where it would have more rows for what is reported than it has for what is trained.

    context, rows: of all its operands together.
    """
    known = [messages(x) for x in tensors if not isinstance(x, Constant)]
    all_of = {d.name: d for d in dims_of(context)} | ({ROW.name: rows} if rows else {})

    def entries(outputs: list[int]) -> set[Entry]:
        found = union(tuple(current().active))
        for i in loss.program.read_by(outputs):
            if i < len(known):
                found = union(found, known[i])
            else:
                fields = fields_of(loss.program.ints[i - len(known)][0])
                found = union(found, tuple(all_of[name] for name in fields if name in all_of))
        return set(found)

    of_loss = entries([0])
    for k, name in enumerate(loss.names[1:], 1):
        if more := sorted(entries([k]) - of_loss, key=lambda e: e.number):
            each = " and ".join(
                f"at each position of {e.name}" if isinstance(e, Dim) else "in one branch of a choice alone"
                for e in more
            )
            raise FrontendError(
                f"what `{name}` reports has a value {each}, the loss has not, and would be counted once for "
                f"each of them; write fe.report({name}=...), which has rows of its own"
            )
