"""Attention as kernels: rows of one side, each in a lane of its own, meet those of the other one by one.

The rows that something is computed for (queries, or the keys of `attend_keys`) lie across: a lane is one of a
vector's floats and, on a GPU, a work-item. So a number of a row of the other side is the same in all lanes,
nothing has to be summed over lanes, and one text serves all forms. A lane keeps a head's columns of its row,
and of its result, in private memory.

The weights of a query are powers of its scores less the largest so far (Milakov and Gimelshein, 2018); where
a larger one comes, what has been summed is scaled down. The scores thus need no memory, and are computed
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amphw.engine.tiles.code import ATTENTION, Phase, PhaseKind
from amphw.ir.primitives.attention import OPERANDS
from amphw.opencl.abi import Kernel
from amphw.opencl.codegen.elementwise import literal
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.pointers import Pointers, frame_kernel, plus
from amphw.opencl.codegen.prelude import suffix_of
from amphw.opencl.codegen.tiles import indent, vector_type

AT_ONCE = 4
"""Rows of the other side that meet a lane's at once: what a lane keeps is read and written once for all."""

UNROLLED = 64
"""Columns of a head up to which a GPU's loops over them are unrolled, so that they may lie in registers."""

NAMES = ("q", "k", "v", "d", "numbers")


def attention_kernel(name: str, pointers: Pointers, phase: Phase, form: Form, comment: str) -> Kernel:
    """The kernel of a phase of attention: work-items have a head each, and some rows of a message.

    Where vectors are single floats, the work-items of a group have rows side by side, of whichever messages.
    """
    return _Attention(name, pointers, phase, form, comment).kernel()


@dataclass(frozen=True)
class _Compared:
    """A product of a lane's row with others, called `name`: of an operand that the lane keeps, scaled by
    `scale` if that is not empty, and one of the other side."""

    name: str
    mine: int
    other: int
    scale: str = ""


@dataclass(frozen=True)
class _Mixed:
    """A result: the rows of an operand of the other side by the factors called `name`, then by `scale`.

    column: of the result where the heads' columns begin.
    """

    name: str
    other: int
    column: int
    scale: str = ""


