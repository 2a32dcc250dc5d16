"""The table of tile operations: what one instruction of tile code does to a row.

Elementwise primitives are operations under their own names, as their rows in `amphw.ir.primitives` have them.
The others are listed here: what tile code has in addition, because it joins operations (`fuse`) and
because it moves numbers between rows and integers. Numbers of operations, the C++ engine's enumerators and
functions (`native_headers`) and the OpenCL device's expressions follow from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import EnumMeta, IntEnum
from typing import TYPE_CHECKING

from amphw.ir.primitives import PRIMITIVES
from amphw.ir.primitives.kernel_text import Function, KernelText

FUSED = {
    "fma": "a * b + c",
    "add_relu": "relu(a + b)",
    "exp_sub": "exp(a - b)",
    "mul_step": "return b > 0.0f ? a : all(0.0f);",
    "d_sigmoid": "a * (b * (1.0f - b))",
    "d_tanh": "a * (1.0f - b * b)",
    "mul_d_sigmoid": "a * b * (c * (1.0f - c))",
    "mul_d_tanh": "a * b * (1.0f - c * c)",
}
"""Several elementwise operations in one."""

BY_COLUMN = {"AddCol": "add", "SubCol": "sub", "MulCol": "mul", "DivCol": "div", "ExpSubCol": "exp_sub"}
"""An elementwise operation whose second operand is one column for all."""

OTHERS = {
    "Mov": "d = a",
    "Fill": "d = f",
    "SumCols": "d[0] = the sum of a[0..n)",
    "MaxCols": "d[0] = the maximum of a[0..n)",
    "SpreadCols": "d[0..n) = a[0]",
    "Pick": "d[0] = a[i0]; i0 outside 0..n-1 is an error",
    "Place": "d[0..n) = 0, d[i0] = a[0]; i0 outside 0..n-1 is an error",
    "AddAt": "d = a, d[i0] += b[0]; i0 outside 0..n-1 is an error",
    "Dropout": "d = a * mask(i...) / (1 - f); seed in `seed`",
    "Argmax": "integer i0 = the column of the maximum of a[0..n), of equals the first; a NaN is largest",
    "Above": "integer i0 = a[0] > f",
    "ToInt": "integer i0 = a[0], which is whole; anything else is an error",
    "Uniform": "d = numbers in [0, 1) by i...; seed in `seed`",
    "ToFloat": "d[0] = i0",
    "SameInt": "d[0] = i0 == i1",
    "SaveInt": "d[0..2) holds the 64 bits of i0",
    "LoadInt": "integer i0 = the 64 bits of a[0..2)",
}
"""What has no text that all executors share. d, a: rows; n: the width; f: a constant; i: integer slots."""


def camel(name: str) -> str:
    """As enumerators are written: two_words becomes TwoWords."""
    return "".join(word.capitalize() for word in name.split("_"))


PRIMITIVE_OPERATIONS = {n: camel(n) for n, p in PRIMITIVES.items() if p.kernel is not None}
"""By elementwise primitive the name of its operation."""

TEXTS: Mapping[str, Function] = {
    **{camel(n): Function.of(n, p.kernel) for n, p in PRIMITIVES.items() if p.kernel is not None},
    **{camel(n): Function.of(n, KernelText(text)) for n, text in FUSED.items()},
}
"""By elementwise operation what it computes, as a function."""


class _Names(EnumMeta):
    """The enumerators come from the table, so a type checker cannot list them."""

    if TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Op: ...


class Op(IntEnum, metaclass=_Names):
    """What one instruction does to a row; the numbers are those of the C++ engine."""

    vars().update({name: number for number, name in enumerate([*OTHERS, *BY_COLUMN, *TEXTS])})


SETS_INT = frozenset({Op.Argmax, Op.Above, Op.ToInt, Op.LoadInt})
"""Operations that write the integer slot `ints[0]` instead of a row."""

WRITES_ONE = frozenset({Op.SumCols, Op.MaxCols, Op.Pick, Op.ToFloat, Op.SameInt})
"""Operations that write one column, whatever `n`."""

READS_ONE = frozenset({Op.SpreadCols, Op.Place, Op.Above, Op.ToInt})
"""Operations that read one column of `a`."""

COLUMN_OPS = frozenset(Op[name] for name in BY_COLUMN)
"""Elementwise operations of which `b` is one column."""

READS_ONE_BEHIND = COLUMN_OPS | {Op.AddAt}
"""Operations that read one column of `b`."""

ELEMENTWISE = frozenset(Op[name] for name in TEXTS) | COLUMN_OPS
"""Operations that make each element of the elements that stand there in their operands."""

WITH_CONSTANT = frozenset(
    {Op.Fill, Op.Above, Op.Dropout} | {Op[n] for n, f in TEXTS.items() if ("Real", "f") in f.parameters}
)
"""Operations that read the instruction's constant."""


def reads_one(op: Op, position: int) -> bool:
    """Whether one column is read of operand a, b or c, by position, whatever `n`."""
    return op in (READS_ONE, READS_ONE_BEHIND, ())[position]


def text_of(op: Op) -> Function | None:
    """What an elementwise operation computes; by column as without."""
    by_column = BY_COLUMN.get(op.name)
    return TEXTS.get(camel(by_column) if by_column else op.name)
