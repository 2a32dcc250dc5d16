"""Programs in fixed point: what the hardware computes, operation by operation.

A `FixedProgram` is a program of `amphw.ir` whose values have a kind, which says where their binary point
stands, and whose primitives have become operations that round and saturate at stated places. numpy evaluates
it (`operations`), and the hardware's microprograms are made from it: there is no second description.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from amphw.ir.expr import Expr
from amphw.ir.program import Instr, ParamSpec
from amphw.rtl.numbers.formats import Format, Formats

Kind = Literal["value", "gradient", "int"]


@dataclass(frozen=True)
class FixedType:
    """kind "value" or "gradient": [rows of `space`, width] in that format; "int": [rows], not negative."""

    kind: Kind
    space: str
    width: int

    def format(self, formats: Formats) -> Format:
        """Where the point stands; an integer has it at the end."""
        if self.kind == "int":
            return Format(0)
        return formats.value if self.kind == "value" else formats.gradient


@dataclass(frozen=True)
class FixedProgram:
    """inputs, then state expressions (`ints`), then operations number the values, as in `Program`.

    An operation's attributes hold shifts, constants, parameters, widths and spaces.

    spaces: those that the program itself opens, with their row count a message.
    """

    inputs: tuple[str, ...]
    ints: tuple[tuple[Expr, str], ...]
    params: tuple[ParamSpec, ...]
    spaces: tuple[tuple[str, Expr], ...]
    operations: tuple[Instr, ...]
    outputs: tuple[int, ...]
    types: tuple[FixedType, ...]

    @property
    def first(self) -> int:
        """Number of the first operation's value."""
        return len(self.inputs) + len(self.ints)

    def param(self, name: str) -> ParamSpec:
        return next(p for p in self.params if p.name == name)

    def numbered(self) -> Iterable[tuple[int, Instr]]:
        return enumerate(self.operations, self.first)

    def __str__(self) -> str:
        names = [*self.inputs, *(f"<{e}>" for e, _ in self.ints)]
        lines = []
        for v, operation in self.numbered():
            names.append(f"%{v - self.first}")
            extra = [f"{k}={x}" for k, x in operation.attrs]
            args = ", ".join([*(names[a] for a in operation.args), *extra])
            t = self.types[v]
            lines.append(f"{names[v]}: {t.kind} [{t.space}, {t.width}] = {operation.op}({args})")
        return "\n".join([*lines, "return " + ", ".join(names[o] for o in self.outputs)])
