"""Tiling: a unit's programs lowered to tile code.

    program -> draft (build) -> fewer operations (fuse), wider ones (merge)
            -> homes (place), order (order), columns (columns) -> code (emit)

What the backward direction reads are operands and outputs, where they lie anyway, and rows that the forward
direction saves. Which ones is decided on the draft, not on the program: of a slice or a concatenation nothing
is saved but what it is made of, and of a spread column just the column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from amphw.engine.lowering.lower import Unit
from amphw.engine.tiles.build import Names, Result, build
from amphw.engine.tiles.code import Base, Fold, Place, Term, TiledUnit
from amphw.engine.tiles.draft import ZERO, Draft, Kind, Node, Piece, Row, joined, part, width_of, zeros
from amphw.engine.tiles.emit import Emitter
from amphw.engine.tiles.fold import folds
from amphw.engine.tiles.fuse import dissolve, fuse
from amphw.engine.tiles.merge import merge
from amphw.engine.tiles.operations import Op
from amphw.engine.tiles.place import Places, place
from amphw.ir.derive import Derivative, GradientTerm
from amphw.ir.expr import Const
from amphw.ir.primitives.images import Windows
from amphw.ir.program import Program


def tile(unit: Unit, rounded: bool = False) -> TiledUnit:
    """The unit's programs as tile code; its spaces in the order of `behaviour.spaces`. rounded: whether
    products round what they multiply, so that a bias needs a gradient of its own (`fold.py`)."""
    program, derivative, inference = unit.behaviour.program, unit.derivative, unit.inference
    assert program is not None and derivative is not None and inference is not None
    single = {k for k, o in enumerate(unit.operands) if o.count is not None and o.rows == Const(1)}
    spaces = [s for s, _ in unit.behaviour.spaces]
    return tile_programs(program, derivative, inference, spaces, single, rounded)


def tile_programs(
    program: Program,
    derivative: Derivative,
    inference: Program,
    spaces: Sequence[str],
    single: Collection[int] = (),
    rounded: bool = False,
) -> TiledUnit:
    """As `tile`, from the programs themselves. spaces: names in the order of their numbers. single: operands
    whose firings take many messages of one row."""
    numbers = {p.name: k for k, p in enumerate(program.params)}
    names = Names(
        {s: k for k, s in enumerate(spaces)}, numbers, folds(program), _factors(program, spaces), rounded
    )
    quiet = _Forward(inference, len(inference.outputs), names, ())
    forward = _Forward(derivative.forward, len(program.outputs), names, derivative.residuals)
    back = _Backward(program, derivative, names, forward, single) if derivative.backward.outputs else None
    return TiledUnit(
        tuple(spaces),
        tuple(forward.emitter.columns.saved),
        forward.code,
        quiet.code,
        None if back is None else back.code,
        () if back is None else tuple(back.logs),
        () if back is None else back.log_ints,
        () if back is None else back.terms,
        names.folds,
        () if back is None else back.shared,
    )


def _factors(program: Program, spaces: Sequence[str]) -> tuple[int, ...]:
    """Rows of each space for each of the first; () unless all are in proportion to it."""
    known = {spaces[0]: 1}
    for instr in program.instrs:
        attrs = instr.attr()
        if instr.op == "patches" and attrs["source"] in known:
            known[attrs["space"]] = known[attrs["source"]] * Windows.of(attrs).count
    return tuple(known[s] for s in spaces) if all(s in known for s in spaces) else ()


def _optimise(draft: Draft) -> Places:
    draft.sweep()
    fuse(draft)
    merge(draft)
    dissolve(draft)
    _copy_parameters(draft)
    return place(draft)


def _copy_parameters(draft: Draft) -> None:
    """Copies of parameters that the backward direction reads: they may be updated before it runs."""
    for node in [n for n in draft.nodes.values() if n.kind == Kind.Keep]:
        ((p,),) = node.args
        source = None if p.var == ZERO else draft.nodes[p.var].base
        if source is not None and source.place in (Place.Param, Place.ParamRow):
            node.args = (draft.instr(Op.Mov, node.space, p.width, [(p,)]),)


def _operands(draft: Draft, program: Program, names: Names) -> list[Row]:
    return [
        draft.source(Base(Place.Operand, k, t.width, names.spaces[t.space]))
        for k, (_, t) in enumerate(program.inputs)
    ]


def _pack(draft: Draft, base: Base, row: Row) -> None:
    """Have a row written to a place of the unit's."""
    if row:
        draft.add(Node(Kind.Pack, base.space, base.width, (row,), base=base))


