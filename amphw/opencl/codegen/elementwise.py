"""Elementwise instructions as expressions, and runs of them as one pass over the columns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from amphw.engine.tiles.code import Code, Instr, Ref
from amphw.engine.tiles.operations import ELEMENTWISE, Op, reads_one, text_of
from amphw.ir.primitives.kernel_text import Function
from amphw.opencl.codegen.liveness import Liveness, Region, region
from amphw.opencl.codegen.pointers import plus
from amphw.opencl.codegen.prelude import store, with_suffixes

_MOVES = {
    Op.Mov: "{a}",
    Op.Fill: "({T})({f})",
    Op.SpreadCols: "({T})({a})",
    Op.Place: "place{S}({a}, {row}, {column})",
    Op.AddAt: "{a} + place{S}({b}, {row}, {column})",
    Op.Uniform: "drawn{S}({row}, {seed}u, {column})",
    Op.Dropout: "{a} * keep{S}({row}, {seed}u, {column}, {least}u) * {scale}",
}
"""Operations that have no text which all executors share, but are made column by column here.

row: a number that the row has for it (the column of Place and of AddAt, the word of Uniform and of Dropout).
"""


_PLACING = (Op.Place, Op.AddAt)


def _expression(f: Function) -> str:
    if not f.text.is_expression:
        return f"{f.name}{{S}}({', '.join(f'{{{name}}}' for _, name in f.parameters)})"
    named = re.sub(r"\b([abcf])\b", r"{\1}", f.text.text)
    return with_suffixes(named, "{S}")


_EXPRESSIONS = _MOVES | {op: _expression(f) for op in ELEMENTWISE if (f := text_of(op)) is not None}
"""Of each operation what it computes. T: the type, S: the suffix of its functions."""


def literal(x: float) -> str:
    """A number as a float in C."""
    x = float(np.float32(x))
    if math.isnan(x):
        return "NAN"
    if math.isinf(x):
        return "INFINITY" if x > 0 else "(-INFINITY)"
    return f"{x!r}f" if x >= 0 and not repr(x).startswith("-") else f"({x!r}f)"


@dataclass(frozen=True)
class Access:
    """How a kernel's text refers to a row: pointers by base, integers by slot, and the row's number."""

    pointer: Callable[[int], str]
    integer: Callable[[int], str]
    row: str

    def at(self, ref: Ref, column: str = "") -> str:
        """A pointer to a column, counted from the reference's own."""
        return plus(self.pointer(ref.base), ref.offset, column)


