"""Fixed-point programs made ready to run many times with numpy: names and attributes are looked up once."""

from __future__ import annotations

from collections.abc import Sequence

from amphw.ir.primitives import RowContext
from amphw.rtl.fixed.operations import OPERATIONS, Array, Narrow, Params, plain
from amphw.rtl.fixed.program import FixedProgram


class FixedKernel:
    """A fixed-point program as a list of steps over value numbers.

    narrows: for each of the program's operations what rounds and saturates there, and may count.
    """

    __slots__ = ("_outputs", "_steps")

    def __init__(self, program: FixedProgram, narrows: Sequence[Narrow] | None = None):
        chosen = narrows if narrows is not None else [plain] * len(program.operations)
        self._steps = [
            (OPERATIONS[o.op], o.attr(), o.args, narrow)
            for o, narrow in zip(program.operations, chosen, strict=True)
        ]
        self._outputs = program.outputs

    def run(
        self, ctx: RowContext, inputs: Sequence[Array], ints: Sequence[Array], params: Params
    ) -> list[Array]:
        """Evaluate over all rows of a frame -> the outputs, int64.

        inputs: [rows, width], or [rows] for an integer one; ints: [rows]; params: visible weights by name,
        which may be float64; all else int64.
        """
        values: list[Array] = [*inputs, *ints]
        for evaluate, attrs, args, narrow in self._steps:
            values.append(evaluate(ctx, attrs, params, [values[a] for a in args], narrow))
        return [values[o] for o in self._outputs]
