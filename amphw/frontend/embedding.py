"""Tables: an Integer reads a row, and a value is compared with all of them."""

from __future__ import annotations

from typing import Any, Never

import numpy as np

from amphw.frontend.integer import Integer, integer
from amphw.frontend.layer_functions import layer_function, no_operand, no_settings, start
from amphw.frontend.layers import Layer, Shapes, parameter, positive
from amphw.frontend.operands import chosen
from amphw.frontend.source import FrontendError
from amphw.frontend.spec import items_of
from amphw.frontend.tensor import Tensor
from amphw.ir import functions as f
from amphw.ir.expr import Const
from amphw.ir.primitives.integers import LARGEST_WHOLE
from amphw.ir.program import Params, Value


class Embedding(Layer):
    """An Integer, or a number that the network chose -> a row of the table E [rows, width], which starts at
    N(0, 1) as PyTorch's.

    The gradient goes to the row alone. A number that is not whole, or that no row has, is an error when the
    model runs.

    `embed.attend(h)` is h E' [rows]: how well h [width] fits each row, which are the logits of a model whose
    input and output share the table.
    """

    def __init__(
        self,
        rows: int,
        width: int,
        *,
        init: str | np.ndarray = "normal",
        name: str | None = None,
        **settings: Never,
    ):
        no_settings(self, settings)
        super().__init__(name=name)
        self.rows, self.width, self.init = positive(self, rows), positive(self, width), start(init)

    def __call__(self, *operands: Any) -> Any:
        if len(operands) != 1 or not isinstance(i := items_of(operands[0]), Integer | Tensor | int):
            got = ", ".join(repr(items_of(x)) for x in operands) or "nothing"
            hint = no_operand(operands[0]) if operands else ""
            raise FrontendError(
                f"an embedding takes an Integer of the instance, or a number, got {got}{hint}"
            )
        if isinstance(i, Tensor):
            if self.rows > LARGEST_WHOLE:
                raise FrontendError(
                    f"an embedding that a number chooses from has {LARGEST_WHOLE} rows at most, got "
                    f"{self.rows}: no number of 32 bits tells more apart"
                )
            return super().__call__(chosen(i, "an embedding"))
        i = integer(i)
        within_table(i, self.rows)
        return super().__call__(i)

    def shapes(self, *widths: int) -> Shapes:
        return {"E": parameter((self.rows, self.width), self.init)}

    def function(self, p: Params, *operands: Any) -> Value:
        (i,) = operands
        return f.take(p.E, f.to_int(i) if isinstance(i, Value) else i)

    @layer_function
    def attend(self, p: Params, h: Value) -> Value:
        """h [width] -> h E' [rows], with the table of the embedding: tied weights."""
        if not isinstance(h, Value):
            raise FrontendError(f"`attend` takes a value as wide as the table's rows, {self.width}, got {h}")
        if h.width != self.width:
            raise FrontendError(
                f"`attend` multiplies with a table whose rows have {self.width} numbers, and is given a "
                f"value of width {h.width}; a Linear({self.width}) before it makes one that fits"
            )
        return h @ p.E.T


def within_table(index: Integer, rows: int) -> None:
    """FrontendError where an embedding has fewer rows than the Integer may be."""
    if isinstance(index.high, Const) and index.high.value > rows:
        most = index.high.value - 1
        raise FrontendError(f"an embedding of {rows} rows is given an Integer of up to {most}")
