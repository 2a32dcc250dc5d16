"""Rows phases as kernels: each work-group goes through some rows, instruction after instruction.

Runs of elementwise instructions are one loop over the columns (`elementwise.Chain`). With several lanes a
row's columns are shared out among the work-items of a group; what one lane writes and another reads is behind
a barrier.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from amphw.engine.tiles.code import Instr, Place
from amphw.engine.tiles.operations import SETS_INT, Op
from amphw.opencl.abi import FAULTS, Kernel
from amphw.opencl.codegen.elementwise import Access, Chain, literal
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.liveness import Liveness, Region, effect_of
from amphw.opencl.codegen.pointers import Pointers, frame_kernel


@dataclass(frozen=True)
class Part:
    """A Rows phase, by number, less the instructions before number `skip`, which a product has taken."""

    phase: int
    skip: int = 0


@dataclass
class Step:
    """Statements of one row. alone: the first lane runs them, or none but one column is written."""

    text: list[str]
    reads: list[Region]
    writes: list[Region]
    alone: bool = False
    bases: set[int] = field(default_factory=set)
    slots: set[int] = field(default_factory=set)

    def conflicts(self, earlier: Step) -> bool:
        """Whether it must not begin before all lanes are through with the earlier one."""
        if self.alone and earlier.alone:
            return False
        pairs = ((earlier.writes, self.reads + self.writes), (earlier.reads, self.writes))
        return any(a.overlaps(b) for before, after in pairs for a in before for b in after)


def rows_kernel(
    name: str, pointers: Pointers, parts: Sequence[Part], form: Form, liveness: Liveness, comment: str
) -> Kernel:
    """The kernel of Rows phases that follow each other in one space."""
    code = pointers.code
    writer = _Writer(pointers, form, liveness)
    steps = [step for part in parts for step in writer.steps(part)]
    bases = sorted({b for s in steps for b in s.bases})
    slots = sorted({n for s in steps for n in s.slots})
    space = code.phases[parts[0].phase].space
    names = pointers.buffers(bases)
    text = ["const int lane = get_local_id(0);"] if form.lanes > 1 else []
    text += [f"__global long* const i{s} = {pointers.integers(s)};" for s in slots]
    body = [
        f"{pointers.kind(b)} const {pointers.name(b)} = {pointers.row(b, 'r')};"
        for b in bases
        if code.bases[b].place not in (Place.Param, Place.ParamRow)
    ]
    body += _synchronised(steps, form)
    text += _each_row(body, form)
    return frame_kernel(
        name, names, comment, space, text, rows_per_group=rows_per_group(form), local_size=(form.lanes,)
    )


def rows_per_group(form: Form) -> int:
    """Rows that a work-group goes through.

    Several lanes take one row: in a loop over rows, compilers (LLVM 14 in PoCL 3.0) move conditions such as
    `lane == 0` out of the loop, and the barriers in it are then no longer the same ones for all lanes.
    """
    return form.rows_per_item if form.lanes == 1 else 1


def _each_row(body: list[str], form: Form) -> list[str]:
    """The statements for each row of the group."""
    if form.lanes > 1:
        return ["const int r = first;", *body]
    return ["for (int r = first; r < end; r++) {", *(f"    {line}" for line in body), "}"]


def _synchronised(steps: list[Step], form: Form) -> Iterator[str]:
    """The steps' text, with barriers where lanes depend on each other."""
    since: list[Step] = []
    for step in steps:
        if form.lanes > 1 and any(step.conflicts(earlier) for earlier in since):
            yield "barrier(CLK_GLOBAL_MEM_FENCE);"
            since = []
        since.append(step)
        yield from step.text


