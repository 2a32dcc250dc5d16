"""Commands before their addresses are known."""

from __future__ import annotations

from dataclasses import dataclass

from amphw.rtl.isa.commands import BINARY, IndexMode, LaneOp, VectorOp
from amphw.rtl.microcode.arrays import View
from amphw.rtl.plan.stack import ParameterPlace


@dataclass(frozen=True)
class VectorCommand:
    """One command of the vector unit over [rows of `space`, columns of d].

    across: the inner loop is over a's rows ("rows") or a's columns ("columns"), which a reduction makes one;
    None: no reduction, an element of d for each of a. index: numbers of rows or columns, one for each row of
    `space`; scale: what they count; reach: all that an operand can be which an index of columns moves.
    """

    op: VectorOp
    space: str
    d: View
    a: View | None = None
    b: View | None = None
    constant: int = 0
    shift: int = 0
    table: int = 0
    across: str | None = None
    mode: IndexMode = IndexMode.NONE
    index: View | None = None
    scale: int = 0
    reach: View | None = None

    def __post_init__(self) -> None:
        assert (self.b is not None) == (self.op in BINARY and self.mode != IndexMode.ADD_D)
        assert (self.a is None) == (self.op == VectorOp.FILL)

    @property
    def reads(self) -> list[View]:
        a = self.reach if self.reach is not None and self.mode == IndexMode.A else self.a
        also = self.d if self.mode == IndexMode.ADD_D else None
        return [v for v in (a, self.b, self.index, also) if v is not None]

    @property
    def writes(self) -> list[View]:
        return [self.reach if self.reach is not None and self.mode == IndexMode.D else self.d]


@dataclass(frozen=True)
class LaneCommand:
    """One command of the lane engine for all rows of `space`. y is written; x and dz are read."""

    op: LaneOp
    space: str
    place: ParameterPlace
    x: View | None = None
    y: View | None = None
    dz: View | None = None
    bias: bool = False
    want_dw: bool = False

    @property
    def reads(self) -> list[View]:
        return [v for v in (self.x, self.dz) if v is not None]

    @property
    def writes(self) -> list[View]:
        return [] if self.y is None else [self.y]


Command = VectorCommand | LaneCommand


def depend(first: Command, second: Command) -> bool:
    """Whether one writes what the other reads or writes: their order must stay."""
    touched = ((first.writes, [*second.reads, *second.writes]), (first.reads, second.writes))
    return any(a.meets(b) for some, others in touched for a in some for b in others)
