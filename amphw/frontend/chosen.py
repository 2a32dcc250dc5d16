"""Numbers that the network chooses: which column of its scores. They are values, and indices as Integers are.

A number travels as a column of a message, so it may be carried by a loop and looked up in the next turn, and
a table has as many rows as it likes. It has no gradient; the row that it finds has.
"""

from __future__ import annotations

from typing import Any

from amphw.frontend.masks import drawn
from amphw.frontend.operands import applied, operand
from amphw.frontend.source import FrontendError
from amphw.frontend.tensor import Tensor
from amphw.frontend.trace import current
from amphw.ir import functions as f
from amphw.ir.expr import Expr
from amphw.ir.program import Value


def argmax(x: Any) -> Any:
    """The number of the largest column of each row, of equals the first -> width 1, without a gradient.

    It is an index of an embedding, of `column`, `is_best` and `cross_entropy`.
    """
    return applied("argmax", lambda v: f.number(v, f.argmax(v)), _scores(x, "argmax"))


def sample(x: Any, *, seed: int | None = None) -> Any:
    """The number of a column, drawn with the probabilities softmax(x) -> width 1, without a gradient.

    An index as `argmax` gives one. Another draw for every instance, for every position of the value and for
    every turn of the loops around it, in inference too; the same whenever the same is run again. seed: by
    default another one for every use.
    """
    x = _scores(x, "sample")
    least = current().inside if isinstance(x, Tensor) else ()
    return drawn(x, _drawn, "sample", seed=seed, least=least)


def _drawn(x: Value, keys: list[Expr], seed: int) -> Value:
    return f.number(x, f.sampled(x, keys, seed))


def _scores(x: Any, what: str) -> Any:
    x = operand(x, what)
    if x.width == 1:
        raise FrontendError(
            f"{what} chooses one of several columns, and here is one; `above(x, threshold)` is 0 or 1"
        )
    return x
