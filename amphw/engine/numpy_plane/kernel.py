"""Kernels: a program made ready to run many times with numpy.

Same mathematics, instruction by instruction, as `Program.run`, and the same bits: dictionaries are resolved
once, a bias is added by broadcasting instead of being spread over the rows first, and a result is written
over an operand that nothing reads any more. The last two save memory traffic, which is what small frames are
made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from amphw.ir.primitives import PRIMITIVES, RowContext
from amphw.ir.primitives.base import Product
from amphw.ir.primitives.elementwise import UFUNCS
from amphw.ir.program import Instr, Program

Step = Callable[[RowContext, Mapping[str, np.ndarray], list[Any]], Any]

FRESH = frozenset(
    n for n, p in PRIMITIVES.items() if p.flops == "product" or (p.kernel is not None and not p.view)
)
"""Primitives whose result is an array of its own, so that it may be overwritten."""

VIEWS = frozenset(n for n, p in PRIMITIVES.items() if p.view)
"""Primitives whose operand must stay as it is."""


class Kernel:
    """A program as a list of closures over value numbers. product: how rows are multiplied by a matrix; None:
    as they are, by numpy."""

    __slots__ = ("_outputs", "_steps")

    def __init__(self, program: Program, product: Product | None = None):
        first = len(program.inputs) + len(program.ints)
        made = {first + i: instr for i, instr in enumerate(program.instrs)}
        uses = Counter(a for instr in program.instrs for a in instr.args)
        uses.update(program.outputs)
        biases = {
            v: instr.attr()["param"]
            for v, instr in made.items()
            if instr.op == "row_param" and v not in program.outputs and _only_added(v, program)
        }
        kept = set(program.outputs) | {a for i in program.instrs if i.op in VIEWS for a in i.args}
        free = {v for v, i in made.items() if i.op in FRESH and uses[v] == 1 and v not in kept}
        self._steps: list[Step] = [
            _nothing if v in biases else _step(instr, biases, free, product) for v, instr in made.items()
        ]
        self._outputs = program.outputs

    def run(
        self,
        ctx: RowContext,
        inputs: Sequence[np.ndarray],
        ints: Sequence[np.ndarray],
        params: Mapping[str, np.ndarray],
    ) -> list[np.ndarray]:
        """As `Program.run`."""
        values: list[Any] = [*inputs, *ints]
        append = values.append
        for step in self._steps:
            append(step(ctx, params, values))
        return [values[o] for o in self._outputs]


def _only_added(value: int, program: Program) -> bool:
    """Whether the value is read as the second operand of sums alone."""
    readers = [i for i in program.instrs if value in i.args]
    return all(i.op == "add" and i.args[1] == value and i.args[0] != value for i in readers)


def _nothing(ctx: RowContext, params: Mapping[str, np.ndarray], values: list[Any]) -> None:
    return None


def _step(instr: Instr, biases: Mapping[int, str], free: set[int], product: Product | None) -> Step:
    args, op = instr.args, instr.op
    attrs = instr.attr()
    if op in {"matmul", "matmul_t"}:
        return _product(args[0], attrs["param"], op == "matmul_t", product)
    if op in UFUNCS:
        # A value used once is dead after this instruction.
        over = next((a for a in args if a in free), None)
        if op == "add" and args[1] in biases:
            return _biased(args[0], biases[args[1]], over)
        return _elementwise(UFUNCS[op], args, over)
    evaluate = PRIMITIVES[op].evaluate
    return lambda ctx, params, values: evaluate(ctx, attrs, params, [values[a] for a in args])


def _product(x: int, param: str, transposed: bool, product: Product | None) -> Step:
    if product is not None:
        turned = np.transpose if transposed else np.asarray
        return lambda ctx, params, values: product(values[x], turned(params[param]))
    if transposed:
        return lambda ctx, params, values: values[x] @ params[param].T
    return lambda ctx, params, values: values[x] @ params[param]


def _biased(x: int, param: str, over: int | None) -> Step:
    if over is None:
        return lambda ctx, params, values: values[x] + params[param]
    return lambda ctx, params, values: np.add(values[x], params[param], out=values[over])


def _elementwise(f: np.ufunc, args: tuple[int, ...], over: int | None) -> Step:
    if len(args) == 1:
        (a,) = args
        if over is None:
            return lambda ctx, params, values: f(values[a])
        return lambda ctx, params, values: f(values[a], out=values[over])
    a, b = args
    if over is None:
        return lambda ctx, params, values: f(values[a], values[b])
    return lambda ctx, params, values: f(values[a], values[b], out=values[over])
