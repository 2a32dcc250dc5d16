"""Fixed-point programs made ready to run many times with numpy: names and attributes are looked up once."""

from __future__ import annotations

from collections.abc import Sequence

from amphw.ir.primitives import RowContext
from amphw.rtl.fixed.operations import OPERATIONS, Array, Narrow, Params, plain
from amphw.rtl.fixed.program import FixedProgram


class FixedKernel:
    """A fixed-point program as a list of steps over value numbers."""

    __slots__ = ("_outputs", "_steps")

    def __init__(self, program: FixedProgram):
        self._steps = [(OPERATIONS[o.op], o.attr(), o.args) for o in program.operations]
        self._outputs = program.outputs

    def run(
        self,
        ctx: RowContext,
        inputs: Sequence[Array],
        ints: Sequence[Array],
        params: Params,
        narrow: Narrow = plain,
    ) -> list[Array]:
        """Evaluate over all rows of a frame -> the outputs, int64.

        inputs: [rows, width], or [rows] for an integer one; ints: [rows]; params: visible weights by name;
        all int64. narrow: what rounds and saturates, and may count.
        """
        values: list[Array] = [*inputs, *ints]
        for evaluate, attrs, args in self._steps:
            values.append(evaluate(ctx, attrs, params, [values[a] for a in args], narrow))
        return [values[o] for o in self._outputs]