@dataclass
class Chain:
    """Consecutive elementwise instructions of one width, whose intermediate values stay in registers.

    Every region that they read or write has this width, and two of them are the same or apart: then it does
    not matter that one column goes through all instructions before the next one does. Single columns that
    they read (`scalars`) are read before, so no instruction writes them. result: what is there to begin with
    (a product).
    """

    code: Code
    width: int
    result: Ref | None = None
    instrs: list[Instr] = field(default_factory=list)
    loads: dict[Ref, int] = field(default_factory=dict)  # to the number of the instruction that reads first
    writes: dict[Ref, int] = field(default_factory=dict)  # to the number of the instruction that writes last
    scalars: set[Ref] = field(default_factory=set)
    stored: tuple[Ref, ...] = ()

    def __post_init__(self) -> None:
        if self.result is not None:
            self.writes[self.result] = -1

    def operands(self, i: Instr) -> Iterator[tuple[Ref, bool]]:
        """The operands, each with whether it is a single column for all."""
        for position, ref in enumerate((i.a, i.b, i.c)):
            if ref.base >= 0:
                one = reads_one(i.op, position)
                # The column that is put somewhere is a scalar in its function even where there is one column.
                yield ref, one and (self.width > 1 or i.op in _PLACING)

    def takes(self, i: Instr) -> bool:
        if i.op not in _EXPRESSIONS or i.n != self.width:
            return False
        columns = self._regions([*self.loads, *self.writes])
        written = self._regions(self.writes)
        for ref, one in self.operands(i):
            mine = region(ref, 1 if one else self.width)
            if any(w.overlaps(mine) and (one or w != mine) for w in written):
                return False
        target = region(i.d, self.width)
        if any(c.overlaps(target) and c != target for c in columns):
            return False
        scalars = {ref for ref, one in self.operands(i) if one} | self.scalars
        return not any(region(s, 1).overlaps(target) for s in scalars)

    def add(self, i: Instr) -> None:
        assert self.takes(i) or not self.instrs, i
        for ref, one in self.operands(i):
            if one:
                self.scalars.add(ref)
            elif ref not in self.writes:
                self.loads.setdefault(ref, len(self.instrs))
        self.writes[i.d] = len(self.instrs)
        self.instrs.append(i)

    def _regions(self, refs: list[Ref] | dict[Ref, int]) -> list[Region]:
        return [region(ref, self.width) for ref in refs]

    def decide_stores(self, liveness: Liveness, after: int) -> None:
        """Store what is read from effect number `after` on."""
        self.stored = tuple(
            ref
            for ref, last in self.writes.items()
            if last >= 0 and liveness.needed(region(ref, self.width), after)
        )

    def reads(self) -> list[Region]:
        return self._regions(self.loads) + [region(s, 1) for s in self.scalars]

    def bases(self) -> tuple[int, ...]:
        """Those that are read or stored."""
        read = [ref.base for ref in (*self.loads, *self.scalars)]
        return tuple(sorted({*read, *(ref.base for ref in self.stored)}))

    def slots(self) -> tuple[int, ...]:
        return tuple(sorted({s for i in self.instrs for s in i.ints}))

    # --- text -------------------------------------------------------------------------------------

    def before(self, access: Access) -> list[str]:
        """Statements for each row: single columns, and what the row's integers choose."""
        out = [
            f"const float {self._scalar(ref)} = *({access.at(ref)});"
            for ref in sorted(self.scalars, key=lambda s: (s.base, s.offset))
        ]
        for k, i in enumerate(self.instrs):
            if i.op in _PLACING:
                index = access.integer(i.ints[0])
                out.append(f"const int n{k} = checked({index}, {i.n}, faults, FAULT_PLACE, {access.row});")
            elif i.op in (Op.Dropout, Op.Uniform):
                out.append(f"uint n{k} = 0;")
                out += [
                    f"n{k} = philox_s((uint){access.integer(s)}, n{k}, {i.seed & 0xFFFFFFFF}u);"
                    for s in i.ints
                ]
        return out

    def body(self, access: Access, column: str, size: int, value: str = "", count: str = "") -> list[str]:
        """Statements for the `size` columns from `column` on.

        value: of the chain's result. count: how many of the columns there are, if not all, a number or an
        expression.
        """
        names = {} if self.result is None else {self.result: value}
        kind, load = ("float", "*({})") if size == 1 else ("V", "LOAD({})")
        out: list[str] = []
        for k, i in enumerate(self.instrs):
            for ref, one in self.operands(i):
                if not one and ref not in names:
                    names[ref] = f"a{len(names)}"
                    out.append(f"const {kind} {names[ref]} = {load.format(access.at(ref, column))};")
            out.append(f"const {kind} v{k} = {self._value(k, i, names, column, size)};")
            names[i.d] = f"v{k}"
        for ref in self.stored:
            out += _store(access.at(ref, column), names[ref], count, size)
        return out

    def _value(self, k: int, i: Instr, names: dict[Ref, str], column: str, size: int) -> str:
        found = [self._scalar(ref) if one else names[ref] for ref, one in self.operands(i)]
        a, b, c = found + [""] * (3 - len(found))
        return _EXPRESSIONS[i.op].format(
            a=a,
            b=b,
            c=c,
            f=literal(i.f),
            T="float" if size == 1 else "V",
            S="_s" if size == 1 else "_v",
            row=f"n{k}",
            column=column,
            seed=i.seed & 0xFFFFFFFF,
            least=math.ceil(float(np.float32(i.f)) * 2**24) if i.op == Op.Dropout else 0,
            scale=literal(1 / (1 - i.f)) if i.op == Op.Dropout else "",
        )

    def _scalar(self, ref: Ref) -> str:
        return f"s{ref.base}_{ref.offset}"


def _store(pointer: str, value: str, count: str, size: int) -> list[str]:
    """Statements that write the first `count` columns of a value, all of them where it is empty."""
    if not count or count.isdecimal():
        return store(pointer, value, min(int(count or size), size), size)
    whole = store(pointer, value, size, size)
    if size == 1:
        return whole
    return [f"if (({count}) >= {size}) {whole[0]}", f"else store_some({pointer}, {value}, {count});"]
