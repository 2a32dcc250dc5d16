"""From a program to a draft: every primitive as tile operations on pieces of rows.

Elementwise primitives are cut into atoms, at every column where an operand or a reader begins or ends. So an
atom reads one piece of each operand and is read as a whole; the derivative of a `slice` (a pad) and sums of
such pads dissolve into rows of pieces; and what may be done to one gate of a cell is not hindered by what is
done to another. `merge` puts atoms together again. Sums of products and a bias become one product, which
begins with a row of a table where an embedding is folded into it (`fold`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from amphw.engine.tiles.code import ATTENTION, MAX_INT_ARGS, Base, Fold, PhaseKind, Place
from amphw.engine.tiles.draft import (
    ZERO,
    Draft,
    Kind,
    Node,
    Product,
    Row,
    boundaries,
    joined,
    part,
    width_of,
    zeros,
)
from amphw.engine.tiles.operations import PRIMITIVE_OPERATIONS, Op
from amphw.ir.errors import ProgramError
from amphw.ir.program import Instr, Program

ELEMENTWISE: Mapping[str, Op] = {n: Op[name] for n, name in PRIMITIVE_OPERATIONS.items()}

MOVES: Mapping[str, PhaseKind] = {
    "sum_rows": PhaseKind.SumRows,
    "max_rows": PhaseKind.MaxRows,
    "spread_rows": PhaseKind.SpreadRows,
    "gather_rows": PhaseKind.GatherRows,
    "scatter_rows": PhaseKind.ScatterRows,
    "patches": PhaseKind.Patches,
    "unpatch": PhaseKind.Unpatch,
    **{name: kind for kind, name in ATTENTION.items()},
}

PRODUCTS = frozenset({"matmul", "matmul_t"})

TRANSPARENT = frozenset({*ELEMENTWISE, "stop_gradient", "slice", "concat", "pad", "spread_cols", "zeros"})
"""Primitives whose result may be cut wherever a reader wishes."""

Attrs = dict[str, Any]
Result = Row | int
"""A program's value in a draft: a row, or the slot of an integer."""


@dataclass(frozen=True)
class Sum:
    """A tree of additions over at least one product, taken apart."""

    products: tuple[int, ...]
    bias: int | None
    rest: tuple[int, ...]


@dataclass(frozen=True)
class Names:
    """Numbers of the unit's row spaces and parameters, what is folded, `Code.factors`, and whether products
    round what they multiply."""

    spaces: Mapping[str, int]
    params: Mapping[str, int]
    folds: tuple[Fold, ...] = ()
    factors: tuple[int, ...] = (1,)
    rounded: bool = False

    def folded(self, fold: Fold) -> int:
        """The number of a fold's table, behind the parameters."""
        return len(self.params) + self.folds.index(fold)


def build(
    draft: Draft, program: Program, names: Names, inputs: Sequence[Result], ints: Sequence[int]
) -> list[Result]:
    """Add the program to a draft -> its values. inputs: rows or slots; ints: slots."""
    return _Build(draft, program, names, inputs, ints).run()


