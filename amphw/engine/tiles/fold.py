"""Folding: an embedding that only feeds a product needs no product per row.

A table has few rows, and they meet the same rows of the weight over and over. With T = E @ W[rows] + b, made
once for each version of the parameters,

    concat(take(E, i), h) @ W + b  =  T[i] + h @ W[other rows]

and backwards, since T[i] is taken like any row of a table, dz is added to row i of T's gradient. From there
the gradients are dE = dT @ W[rows]', dW[rows] = E' @ dT and db = the sum of dT's rows, once for each update.
Nothing is sent back to the embedding and none of its columns is logged.

What differs from the program is rounding; and where the parameters change between a message's way out and its
way back, W's gradient sees the E of the update in the place of the one that the message had read.

Where products are of bfloat16, both sides of T are rounded, each dz is rounded before it is added to dT,
and dT, which is a sum, is not: so what is added up is what it would be without folding. A bias is part of T
then, too, but its gradient is a sum of numbers that are not rounded, and so is added up by itself.
"""

from __future__ import annotations

from collections import Counter

from amphw.engine.tiles.code import Fold
from amphw.ir.program import Instr, Program

FOLD_ROWS = 64
"""Tables of more rows are not folded: T is made, and its gradient taken apart, at every update, which costs
for each row of the table what the embedding of a message's row costs without folding. So a table pays only if
it has far fewer rows than an update interval, which has hundreds."""


def folds(program: Program) -> tuple[Fold, ...]:
    """The products of a program that are to be folded, parameters by number."""
    return _Finder(program).run()


class _Finder:
    def __init__(self, program: Program):
        self.program = program
        first = len(program.inputs) + len(program.ints)
        self.made = {first + i: instr for i, instr in enumerate(program.instrs)}
        self.readers: dict[int, list[int]] = {v: [] for v in range(len(program.types))}
        for v, instr in self.made.items():
            for a in instr.args:
                self.readers[a].append(v)
        for v in program.outputs:
            self.readers[v].append(-1)
        self.uses = Counter(i.attr().get("param") for i in program.instrs)
        self.numbers = {p.name: k for k, p in enumerate(program.params)}

    def run(self) -> tuple[Fold, ...]:
        out: list[Fold] = []
        for v, instr in self.made.items():
            fold = self._fold(v) if instr.op == "take" and self._own(instr) else None
            if fold is not None and all(fold.weight != other.weight for other in out):
                out.append(self._with_bias(fold, out))
        return tuple(out)

    def _own(self, instr: Instr) -> bool:
        """Whether nothing else in the program reads the parameter."""
        return self.uses[instr.attr()["param"]] == 1

    def _param(self, v: int) -> int:
        return self.numbers[self.made[v].attr()["param"]]

    def _reader(self, v: int) -> int:
        """The only instruction that reads a value; -1: none or several do, or the program returns it."""
        return self.readers[v][0] if len(self.readers[v]) == 1 else -1

    def _fold(self, take: int) -> Fold | None:
        """Follow a taken row into a product, through concatenations."""
        table, width = self._param(take), self.program.types[take].width
        if self.program.params[table].shape[0] > FOLD_ROWS:
            return None
        at, column = take, 0
        while (reader := self._reader(at)) >= 0:
            instr = self.made[reader]
            if instr.op == "matmul":
                # In the middle, the rest of W would be two matrices in either direction.
                ends = (0, self.program.types[at].width - width)
                fits = self._own(instr) and column in ends
                return Fold(table, self._param(reader), column, width) if fits else None
            if instr.op != "concat":
                return None
            column += sum(self.program.types[a].width for a in instr.args[: instr.args.index(at)])
            at = reader
        return None

    def _with_bias(self, fold: Fold, others: list[Fold]) -> Fold:
        """The fold with a bias that is added to its product and to nothing else."""
        (at,) = (v for v, i in self.made.items() if i.op == "matmul" and self._param(v) == fold.weight)
        while (reader := self._reader(at)) >= 0 and self.made[reader].op == "add":
            for other in self.made[reader].args:
                bias = self.made.get(other)
                if bias is None or bias.op != "row_param" or not self._own(bias):
                    continue
                if self._reader(other) == reader and all(o.bias != self._param(other) for o in others):
                    return Fold(fold.table, fold.weight, fold.first_row, fold.width, self._param(other))
            at = reader
        return fold
