"""Tile code: a program lowered to phases over row pointers, as the C++ engine runs it.

A *base* is a list of row pointers, one for each row of a tile; everything that a program touches is one: an
operand's rows (a gather is a pointer), stores of outputs and residuals, gradient rows, rows of the gradient
log, scratch, parameter rows. An instruction names its operands as (base, column offset), so slices and
concatenations cost nothing. Its operations are in `operations`, the C++ engine's enumerators are made of
those here (`native_headers`). `tiling.py` makes tile code.

`print(code)` is readable: `x0` is operand 0, `y0` an output, `s0` saved, `dx0` and `dy0` gradients, `log0` a
gradient-log buffer, `t0` scratch, `p0` a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from amphw.engine.tiles.operations import SETS_INT, WITH_CONSTANT, WRITES_ONE, Op, reads_one


class Place(IntEnum):
    """Whose rows a base stands for."""

    Operand = 0  # of in-port `index`, wherever their sender stored them
    Output = 1  # of the program's output `index`
    Saved = 2  # of residual value `index`
    InputGradient = 3  # the gradient of in-port `index`
    OutputGradient = 4  # the gradient of output `index`, summed over what came back
    Log = 5  # of gradient-log buffer `index`
    Scratch = 6  # rows that live for one tile
    Constant = 7  # a row of `index` (0 or 1) in every column
    Param = 8  # vector parameter `index`, the same row for all
    ParamRow = 9  # a row of table `index`, a parameter or a folded one, chosen by integer slot `ints`


class PhaseKind(IntEnum):
    """What a phase does to all rows of a tile."""

    Rows = 0  # `code`, row by row over `space`
    Gemm = 1  # d[0..width) (+)= [a segments] @ W (or @ W' where transposed) (+ bias, or rows of `start`)
    SumRows = 2  # d over `space` = the sum of `from_` over the message's rows of `source`
    MaxRows = 3  # likewise the maximum; 0 for a message without rows
    SpreadRows = 4  # d over `space` = the message's one row of `source`
    GatherRows = 5  # d over `space` = row [ints] of the message's rows of `source`
    ScatterRows = 6  # d over `space` = 0, then row [ints] of it += each row of `source`
    Patches = 7  # d over `space` = the windows of the image in each row of `source`, one behind the other
    Unpatch = 8  # d over `space` = 0, then the pixels of each window in `source` are added to its image
    Attend = 9  # d over `space` = the primitive of that name, of the rows `a`; so of the next two
    AttendQueries = 10
    AttendKeys = 11


ATTENTION: Mapping[PhaseKind, str] = {
    PhaseKind.Attend: "attend",
    PhaseKind.AttendQueries: "attend_queries",
    PhaseKind.AttendKeys: "attend_keys",
}
"""The phases of attention, and their primitives, which say in which space each operand lies."""

MAX_INT_ARGS = 8


@dataclass(frozen=True, slots=True)
class Base:
    """A row pointer for each row of a space; width in floats. ints: the slot that chooses a ParamRow."""

    place: Place
    index: int
    width: int
    space: int
    ints: int = -1

    def __str__(self) -> str:
        if self.place == Place.Constant:
            return "one" if self.index else "zero"
        if self.place == Place.ParamRow:
            return f"p{self.index}[i{self.ints}]"
        return f"{_PREFIX[self.place]}{self.index}"


_PREFIX = {
    Place.Operand: "x",
    Place.Output: "y",
    Place.Saved: "s",
    Place.InputGradient: "dx",
    Place.OutputGradient: "dy",
    Place.Log: "log",
    Place.Scratch: "t",
    Place.Param: "p",
}


@dataclass(frozen=True, slots=True)
class Ref:
    """A column of a base; base -1: none."""

    base: int = -1
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Instr:
    """One operation on one row: n is the width, f a constant, ints are integer slots."""

    op: Op
    n: int
    d: Ref = Ref()
    a: Ref = Ref()
    b: Ref = Ref()
    c: Ref = Ref()
    f: float = 0.0
    ints: tuple[int, ...] = ()
    seed: int = 0

    def reads(self) -> Iterator[tuple[Ref, int]]:
        """The operands, each with how many of its columns are read."""
        for position, ref in enumerate((self.a, self.b, self.c)):
            if ref.base < 0:
                continue
            if position == 0 and self.op == Op.LoadInt:
                yield ref, 2
            elif reads_one(self.op, position):
                yield ref, 1
            else:
                yield ref, self.n

    @property
    def written(self) -> int:
        """Columns of `d` that are written."""
        if self.op in SETS_INT:
            return 0
        return 2 if self.op == Op.SaveInt else 1 if self.op in WRITES_ONE else self.n


@dataclass(frozen=True, slots=True)
class Segment:
    """Columns of a product's left side."""

    at: Ref
    width: int


@dataclass(frozen=True, slots=True)
class Phase:
    """A step over all rows of a tile. from_ is called `from` in the C++ struct.

    windows: of Patches and Unpatch, the image's height, width and channels, the window's height and width,
    its stride and the padding. heads: of attention, whose operands are `a`; ints: the slot of how many rows
    each query looks at, -1 for all.
    """

    kind: PhaseKind
    space: int = 0
    code: tuple[Instr, ...] = ()
    param: int = -1
    bias: int = -1
    transposed: bool = False
    accumulate: bool = False
    start: int = -1
    first_row: int = -1
    a: tuple[Segment, ...] = ()
    d: Ref = Ref()
    width: int = 0
    from_: Ref = Ref()
    source: int = 0
    ints: int = -1
    windows: tuple[int, ...] = ()
    heads: int = 0


