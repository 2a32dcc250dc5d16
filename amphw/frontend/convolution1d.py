"""`Conv1d`: a convolution along the positions of a sequence, of any length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amphw.frontend.gather import innermost
from amphw.frontend.index import Dim
from amphw.frontend.layers import Layer, Shapes, parameter
from amphw.frontend.operands import operand
from amphw.frontend.source import FrontendError
from amphw.frontend.spec import SequenceValue
from amphw.frontend.tensor import Constant, Tensor
from amphw.frontend.tensor import group as group_by
from amphw.frontend.trace import current
from amphw.ir import functions as f
from amphw.ir.expr import ROW, both, maximum, minimum, where
from amphw.ir.nodes import NPT
from amphw.ir.program import Params, Value, trace


class Conv1d(Layer):
    """For each position of a sequence `activation(window W + b)` of the `size` positions around it.

    size: odd, so that a window has a middle; or any, with causal=True, where a window ends at its position.
    Beyond the ends of the sequence are zeros, so the result is as long as the sequence. dilation: how far
    apart the positions of a window are. W [size * width, outputs] starts as Glorot's uniform, the earliest
    position first, b at 0. All positions are the rows of one message.
    """

    def __init__(
        self,
        outputs: int,
        size: int,
        *,
        causal: bool = False,
        dilation: int = 1,
        activation: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        if outputs < 1 or size < 1 or dilation < 1:
            raise FrontendError(
                f"Conv1d has outputs, size and dilation of 1 or more, got {outputs}, {size} and {dilation}"
            )
        if size % 2 == 0 and not causal:
            raise FrontendError(
                f"a window of {size} positions has no middle; take an odd one, or causal=True"
            )
        self.outputs, self.activation = outputs, activation
        first = 1 - size if causal else -(size // 2)
        self._offsets = [dilation * (first + k) for k in range(size)]

    def __call__(self, *operands: Any, over: Dim | SequenceValue | None = None) -> Any:
        """over: the positions, by default the innermost ones of the value."""
        if len(operands) != 1:
            raise FrontendError(f"Conv1d is of one value, got {len(operands)}; `concat` joins several")
        x = operand(operands[0], "Conv1d")
        if not isinstance(x, Tensor) or isinstance(x, Constant):
            raise FrontendError("Conv1d is along positions of a model's values, not of those inside a layer")
        return super().__call__(windows(x, self._offsets, innermost(x, over)))

    def shapes(self, *widths: int) -> Shapes:
        return {"W": parameter((sum(widths), self.outputs)), "b": parameter((self.outputs,), "zeros")}

    def function(self, p: Params, *operands: Any) -> Value:
        y = f.linear(operands[0], p.W, p.b)
        result: Value = y if self.activation is None else self.activation(y)
        return result


def windows(x: Tensor, offsets: Sequence[int], dim: Dim) -> Tensor:
    """For each position of `dim` side by side what is so many positions from it; zeros beyond the ends."""

    def all_of(v: Value) -> Value:
        return f.concat(*(at(v, offset) for offset in offsets))

    def at(v: Value, offset: int) -> Value:
        if not offset:
            return v
        place = ROW + offset
        inside = where(both(place >= 0, place < dim.extent), 1, 0)
        # A position that is not there is read from one that is, and counts for nothing.
        near = minimum(maximum(place, 0), dim.extent - 1)
        return f.gather_rows(v, near, "rows") * f.number(v, inside)

    x = group_by(x, dim)
    name = current().name("windows")
    current().emit(NPT(name, trace(all_of, {"x0": x.width})), {"x0": x.port})
    return Tensor((name, "out"), x.width * len(offsets), x.context, dim)