class _Writer:
    """Writes the steps of Rows phases."""

    def __init__(self, pointers: Pointers, form: Form, liveness: Liveness):
        self.pointers, self.code, self.form, self.liveness = pointers, pointers.code, form, liveness
        self.access = Access(pointers.name, lambda s: f"i{s}[r]", "r")

    def steps(self, part: Part) -> Iterator[Step]:
        phase = self.code.phases[part.phase]
        instrs, lines = phase.code[part.skip :], self.pointers.lines(phase)[part.skip :]
        first = self.liveness.first[part.phase] + part.skip
        yield from self._lookups(instrs)
        k = 0
        while k < len(instrs):
            chain = Chain(self.code, instrs[k].n)
            end = k
            while end < len(instrs) and chain.takes(instrs[end]):
                chain.add(instrs[end])
                end += 1
            if end > k:
                chain.decide_stores(self.liveness, first + end)
                yield self._loop(chain, lines[k:end])
                k = end
            else:
                yield self._scalar(instrs[k], lines[k])
                k += 1

    def _lookups(self, instrs: Sequence[Instr]) -> Iterator[Step]:
        """Rows of tables, which are chosen when the phase begins."""
        found = {ref.base for i in instrs for ref, _ in i.reads()}
        for b in sorted(found):
            base = self.code.bases[b]
            if base.place == Place.ParamRow:
                row = self.pointers.row(b, "r")
                text = f"__global const float* const {self.pointers.name(b)} = {row};"
                yield Step([text], [self._integer(base.ints)], [], bases={b})

    def _integer(self, slot: int) -> Region:
        """An integer slot as something to be read and written, behind all bases."""
        return Region(len(self.code.bases) + slot, 0, 1)

    def _loop(self, chain: Chain, lines: Sequence[str]) -> Step:
        width, lanes = chain.width, self.form.lanes
        size = self.form.vector if width > 1 else 1
        whole = width // size * size
        text = ["{", *(f"    // {line}" for line in lines)]
        text += [f"    {line}" for line in chain.before(self.access)]
        if whole:
            step = lanes * size
            if whole > step or (lanes > 1 and width > 1):
                begin = "0" if lanes == 1 else "lane" if size == 1 else f"lane * {size}"
                text.append(f"    for (int c = {begin}; c < {whole}; c += {step}) {{")
                text += [f"        {line}" for line in chain.body(self.access, "c", size)]
                text.append("    }")
            else:
                text += self._on_lane(0, chain.body(self.access, "0", size))
        if whole < width:
            body = chain.body(self.access, str(whole), size, count=str(width - whole))
            text += self._on_lane(whole // size % lanes, body)
        text.append("}")
        reads = chain.reads() + [self._integer(s) for s in chain.slots()]
        writes = [Region(ref.base, ref.offset, ref.offset + width) for ref in chain.stored]
        return Step(text, reads, writes, width == 1, set(chain.bases()), set(chain.slots()))

    def _on_lane(self, lane: int, body: list[str]) -> list[str]:
        opening = f"    if (lane == {lane}) {{" if self.form.lanes > 1 else "    {"
        return [opening, *(f"        {line}" for line in body), "    }"]

    def _scalar(self, i: Instr, line: str) -> Step:
        effect = effect_of(i)
        ints = [self._integer(s) for s in i.ints]
        reads, writes = list(effect.reads), list(effect.writes)
        if i.op in SETS_INT:
            writes += ints[:1]
        else:
            reads += ints
        opening = "if (lane == 0) {" if self.form.lanes > 1 else "{"
        text = [opening, f"    // {line}", *(f"    {s}" for s in self._statements(i)), "}"]
        bases = {region.base for region in (*effect.reads, *effect.writes)}
        return Step(text, reads, writes, True, bases, set(i.ints))

    def _statements(self, i: Instr) -> list[str]:
        """Operations on a number or an integer of the row."""
        d = self.access.at(i.d) if i.d.base >= 0 else ""
        a = self.access.at(i.a) if i.a.base >= 0 else ""
        ints = [self.access.integer(s) for s in i.ints]
        declared = f"__global const float* const a = {a};"
        if i.op == Op.SumCols:
            return [declared, *self._sum(i.n), f"*({d}) = total;"]
        if i.op == Op.MaxCols:
            loop = f"for (int c = 1; c < {i.n}; c++) most = a[c] > most || a[c] != a[c] ? a[c] : most;"
            return [declared, "float most = a[0];", loop, f"*({d}) = most;"]
        if i.op == Op.Argmax:  # the first of equals; a NaN counts as largest
            return [
                declared,
                "float most = a[0];",
                "int at = 0;",
                f"for (int c = 1; c < {i.n}; c++) {{",
                "    if (a[c] > most || (a[c] != a[c] && most == most)) {",
                "        most = a[c];",
                "        at = c;",
                "    }",
                "}",
                f"{ints[0]} = at;",
            ]
        if i.op == Op.Pick:
            index = f"checked({ints[0]}, {i.n}, faults, FAULT_{FAULTS[2].upper()}, r)"
            return [f"*({d}) = ({a})[{index}];"]
        if i.op == Op.Above:
            return [f"{ints[0]} = *({a}) > {literal(i.f)};"]
        if i.op == Op.ToInt:
            return [
                f"const float number = *({a});",
                "const bool whole = fabs(number) <= 0x1p24f && number == rint(number);",
                f"if (!whole) fail(faults, FAULT_{FAULTS[6].upper()}, r);",
                f"{ints[0]} = whole ? (long)number : 0;",
            ]
        if i.op == Op.ToFloat:
            return [f"*({d}) = (float){ints[0]};"]
        if i.op == Op.SameInt:
            return [f"*({d}) = {ints[0]} == {ints[1]} ? 1.0f : 0.0f;"]
        if i.op == Op.SaveInt:
            low, high = f"as_float((int){ints[0]})", f"as_float((int)({ints[0]} >> 32))"
            return [f"({d})[0] = {low};", f"({d})[1] = {high};"]
        assert i.op == Op.LoadInt, i.op
        return [f"{ints[0]} = (long)(uint)as_int(({a})[0]) | (long)as_int(({a})[1]) << 32;"]

    def _sum(self, n: int) -> list[str]:
        """Sums a[0 .. n) into `total`."""
        size = self.form.vector
        if size == 1 or n < 2 * size:
            return ["float total = a[0];", f"for (int c = 1; c < {n}; c++) total += a[c];"]
        whole = n // size * size
        out = [
            "V totals = LOAD(a);",
            f"for (int c = {size}; c < {whole}; c += {size}) totals += LOAD(a + c);",
            "float total = sum_v(totals);",
        ]
        return out + ([f"for (int c = {whole}; c < {n}; c++) total += a[c];"] if whole < n else [])