@dataclass(frozen=True, slots=True)
class Code:
    """A lowered program. int_operands: by slot, the unit's integer operand, or -1 where the code makes it.

    int_spaces: by slot. int_outputs: by output of the program the slot of an integer one, -1 for a float one.
    factors: where a tile may cut a message between rows of space 0, because no other rows meet, the rows that
    each space has for one of them; () where it may not.
    """

    bases: tuple[Base, ...]
    int_operands: tuple[int, ...]
    int_spaces: tuple[int, ...]
    phases: tuple[Phase, ...]
    int_outputs: tuple[int, ...] = ()
    factors: tuple[int, ...] = (1,)

    def instructions(self) -> list[Instr]:
        """Those of all phases, in order."""
        return [i for p in self.phases for i in p.code]

    def __str__(self) -> str:
        lines = []
        for phase in self.phases:
            if phase.kind == PhaseKind.Rows:
                lines.append("rows:" if self.factors == (1,) else f"rows of space {phase.space}:")
                lines += [f"  {self._instr(i)}" for i in phase.code]
            else:
                lines.append(self._gemm(phase) if phase.kind == PhaseKind.Gemm else self._move(phase))
        return "\n".join(lines)

    def _at(self, ref: Ref, width: int) -> str:
        base = self.bases[ref.base]
        whole = ref.offset == 0 and width == base.width
        if whole or base.place == Place.Constant:
            return str(base)
        return f"{base}[{ref.offset}:{ref.offset + width}]"

    def _instr(self, i: Instr) -> str:
        slots = [f"i{s}" for s in i.ints]
        target = slots.pop(0) if i.op in SETS_INT else self._at(i.d, i.written)
        arguments = [self._at(ref, width) for ref, width in i.reads()] + slots
        if i.op in WITH_CONSTANT:
            arguments.append(f"{i.f:g}")
        return f"{target} = {i.op.name}({', '.join(arguments)})"

    def _gemm(self, p: Phase) -> str:
        left = ", ".join(self._at(s.at, s.width) for s in p.a)
        sign, prime = "+=" if p.accumulate else "=", "'" if p.transposed else ""
        bias = f" + p{p.bias}" if p.bias >= 0 else f" + {self.bases[p.start]}" if p.start >= 0 else ""
        depth = p.width if p.transposed else sum(s.width for s in p.a)
        rows = f"[{p.first_row}:{p.first_row + depth}]" if p.first_row >= 0 else ""
        return f"gemm: {self._at(p.d, p.width)} {sign} [{left}] @ p{p.param}{rows}{prime}{bias}"

    def _move(self, p: Phase) -> str:
        index = f", i{p.ints}" if p.ints >= 0 else ""
        where = f" (space {p.source} to {p.space})"
        if p.kind in ATTENTION:
            rows = ", ".join(self._at(s.at, s.width) for s in p.a)
            return (
                f"attention: {self._at(p.d, p.width)} = {p.kind.name}({rows}{index}, {p.heads} heads){where}"
            )
        if p.windows:
            index, image = f", {p.windows}", p.windows[0] * p.windows[1] * p.windows[2]
            width = image if p.kind == PhaseKind.Patches else p.windows[3] * p.windows[4] * p.windows[2]
        else:
            width = p.width
        return f"move: {self._at(p.d, p.width)} = {p.kind.name}({self._at(p.from_, width)}{index}){where}"


@dataclass(frozen=True, slots=True)
class Term:
    """One contribution to the gradient of parameter number `param`, from the rows of one log entry.

    kind "matmul": log x' @ log d; "sum": column sums of log d; "take": log d added at the rows that the
    integer slot `ints` of the backward code names. x, d: log buffers; -1: none. first_row: where in the
    parameter's gradient the rows of a "matmul" begin.
    """

    kind: str
    param: int
    x: int
    d: int
    ints: int = -1
    first_row: int = 0


@dataclass(frozen=True, slots=True)
class Fold:
    """A table T = E @ W[first_row : first_row + width] (+ b) that the executor keeps beside the parameters.

    table, weight, bias: numbers of the parameters E, W and b (-1: none); width: columns of E. Codes and terms
    number T behind the unit's parameters, in the order of the folds. `fold` says what it is good for.
    """

    table: int
    weight: int
    first_row: int
    width: int
    bias: int = -1

    @property
    def rest(self) -> int:
        """The first of W's other rows."""
        return 0 if self.first_row else self.width


@dataclass(frozen=True, slots=True)
class TiledUnit:
    """A unit's programs as tile code. Widths in floats, spaces by number.

    saved, log_buffers: (width, space) of each. log_ints: integer slots of the backward code that belong in
    the log. backward: None where nothing is to be computed, neither a gradient nor a log.

    What an executor must hold to: the operands, outputs and saved rows that `backward` has bases for stay as
    they are until it has run. Outputs, saved rows, logs and scratch are read back within a tile, so each row
    is a row of its own. Input gradients are read only by what overwrites them, so unwanted ones may share a
    row. Rows of tables are looked up when a phase begins, not before: an earlier phase may choose them.

    shared: operands all of whose messages get the same gradient, one row for each firing, in the space
    "rows".
    """

    spaces: tuple[str, ...]
    saved: tuple[tuple[int, int], ...]
    forward: Code
    inference: Code
    backward: Code | None
    log_buffers: tuple[tuple[int, int], ...] = ()
    log_ints: tuple[int, ...] = ()
    terms: tuple[Term, ...] = ()
    folds: tuple[Fold, ...] = ()
    shared: tuple[int, ...] = ()