class _Build:
    def __init__(
        self, draft: Draft, program: Program, names: Names, inputs: Sequence[Result], ints: Sequence[int]
    ):
        self.draft, self.program, self.names = draft, program, names
        self.values: list[Result] = [*inputs, *ints]
        self.first = len(self.values)
        self.made = {self.first + i: instr for i, instr in enumerate(program.instrs)}
        self.folds = {f.weight: f for f in names.folds}
        self.sums, self.absorbed = self._sums()
        self.cuts = self._cuts()
        self.packs: dict[Row, Row] = {}

    def run(self) -> list[Result]:
        for v, instr in self.made.items():
            if v in self.sums:
                self.values.append(self._sum(v, self.sums[v]))
            elif v in self.absorbed or not self.program.types[v].width:
                self.values.append(())
            else:
                self.values.append(self._value(v, instr))
        return self.values

    # --- sums of products -----------------------------------------------------------------------

    def _sums(self) -> tuple[dict[int, Sum], set[int]]:
        uses = Counter(a for i in self.program.instrs for a in i.args)
        uses.update(self.program.outputs)
        inner = {
            a
            for i in self.program.instrs
            if i.op == "add"
            for a in i.args
            if a in self.made and self.made[a].op == "add" and uses[a] == 1
        }
        sums: dict[int, Sum] = {}
        absorbed: set[int] = set()
        for v, instr in self.made.items():
            if instr.op != "add" or v in inner:
                continue
            leaves, adds = self._leaves(v, inner)
            folded = [a for a in leaves if self._is_folded_bias(a)]
            leaves = [a for a in leaves if a not in folded]
            products = [a for a in leaves if self._op(a) in PRODUCTS and uses[a] == 1]
            biases = [a for a in leaves if self._op(a) == "row_param"][:1]
            if products and len(products) + len(biases) + len(folded) > 1:
                rest = [a for a in leaves if a not in products]
                for a in biases:
                    rest.remove(a)  # once: a bias that is added twice is one value with two readers
                sums[v] = Sum(tuple(products), biases[0] if biases else None, tuple(rest))
                absorbed.update(products, adds)
        return sums, absorbed

    def _op(self, v: int) -> str:
        return self.made[v].op if v in self.made else ""

    def _is_folded_bias(self, v: int) -> bool:
        if self._op(v) != "row_param":
            return False
        return any(f.bias == self._param(self.made[v]) for f in self.names.folds)

    def _leaves(self, root: int, inner: set[int]) -> tuple[list[int], list[int]]:
        """What a tree of additions adds up, left to right, and the additions below the root."""
        leaves, adds, stack = [], [], list(reversed(self.made[root].args))
        while stack:
            a = stack.pop()
            if a in inner:
                adds.append(a)
                stack.extend(reversed(self.made[a].args))
            else:
                leaves.append(a)
        return leaves, adds

    def _sum(self, v: int, s: Sum) -> Row:
        products = [self.made[p] for p in s.products]
        total = self._product(v, products, -1 if s.bias is None else self._param(self.made[s.bias]))
        for a in s.rest:
            total = self._elementwise(v, Op.Add, [total, self._row(a)])
        return total

    # --- where elementwise values are cut ---------------------------------------------------------

    def _cuts(self) -> list[set[int]]:
        """By value: the inner columns at which it is cut."""
        cuts = [boundaries(v) if isinstance(v, tuple) else set[int]() for v in self.values]
        cuts += [self._gap(v) for v in self.made]
        before = -1
        while (count := sum(map(len, cuts))) != before:
            before = count
            for v in self.made:
                self._spread_cuts(cuts, v)
        return cuts

    def _gap(self, v: int) -> set[int]:
        """Where the gradient of a folded product's left side passes from the embedding to the rest."""
        instr = self.made[v]
        fold = self.folds.get(self._param(instr)) if instr.op == "matmul_t" else None
        return set() if fold is None else {fold.first_row or fold.width} - {self._width(v)}

    def _spread_cuts(self, cuts: list[set[int]], v: int) -> None:
        """Let a value and its operands agree on their cuts; what is no atom has none."""
        instr = self.made[v]
        if v in self.sums:
            shifts = [(a, 0) for a in self.sums[v].rest]
        elif v in self.absorbed:
            return
        elif instr.op in ELEMENTWISE or instr.op == "stop_gradient":
            shifts = [(a, 0) for a in instr.args]
        elif instr.op == "slice":
            shifts = [(instr.args[0], -instr.attr()["start"])]
        elif instr.op == "pad":
            shifts = [(instr.args[0], instr.attr()["start"])]
        elif instr.op == "concat":
            shifts, at = [], 0
            for a in instr.args:
                shifts.append((a, at))
                at += self._width(a)
        else:
            return
        mine, width = cuts[v], self._width(v)
        for a, shift in shifts:
            theirs, there = cuts[a], self._width(a)
            ends = {shift, shift + there}
            mine |= {c for c in ends | {c + shift for c in theirs} if 0 < c < width}
            if self._op(a) in TRANSPARENT or a in self.sums:
                wanted = {-shift, width - shift} | {c - shift for c in mine}
                theirs |= {c for c in wanted if 0 < c < there}

    def _width(self, v: int) -> int:
        return self.program.types[v].width

    # --- primitives -------------------------------------------------------------------------------

    def _row(self, v: int) -> Row:
        row = self.values[v]
        assert isinstance(row, tuple)
        return row

    def _slot(self, v: int) -> int:
        slot = self.values[v]
        assert isinstance(slot, int)
        return slot

    def _space(self, v: int) -> int:
        return self.names.spaces[self.program.types[v].space]

    def _param(self, instr: Instr) -> int:
        return self.names.params[instr.attr()["param"]]

    def _value(self, v: int, instr: Instr) -> Result:
        op, attrs = instr.op, instr.attr()
        if op in ELEMENTWISE:
            rows = [self._row(a) for a in instr.args]
            return self._elementwise(v, ELEMENTWISE[op], rows, attrs.get("factor", 0.0))
        if op == "matmul_t" and self._param(instr) in self.folds:
            return self._folded_gradient(v, instr)
        if op in PRODUCTS:
            return self._product(v, [instr], -1)
        if op in MOVES:
            return self._move(v, instr)
        simple = getattr(self, f"_{op}", None)
        if simple is None:
            raise ProgramError(f"the primitive '{op}' has no tile code")
        result: Result = simple(v, instr.args, attrs)
        return result

    def _elementwise(self, v: int, op: Op, rows: list[Row], f: float = 0.0) -> Row:
        ends = sorted({0, self._width(v)} | self.cuts[v])
        atoms = (
            self._atom(v, op, [part(r, start, end - start) for r in rows], f)
            for start, end in zip(ends, ends[1:], strict=False)
        )
        return joined(p for atom in atoms for p in atom)

    def _atom(self, v: int, op: Op, rows: list[Row], f: float) -> Row:
        assert all(len(r) == 1 for r in rows), (op, rows)
        space, width = self._space(v), width_of(rows[0])
        empty = [r[0].var == ZERO for r in rows]
        if op == Op.Add and any(empty):
            return rows[0] if empty[1] else rows[1]
        if op == Op.Sub and empty[1]:
            return rows[0]
        if op == Op.Sub and empty[0]:
            return self.draft.instr(Op.Scale, space, width, [rows[1]], -1.0)
        if op == Op.Scale and empty[0]:
            return rows[0]
        return self.draft.instr(op, space, width, rows, f)

    def _product(self, v: int, products: Sequence[Instr], bias: int) -> Row:
        space, width = self._space(v), self._width(v)
        left: list[Row] = []
        right: list[Product] = []
        rows: list[Row] = []  # whole rows to add
        for p in products:
            row, param = self._row(p.args[0]), self._param(p)
            fold = self.folds.get(param)
            if fold is None:
                left.append(row)
                right.append(Product(param, p.op == "matmul_t"))
                continue
            rows.append(self._folded_row(fold, row, width))
            rest = part(row, fold.rest, width_of(row) - fold.width)
            if rest:
                left.append(rest)
                right.append(Product(param, first_row=fold.rest))
        if bias >= 0 and rows:
            rows.append(self.draft.source(Base(Place.Param, bias, width, space)))
            bias = -1
        if not right:
            total, rows = rows[0], rows[1:]
        else:
            args, rows = (*left, *rows[:1]), rows[1:]
            total = self.draft.row(Node(Kind.Gemm, space, width, args, products=tuple(right), bias=bias))
        for row in rows:
            total = self._elementwise(v, Op.Add, [total, row])
        return total

    def _folded_row(self, fold: Fold, row: Row, width: int) -> Row:
        """The row of a fold's table that stands for the embedding at its place in a product's left side."""
        (p,) = part(row, fold.first_row, fold.width)
        taken = self.draft.nodes[p.var].base
        assert taken is not None and (taken.place, taken.index) == (Place.ParamRow, fold.table), taken
        return self.draft.source(replace(taken, index=self.names.folded(fold), width=width))

    def _folded_gradient(self, v: int, instr: Instr) -> Row:
        """The gradient of a folded product's left side, with zeros for the embedding: nobody reads them."""
        param, width = self._param(instr), self._width(v)
        fold = self.folds[param]
        rest = Node(
            Kind.Gemm,
            self._space(v),
            width - fold.width,
            (self._row(instr.args[0]),),
            products=(Product(param, True, fold.rest),),
        )
        pieces = [zeros(fold.width), self.draft.row(rest)] if rest.width else [zeros(width)]
        return joined(p for row in (pieces if not fold.first_row else reversed(pieces)) for p in row)

    def _move(self, v: int, instr: Instr) -> Row:
        attrs = instr.attr()
        floats = [a for a in instr.args if self.program.types[a].kind == "float"]
        node = Node(
            Kind.Move,
            self._space(v),
            self._width(v),
            tuple(self._whole(a) for a in floats),
            move=MOVES[instr.op],
            source=self.names.spaces[attrs["source"]],
            ints=tuple(self._slot(a) for a in instr.args if a not in floats),
            windows=_windows(attrs) if "image" in attrs else (),
            heads=attrs.get("heads", 0),
        )
        return self.draft.row(node)

    def _whole(self, v: int) -> Row:
        """A value as one piece."""
        row = self._row(v)
        if len(row) < 2:
            return row
        if row not in self.packs:
            self.packs[row] = self.draft.row(Node(Kind.Pack, self._space(v), width_of(row), (row,)))
        return self.packs[row]

    def _stop_gradient(self, v: int, args: tuple[int, ...], attrs: Attrs) -> Row:
        return self._row(args[0])

    def _slice(self, v: int, args: tuple[int, ...], attrs: Attrs) -> Row:
        return part(self._row(args[0]), attrs["start"], attrs["width"])

    def _concat(self, v: int, args: tuple[int, ...], attrs: Attrs) -> Row:
        return joined(p for a in args for p in self._row(a))

    def _pad(self, v: int, args: tuple[int, ...], attrs: Attrs) -> Row:
        behind = attrs["width"] - attrs["start"] - self._width(args[0])
        return joined([*zeros(attrs["start"]), *self._row(args[0]), *zeros(behind)])

    def _zeros(self, v: int, args: tuple[int, ...], attrs: Attrs) -> Row:
        return zeros(attrs["width"])

    def _spread_cols(self, v: int, args: tuple[int, ...], attrs: Attrs) -> Row:
        ends = sorted({0, self._width(v)} | self.cuts[v])
        rows = (
            self.draft.instr(Op.SpreadCols, self._space(v), end - start, [self._row(args[0])])
            for start, end in zip(ends, ends[1:], strict=False)
        )
        return joined(p for r in rows for p in r)

    def _sum_cols(self, v: int, args: tuple[int, ...], attrs: Attrs) -> Row:
        return self.draft.instr(Op.SumCols, self._space(v), 1, [self._whole(args[0])])

    def _max_cols(self, v: int, args: tuple[int, ...], attrs: Attrs) -> Row:
        return self.draft.instr(Op.MaxCols, self._space(v), 1, [self._whole(args[0])])

    def _pick(self, v: int, args: tuple[int, ...], attrs: Attrs) -> Row:
        slots = (self._slot(args[1]),)
        return self.draft.instr(Op.Pick, self._space(v), 1, [self._whole(args[0])], ints=slots)

    def _place(self, v: int, args: tuple[int, ...], attrs: Attrs) -> Row:
        slots = (self._slot(args[1]),)
        return self.draft.instr(Op.Place, self._space(v), attrs["width"], [self._row(args[0])], ints=slots)

    def _dropout(self, v: int, args: tuple[int, ...], attrs: Attrs) -> Row:
        slots = self._keys("dropout", args[1:])
        node = Node(
            Kind.Instr,
            self._space(v),
            self._width(v),
            (self._whole(args[0]),),
            Op.Dropout,
            f=attrs["rate"],
            ints=slots,
            seed=attrs["seed"],
        )
        return self.draft.row(node)

    def _uniform(self, v: int, args: tuple[int, ...], attrs: Attrs) -> Row:
        slots = self._keys("uniform", args)
        made = Node(
            Kind.Instr, self._space(v), self._width(v), (), Op.Uniform, ints=slots, seed=attrs["seed"]
        )
        return self.draft.row(made)

    def _keys(self, what: str, args: Sequence[int]) -> tuple[int, ...]:
        slots = tuple(self._slot(a) for a in args)
        if len(slots) > MAX_INT_ARGS:
            raise ProgramError(
                f"{what}: {len(slots)} keys, of which the CPU's tile code takes {MAX_INT_ARGS}; "
                "mix some of them into one expression"
            )
        return slots

    def _argmax(self, v: int, args: tuple[int, ...], attrs: Attrs) -> int:
        return self.draft.computed(Op.Argmax, self._space(v), [self._whole(args[0])])

    def _above(self, v: int, args: tuple[int, ...], attrs: Attrs) -> int:
        first = part(self._row(args[0]), 0, 1)
        return self.draft.computed(Op.Above, self._space(v), [first], attrs["threshold"])

    def _to_int(self, v: int, args: tuple[int, ...], attrs: Attrs) -> int:
        return self.draft.computed(Op.ToInt, self._space(v), [self._row(args[0])])

    def _to_float(self, v: int, args: tuple[int, ...], attrs: Attrs) -> Row:
        return self.draft.instr(Op.ToFloat, self._space(v), 1, ints=(self._slot(args[0]),))

    def _same_int(self, v: int, args: tuple[int, ...], attrs: Attrs) -> Row:
        slots = (self._slot(args[0]), self._slot(args[1]))
        return self.draft.instr(Op.SameInt, self._space(v), 1, ints=slots)

    def _row_param(self, v: int, args: tuple[int, ...], attrs: Attrs) -> Row:
        base = Base(Place.Param, self._param(self.made[v]), self._width(v), self._space(v))
        return self.draft.source(base)

    def _take(self, v: int, args: tuple[int, ...], attrs: Attrs) -> Row:
        slot = self._slot(args[0])
        return self.draft.source(
            Base(Place.ParamRow, self._param(self.made[v]), self._width(v), self._space(v), slot)
        )


def _windows(attrs: Attrs) -> tuple[int, ...]:
    """As `Phase.windows`."""
    return (*attrs["image"], *attrs["size"], attrs["stride"], attrs["padding"])
