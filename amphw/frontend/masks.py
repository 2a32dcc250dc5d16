"""Dropout and other draws, functions of the state alone: every device draws the same, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from amphw.frontend.index import Context, Dim, dims_of
from amphw.frontend.operands import operand
from amphw.frontend.source import FrontendError
from amphw.frontend.spec import SequenceValue
from amphw.frontend.tensor import Constant, Tensor, align, compute
from amphw.frontend.trace import current
from amphw.ir import functions as f
from amphw.ir.expr import ROW, Attr, Const, Expr
from amphw.ir.program import Value

# Equal integers of a program are one; so those that keys are made of equal no operand, and not one another.
_ROW, _USE = 1 << 20, 1 << 26


@dataclass
class Rows:
    """The rows that a layer works on. keys: expressions that tell one from another; layer: its name;
    masks: how many it has drawn."""

    keys: list[Expr]
    layer: str
    masks: int = 0


_rows: ContextVar[Rows | None] = ContextVar("rows", default=None)


@contextmanager
def rows_of(layer: str, context: Context, rows: Dim | None, use: int) -> Iterator[None]:
    """Within, `dropout` has a mask for every row of this layer; `use` tells where it is used from other uses.

    All uses of a layer are one program, so the keys are as many whatever the context is.
    """
    position: Expr = Const(0)
    for dim in dims_of(context):
        position = position * dim.bound + dim.at
    position = position + (use + 1) * _USE
    row: Expr = Const(_ROW - 1) if rows is None else ROW + _ROW
    token = _rows.set(Rows([Attr("instance"), position, row], layer))
    try:
        yield
    finally:
        _rows.reset(token)


def row_keys() -> list[Expr]:
    """What tells one row from another, of the layer that is being traced."""
    rows = _rows.get()
    assert rows is not None
    return rows.keys


def dropout(
    x: Any, rate: float, *, same_over: Sequence[Dim | SequenceValue] = (), seed: int | None = None
) -> Any:
    """Leave numbers out with probability `rate`, scale the rest by 1 / (1 - rate); nothing in inference.

    Another mask for every instance and for every state of the value, and of a constant for every turn of the
    loops that it is in; `same_over` names dimensions along which the mask is the same, as for recurrent
    dropout. seed: by default another one for every use. On the values inside a layer, every row has a mask of
    its own.
    """
    x = operand(x, "dropout")
    if not 0 <= rate < 1:
        raise FrontendError(f"a rate of dropout is from 0 to below 1, got {rate}")
    if rate == 0 and isinstance(x, Tensor):
        return x
    # A constant has no states of its own: those of the loops around it make it a choice for each turn.
    least = current().inside if isinstance(x, Constant) else ()

    def masked(v: Value, keys: list[Expr], number: int) -> Value:
        return f.dropout(v, rate, keys, number, per_row=False) if rate else v

    return drawn(x, masked, "dropout", same_over, seed, least)


def drawn(
    x: Any,
    draw: Callable[[Value, list[Expr], int], Value],
    what: str,
    same_over: Sequence[Dim | SequenceValue] = (),
    seed: int | None = None,
    least: Context = (),
) -> Any:
    """`draw(value, keys, seed)`, which is random by the keys and the seed, of a value of the model or of one
    inside a layer. `same_over` and `seed` as of `dropout`; least: what a draw depends on at least."""
    if isinstance(x, Value):
        return _inside(x, draw, what, same_over, seed)
    same = {d.dim if isinstance(d, SequenceValue) else d for d in same_over}
    _, context, rows = align([x], least=least)
    keys: list[Expr] = [Attr("instance"), *(d.at for d in dims_of(context) if d not in same)]
    if rows is not None and rows not in same:
        keys.append(ROW)
    number = current().number() if seed is None else seed
    return compute(lambda v: draw(v, keys, number), x, least=least, stem=what)


def _inside(
    x: Value,
    draw: Callable[[Value, list[Expr], int], Value],
    what: str,
    same_over: Sequence[object],
    seed: int | None,
) -> Value:
    rows = _rows.get()
    if rows is None or same_over:
        raise FrontendError(
            f"{what} on a value inside a function knows no dimensions; use it on the model's values"
            if rows is None
            else "inside a layer every row has a mask of its own, and `same_over` means nothing"
        )
    rows.masks += 1
    # By the layer and not by what was traced before it: all uses are one program.
    number = crc32(f"{rows.layer}.{rows.masks}".encode()) if seed is None else seed
    return draw(x, rows.keys, number)
