"""Which gradient terms one command of the lane engine adds up, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amphw.ir.derive import GradientTerm
from amphw.rtl.fixed.program import FixedProgram
from amphw.rtl.microcode.columns import Columns
from amphw.rtl.plan.stack import ParameterPlace, Places


@dataclass
class Group:
    """Terms of one command: values of the backward program, and the operation after which it comes.

    kind: "matmul" (a.T @ dz), "take" (rows dz added at a) or "sum" (of a vector parameter alone). bias: the
    bias behind the matrix gets the sum of dz. dx: the affine_t that the same command computes.
    """

    kind: str
    param: str
    a: int | None
    dz: int
    bias: bool
    dx: int | None
    after: int


def group_terms(
    program: FixedProgram, columns: Sequence[Columns], terms: Sequence[GradientTerm], places: Places
) -> list[Group]:
    """In the order in which they must come: sums of a parameter keep the order of its terms."""
    groups: list[Group] = []
    used: set[int] = set()
    for number, term in enumerate(terms):
        if number in used:
            continue
        other = _partner(program, columns, terms, places, number, used)
        both = [term] if other is None else [term, terms[other]]
        used.update([number] if other is None else [number, other])
        # The matrix, if there is one, names the command.
        first = next((t for t in both if t.kind == "matmul"), term)
        a = None if first.a is None else program.outputs[first.a]
        bias = any(t.kind == "sum" for t in both)
        groups.append(Group(first.kind, first.param, a, program.outputs[first.dz], bias, None, -1))
    _order(program, columns, groups, places)
    return groups


def _partner(
    program: FixedProgram,
    columns: Sequence[Columns],
    terms: Sequence[GradientTerm],
    places: Places,
    number: int,
    used: set[int],
) -> int | None:
    """The later term of the bias behind the matrix of term `number`, or of its matrix, with the same dz."""
    one = terms[number]
    for other in range(number + 1, len(terms)):
        two = terms[other]
        matrix, bias = (one, two) if one.kind == "matmul" else (two, one)
        if other in used or (matrix.kind, bias.kind) != ("matmul", "sum"):
            continue
        same = columns[program.outputs[one.dz]] == columns[program.outputs[two.dz]]
        # The later one must not overtake an earlier term of its parameter.
        overtakes = any(t.param == two.param for t in terms[number + 1 : other])
        if same and not overtakes and _behind(places, matrix.param, bias.param):
            return other
    return None


def _behind(places: Places, matrix: str, bias: str) -> bool:
    m, b = places[matrix], places[bias]
    return m.bias and b == ParameterPlace(m.base + m.rows * m.blocks, 0, m.columns, m.blocks, True)


def _order(program: FixedProgram, columns: Sequence[Columns], groups: list[Group], places: Places) -> None:
    """Set what comes before each group, and which computes a product on the way; then sort."""
    earliest: dict[int, int] = {}  # by the bias's or matrix's beat: what a later group must not precede
    taken: set[int] = set()
    for group in groups:
        ready = max([_made(columns, group.dz), *([] if group.a is None else [_made(columns, group.a)])])
        beats = [places[group.param].base]
        if group.bias and group.kind == "matmul":
            p = places[group.param]
            beats.append(p.base + p.rows * p.blocks)
        ready = max([ready, *(earliest.get(b, -1) for b in beats)])
        dx = _transposed(program, columns, group, taken) if group.kind == "matmul" else None
        if dx is not None and ready < dx:
            group.dx = ready = dx
            taken.add(dx)
        group.after = ready
        for b in beats:
            earliest[b] = ready
    groups.sort(key=lambda g: g.after)


def _made(columns: Sequence[Columns], v: int) -> int:
    """The last operation that a value needs; -1 if none."""
    return max([p.source for p in columns[v] if isinstance(p.source, int)], default=-1)


def _transposed(
    program: FixedProgram, columns: Sequence[Columns], group: Group, taken: set[int]
) -> int | None:
    for v, o in program.numbered():
        if o.op == "affine_t" and o.attr()["param"] == group.param and v not in taken:
            if columns[o.args[0]] == columns[group.dz]:
                return v
    return None