class _Attention:
    """Writes one kernel."""

    def __init__(self, name: str, pointers: Pointers, phase: Phase, form: Form, comment: str):
        self.name, self.pointers, self.phase, self.form, self.comment = name, pointers, phase, form, comment
        self.kind, self.heads = phase.kind, phase.heads
        self.here = OPERANDS[ATTENTION[phase.kind]]
        self.real, self.suffix = vector_type(form), suffix_of(form)
        self.of_keys = phase.kind == PhaseKind.AttendKeys
        # Lanes of a vector are of one message; work-items need not be.
        self.by_row = form.vector == 1 and form.lanes > 1
        scale = literal((phase.a[1].width // phase.heads) ** -0.5)
        mine, other = (1, 0) if self.of_keys else (0, 1)
        self.compared, self.mixed = (
            [_Compared("score", mine, other, scale)],
            [_Mixed("slope", other, 0, scale)],
        )
        if phase.kind == PhaseKind.Attend:
            self.mixed = [_Mixed("weight", 2, 0)]
        elif phase.kind == PhaseKind.AttendQueries:
            self.compared.append(_Compared("back", 3, 2))
        else:
            self.compared.append(_Compared("back", 2, 3))
            self.mixed.append(_Mixed("weight", 3, phase.a[1].width))

    def kernel(self) -> Kernel:
        form, text = self.form, self._body()
        names = self.pointers.buffers(s.at.base for s in self.phase.a)
        local, rows = (form.lanes, 1), form.lanes if self.by_row else 1
        return frame_kernel(
            self.name, names, self.comment, self.phase.space, text,
            items=(self.heads,), rows_per_group=rows, local_size=local, by_message=not self.by_row,
        )  # fmt: skip

    def columns(self, operand: int) -> int:
        """Of one head."""
        return self.phase.a[operand].width // self.heads

    def at(self, operand: int, row: str, column: str = "") -> str:
        """Where a head's columns of an operand's row begin, or the number of a head."""
        n = self.columns(operand)
        return self.pointers.at(self.phase.a[operand].at, row, column or (f"head * {n}" if n > 1 else "head"))

    # --- the rows of a work-item -----------------------------------------------------------------

    def _body(self) -> list[str]:
        """Declares `mine`, the first of a work-item's rows, how many, and the rows of the other side."""
        here, there, form = self.phase.space, self.phase.source, self.form
        text = [
            "const int head = item;",
            f"__global const int* const starts = STARTS_OF({here});",
            f"__global const int* const other_starts = STARTS_OF({there});",
        ]
        if self.phase.ints >= 0:
            text.append(f"__global const long* const index = {self.pointers.integers(self.phase.ints)};")
        if self.by_row:
            return [
                *text,
                "const int mine = first + (int)get_local_id(0);",
                "if (mine >= end) return;",
                "// The last message that begins at this row or before has it.",
                "int message = 0;",
                "for (int behind = HEADER[MESSAGES]; behind - message > 1;) {",
                "    const int middle = (message + behind) / 2;",
                "    if (starts[middle] <= mine) message = middle;",
                "    else behind = middle;",
                "}",
                *self._message("message"),
                *self._rows(),
            ]
        size, step = form.vector, form.vector * form.lanes
        lane = "" if form.lanes == 1 else " + (int)get_local_id(0)" + (f" * {size}" if size > 1 else "")
        count = [f"const int count = LEAST({size}, starts[first + 1] - mine);"] if size > 1 else []
        return [
            *text,
            *self._message("first"),
            f"for (int mine = starts[first]{lane}; mine < starts[first + 1]; mine += {step}) {{",
            *indent([*count, *self._rows()]),
            "}",
        ]

    def _message(self, message: str) -> list[str]:
        out = [f"const int other = other_starts[{message}], others = other_starts[{message} + 1] - other;"]
        if self.of_keys:
            out.append(f"const int begin = starts[{message}], keys = starts[{message} + 1] - begin;")
        return out

    def _lanes(self, statements: Sequence[str], every: bool = False) -> list[str]:
        """Statements for each lane that has a row, number `i` of the vector, and its row `r`.

        every: for the lanes behind the last row, too, which then have that one.
        """
        if self.form.vector == 1:
            return ["{", "    const int r = mine;", *indent(statements), "}"]
        end, row = (str(self.form.vector), "LEAST(i, count - 1)") if every else ("count", "i")
        return [
            f"for (int i = 0; i < {end}; i++) {{",
            f"    const int r = mine + {row};",
            *indent(statements),
            "}",
        ]

    def _lane(self, array: str, column: str) -> str:
        """A lane's number in private memory."""
        n = self.form.vector
        return f"{array}[{column}]" if n == 1 else f"((float*){array})[{column} * {n} + i]"

    def _each_column(self, columns: int, statements: Sequence[str]) -> list[str]:
        unroll = ["#pragma unroll"] if self.by_row and columns <= UNROLLED else []
        return [*unroll, f"for (int c = 0; c < {columns}; c++) {{", *indent(statements), "}"]

    # --- what a work-item computes ---------------------------------------------------------------

    @property
    def _limited(self) -> bool:
        """Whether each query has a limit of its own, in `seen`."""
        return self.phase.ints >= 0 and not self.of_keys

    def _rows(self) -> list[str]:
        out = self._kept()
        for m in self.mixed:
            n = self.columns(m.other)
            out.append(f"{self.real} of_{m.name}[{n}];")
            out += self._each_column(n, [f"of_{m.name}[c] = 0.0f;"])
        if self.kind == PhaseKind.Attend:
            # Less than any score, and finite: powers of the difference to it are numbers.
            out.append(f"{self.real} most = -3e38f, total = 0.0f;")
        out += [
            "int j = 0;",
            f"for (; j + {AT_ONCE} <= last; j += {AT_ONCE}) {{",
            *indent(self._meet(AT_ONCE)),
            "}",
            "for (; j < last; j++) {",
            *indent(self._meet(1)),
            "}",
        ]
        return out + self._results()

    def _kept(self) -> list[str]:
        """Declares what lanes keep of their rows, and `last`: how many of the other rows they meet."""
        out, each = [], []
        for c in self.compared:
            out.append(f"{self.real} mine_{c.name}[{self.columns(c.mine)}];")
            number = f"from_{c.name}[c] * {c.scale}" if c.scale else f"from_{c.name}[c]"
            each.append(f"__global const float* const from_{c.name} = {self.at(c.mine, 'r')};")
            each += self._each_column(
                self.columns(c.mine), [f"{self._lane(f'mine_{c.name}', 'c')} = {number};"]
            )
        if self.kind == PhaseKind.AttendQueries:
            out.append(f"{self.real} logs[1], offsets[1];")
            each += [f"__global const float* const numbers = {self.at(4, 'r', 'head')};"]
            each += [
                f"{self._lane('logs', '0')} = numbers[0];",
                f"{self._lane('offsets', '0')} = numbers[{self.heads}];",
            ]
        if self._limited:
            seen = "seen" if self.form.vector == 1 else "((int*)&seen)[i]"
            out.append(f"{self._integers} seen;")
            out.append("int last = 0;")
            each += [
                f"const int n = {self._looks_at('r', 'others')};",
                f"{seen} = n;",
                "last = MOST(last, n);",
            ]
        else:
            out.append("const int last = others;")
        return out + self._lanes(each, every=True)

    @property
    def _integers(self) -> str:
        return "int" if self.form.vector == 1 else f"int{self.form.vector}"

    def _looks_at(self, query: str, keys: str) -> str:
        """How many of a message's keys a query meets."""
        return f"(int)clamp(index[{query}], 0L, (long){keys})"

    def _meet(self, n: int) -> list[str]:
        """The lanes' rows meet those of the other side from number `j` on, n of them."""
        out, rows, every = [], [f"(other + j + {k})" if k else "(other + j)" for k in range(n)], range(n)
        if self.of_keys and self.phase.ints >= 0:
            out += [f"const int n{k} = {self._looks_at(rows[k], 'keys')};" for k in every]
            largest = "n0"
            for k in every[1:]:
                largest = f"MOST({largest}, n{k})"
            out.append(f"if ({largest} <= mine - begin) continue;")
        read = sorted({c.other for c in self.compared} | {m.other for m in self.mixed})
        for o in read:
            out += [f"__global const float* const {NAMES[o]}{k} = {self.at(o, rows[k])};" for k in every]
        if self.of_keys:
            out += [f"__global const float* const numbers{k} = {self.at(4, rows[k], 'head')};" for k in every]
        for c in self.compared:
            out.append(f"{self.real} {', '.join(f'{c.name}{k} = 0.0f' for k in every)};")
            product = [f"{c.name}{k} = x * {NAMES[c.other]}{k}[c] + {c.name}{k};" for k in every]
            out += self._each_column(
                self.columns(c.mine), [f"const {self.real} x = mine_{c.name}[c];", *product]
            )
        out += self._softmax(n) if self.kind == PhaseKind.Attend else self._weights(n)
        for m in self.mixed:
            terms = [f"{m.name}{k} * {NAMES[m.other]}{k}[c]" for k in every]
            before = f"of_{m.name}[c]"
            if self.kind == PhaseKind.Attend:
                before += " * less"
            out += self._each_column(
                self.columns(m.other), [f"of_{m.name}[c] = {' + '.join([before, *terms])};"]
            )
        return out

    def _meets(self, k: int) -> str:
        """Whether query and key meet, in all lanes; "" where all do."""
        if self.phase.ints < 0:
            return ""
        if not self.of_keys:
            return f"seen > j + {k}" if k else "seen > j"
        lanes = "" if self.form.vector == 1 else f" + LANES{self.suffix}"
        return f"mine - begin{lanes} < n{k}"

    def _softmax(self, n: int) -> list[str]:
        every, s = range(n), self.suffix
        out = []
        for k in every:
            if meets := self._meets(k):
                out.append(f"score{k} = {meets} ? score{k} : ({self.real})(-INFINITY);")
        out.append(f"{self.real} top = most;")
        out += [f"top = score{k} > top ? score{k} : top;" for k in every]
        out.append(f"const {self.real} less = exp{s}(most - top);")
        out.append("most = top;")
        out += [f"const {self.real} weight{k} = exp{s}(score{k} - top);" for k in every]
        out.append(f"total = {' + '.join(['total * less', *(f'weight{k}' for k in every)])};")
        return out

    def _weights(self, n: int) -> list[str]:
        """Weights from the logarithms that the forward direction has left, and slopes of the scores."""
        out = []
        for k in range(n):
            log, offset = (
                (f"numbers{k}[0]", f"numbers{k}[{self.heads}]") if self.of_keys else ("logs[0]", "offsets[0]")
            )
            power = f"exp{self.suffix}(score{k} - {log})"
            if meets := self._meets(k):
                power = f"{meets} ? {power} : ({self.real})(0.0f)"
            out.append(f"const {self.real} weight{k} = {power};")
            # The only row that a query looks at has all weight, whatever the score.
            zero = f"{self._looks_at_one(k)} ? ({self.real})(0.0f)"
            out.append(f"const {self.real} slope{k} = {zero} : weight{k} * (back{k} - {offset});")
        return out

    def _looks_at_one(self, k: int) -> str:
        if self.of_keys:
            return f"n{k} == 1" if self.phase.ints >= 0 else "keys == 1"
        return "seen == 1" if self._limited else "others == 1"

    # --- results ---------------------------------------------------------------------------------

    def _results(self) -> list[str]:
        out, each = [], []
        if self.kind == PhaseKind.Attend:
            # Of a query that looks at nothing, all are 0.
            some = "seen > 0" if self._limited else "others > 0"
            if self.form.vector > 1 and not self._limited:
                some = f"({self._integers})(others) > 0"
            zero, s = f"({self.real})(0.0f)", self.suffix
            out += [
                f"const {self.real} share = {some} ? 1.0f / total : {zero};",
                f"const {self.real} logs[1] = {{{some} ? most + log{s}(total) : {zero}}};",
            ]
            out += self._each_column(self.columns(2), ["of_weight[c] *= share;"])
            column = f"{self.phase.a[2].width} + head"
            each.append(f"*({self.pointers.at(self.phase.d, 'r', column)}) = {self._lane('logs', '0')};")
        for m in self.mixed:
            n = self.columns(m.other)
            column = f"head * {n}" if n > 1 else "head"
            to = plus(self.pointers.at(self.phase.d, "r"), m.column, column)
            value = self._lane(f"of_{m.name}", "c") + (f" * {m.scale}" if m.scale else "")
            each.append(f"__global float* const to_{m.name} = {to};")
            each += self._each_column(n, [f"to_{m.name}[c] = {value};"])
        return out + self._lanes(each)
