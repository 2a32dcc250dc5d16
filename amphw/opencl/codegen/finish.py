"""What a product does to its results before it stores them: the elementwise instructions right behind it."""

from __future__ import annotations

from dataclasses import dataclass

from amphw.engine.tiles.code import Code, Phase, PhaseKind
from amphw.opencl.codegen.elementwise import Access, Chain
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.liveness import Liveness, Region, region
from amphw.opencl.codegen.pointers import Pointers


@dataclass(frozen=True)
class Finish:
    """A product's fused instructions.

    buffers: parameter buffers that they read. tables: bases whose rows they read or write; the kernel
    declares a pointer to each one's row as `row_0`, `row_1`, ... by the base's number. stores_result: whether
    the product itself is to be stored as well. lines: of tile code, for comments.
    """

    code: Code
    chain: Chain
    form: Form
    buffers: tuple[str, ...]
    tables: tuple[int, ...]
    stores_result: bool
    lines: tuple[str, ...]

    def statements(self, value: str, row: str, column: str, count: str) -> list[str]:
        """Statements for one vector of results, a block of their own.

        value: the variable that holds it, `form.vector` floats. row: the variable that holds its row in the
        frame. column: of its first component in the product, an expression; a multiple of the vector. count:
        how many components there are, a number or an expression.
        """
        pointers = Pointers(self.code)
        access = Access(lambda b: f"row_{b}", lambda s: f"{pointers.integers(s)}[{row}]", row)
        body = self.chain.before(access)
        body += self.chain.body(access, column, self.form.vector, value, count)
        return ["{", *(f"    {line}" for line in body), "}"]


def finish(code: Code, number: int, form: Form, liveness: Liveness) -> tuple[Finish | None, int]:
    """What the product of phase `number` takes from the phase behind it -> (it, how many instructions).

    Those are elementwise over the product's columns or what becomes of them; other operands were there
    before. Nothing may be written that the product reads: other work-items may still be reading it.
    """
    phase = code.phases[number]
    follower = code.phases[number + 1] if number + 1 < len(code.phases) else None
    if follower is None or follower.kind != PhaseKind.Rows or follower.space != phase.space:
        return None, 0
    chain = Chain(code, phase.width, phase.d)
    for instr in follower.code:
        related = any(ref in chain.writes for ref, one in chain.operands(instr) if not one)
        writes = region(instr.d, instr.written)
        if not related or not chain.takes(instr) or any(r.overlaps(writes) for r in _left(phase)):
            break
        chain.add(instr)
    taken = len(chain.instrs)
    if taken == 0:
        return None, 0
    after = liveness.first[number + 1] + taken
    chain.decide_stores(liveness, after)
    result = region(phase.d, phase.width)
    stores_result = chain.writes[phase.d] == -1 and liveness.needed(result, after)
    bases = chain.bases()
    pointers = Pointers(code)
    lines = tuple(pointers.lines(follower)[:taken])
    return Finish(code, chain, form, pointers.buffers(bases), bases, stores_result, lines), taken


def _left(phase: Phase) -> list[Region]:
    """What a product reads besides its own columns."""
    return [region(s.at, s.width) for s in phase.a]