@dataclass(frozen=True)
class Kept:
    """A part of what the backward direction reads: a Keep node, or zeros; spread: over how many columns."""

    node: int
    width: int
    spread: bool = False


class _Forward:
    """The forward direction, for training or inference; the program's first `n` outputs are the unit's."""

    def __init__(self, program: Program, n: int, names: Names, residuals: Sequence[tuple[str, int]]):
        self.program, self.names = program, names
        self.draft = draft = Draft()
        ints = [draft.slot(k, names.spaces[s]) for k, (_, s) in enumerate(program.ints)]
        values = build(draft, program, names, _operands(draft, program, names), ints)
        int_outputs = [-1] * n
        for k, v in enumerate(program.outputs[:n]):
            row, t = values[v], program.types[v]
            if isinstance(row, int):
                int_outputs[k] = row
                draft.needed_ints.add(row)
            else:
                _pack(draft, Base(Place.Output, k, t.width, names.spaces[t.space]), row)
        self.kept: dict[tuple[str, int], list[Kept]] = {}
        for kind, k in residuals:
            v = program.outputs[k if kind == "output" else n + k] if kind != "input" else -1
            if kind == "value" or (kind == "output" and isinstance(values[v], int)):
                self.kept[kind, k] = self._keep(values[v])
        self.emitter = Emitter(draft, _optimise(draft), names.factors)
        self.code = self.emitter.code(tuple(int_outputs))

    def _keep(self, value: Result) -> list[Kept]:
        """Hold what the backward direction reads; an integer is saved as floats."""
        if isinstance(value, int):
            value = self.draft.instr(Op.SaveInt, self.draft.int_spaces[value], 2, ints=(value,))
        return [self._kept(p) for p in value]

    def _kept(self, p: Piece) -> Kept:
        if p.var == ZERO or self._is_folded(p):
            return Kept(ZERO, p.width)
        node = self.draft.nodes[p.var]
        spread = node.op == Op.SpreadCols
        row = node.args[0] if spread else (p,)
        return Kept(self.draft.add(Node(Kind.Keep, node.space, 0, (row,))), p.width, spread)

    def _is_folded(self, p: Piece) -> bool:
        """Whether this is a row of an embedding that is folded away: the backward direction does without."""
        base = self.draft.nodes[p.var].base
        tables = {f.table for f in self.names.folds}
        return base is not None and base.place == Place.ParamRow and base.index in tables

    def residual(self, back: Draft, kind: str, k: int) -> Row:
        """A residual as the backward direction's draft finds it; of an integer the floats that hold it."""
        if (kind, k) in self.kept:
            return joined(q for kept in self.kept[kind, k] for q in self._found(back, kept))
        place, t = Place.Operand, self.program.inputs[k][1] if kind == "input" else None
        if t is None:
            place, t = Place.Output, self.program.outputs_types[k]
        return back.source(Base(place, k, t.width, self.names.spaces[t.space]))

    def _found(self, back: Draft, kept: Kept) -> Row:
        if kept.node == ZERO:
            return zeros(kept.width)
        ((p,),) = self.draft.nodes[kept.node].args
        if p.var == ZERO:
            return zeros(kept.width)
        base, column = self.emitter.located(p)
        assert base.place in (Place.Operand, Place.Output, Place.Saved), base
        row = part(back.source(base), column, p.width)
        return back.instr(Op.SpreadCols, base.space, kept.width, [row]) if kept.spread else row


def _spread(program: Program, v: int) -> int:
    """The row of a firing that the value repeats for each of its messages; -1 if it does not."""
    first = len(program.inputs) + len(program.ints)
    if v < first or program.instrs[v - first].op != "spread_rows":
        return -1
    (row,) = program.instrs[v - first].args
    return row if program.types[row].space == "rows" else -1


class _Backward:
    """The backward direction, with the log that gradients of parameters are made from."""

    def __init__(
        self,
        program: Program,
        derivative: Derivative,
        names: Names,
        forward: _Forward,
        single: Collection[int],
    ):
        self.program, self.names = program, names
        self.draft = draft = Draft()
        self.logs: list[tuple[int, int]] = []
        self._buffers: dict[Row, int] = {}
        back = derivative.backward
        self.values = build(draft, back, names, self._inputs(derivative, forward), self._ints(back))
        self._taken = {f: self._logged_int(v) for f, v in self._indices(derivative)}
        terms = [made for t in derivative.terms for made in self._terms(back, t)]
        spread = {i: _spread(back, back.outputs[k]) for k, i in enumerate(derivative.wrt) if i in single}
        self.shared = tuple(i for i, v in spread.items() if v >= 0)
        for k, i in enumerate(derivative.wrt):
            v = spread[i] if i in self.shared else back.outputs[k]
            t = back.types[v]
            _pack(draft, Base(Place.InputGradient, i, t.width, names.spaces[t.space]), self._row(v))
        emitter = Emitter(draft, _optimise(draft), names.factors)
        self.terms = tuple(replace(t, ints=emitter.slot(t.ints) if t.ints >= 0 else -1) for t in terms)
        self.log_ints = tuple(sorted({t.ints for t in self.terms if t.ints >= 0}))
        self.code = emitter.code(())

    def _inputs(self, derivative: Derivative, forward: _Forward) -> list[Result]:
        draft, back = self.draft, derivative.backward
        out: list[Result] = []
        for k, (_, t) in zip(derivative.float_outputs, back.inputs, strict=False):
            out.append(draft.source(Base(Place.OutputGradient, k, t.width, self.names.spaces[t.space])))
        for (kind, k), (_, t) in zip(derivative.residuals, back.inputs[len(out) :], strict=True):
            row = forward.residual(draft, kind, k)
            is_int = t.kind == "int"
            out.append(draft.computed(Op.LoadInt, self.names.spaces[t.space], [row]) if is_int else row)
        return out

    def _ints(self, back: Program) -> list[int]:
        numbers = {key: k for k, key in enumerate(self.program.ints)}
        return [self.draft.slot(numbers[key], self.names.spaces[key[1]]) for key in back.ints]

    def _row(self, v: int) -> Row:
        row = self.values[v]
        assert isinstance(row, tuple)
        return row

    def _terms(self, back: Program, term: GradientTerm) -> list[Term]:
        """The term with the draft's slot in the place of the code's; of a folded product what is logged."""
        param, dz = self.names.params[term.param], back.outputs[term.dz]
        a = -1 if term.a is None else back.outputs[term.a]
        space = self.names.spaces[back.types[dz].space]
        for fold in self.names.folds:
            if param == fold.weight:
                rest = part(self._row(a), fold.rest, back.types[a].width - fold.width)
                d = self._buffer(self._row(dz), space)
                return [
                    Term("take", self.names.folded(fold), -1, d, self._taken[fold]),
                    *(
                        [Term("matmul", param, self._buffer(rest, space), d, first_row=fold.rest)]
                        if rest
                        else []
                    ),
                ]
            if param == fold.table or (param == fold.bias and not self.names.rounded):
                return []
        ints = self._logged_int(a) if term.kind == "take" else -1
        x = self._buffer(self._row(a), space) if term.kind == "matmul" else -1
        return [Term(term.kind, param, x, self._buffer(self._row(dz), space), ints)]

    def _indices(self, derivative: Derivative) -> Iterator[tuple[Fold, int]]:
        """The value that chooses the row of each fold's table."""
        for term in derivative.terms:
            for fold in self.names.folds:
                if self.names.params[term.param] == fold.table:
                    assert term.kind == "take" and term.a is not None
                    yield fold, derivative.backward.outputs[term.a]

    def _logged_int(self, v: int) -> int:
        slot = self.values[v]
        assert isinstance(slot, int)
        self.draft.needed_ints.add(slot)
        return slot

    def _buffer(self, row: Row, space: int) -> int:
        """The log buffer of a row; equal ones share it."""
        if row not in self._buffers:
            self._buffers[row] = len(self.logs)
            width = width_of(row)
            _pack(self.draft, Base(Place.Log, len(self.logs), width, space), row)
            self.logs.append((width, space))
        return self._buffers[row]
