"""What a product takes from the instructions behind it, and what it leaves."""

from __future__ import annotations

import pytest

from amphw.engine.tiles.code import Base, Code, Instr, Phase, PhaseKind, Place, Ref, Segment
from amphw.engine.tiles.operations import Op
from amphw.opencl.codegen.finish import Finish, finish
from amphw.opencl.codegen.forms import CPU_FORM
from amphw.opencl.codegen.liveness import Liveness

X, Y, T, S, OTHER = range(5)
RESULT = Ref(T)
BASES = (
    Base(Place.Operand, 0, 20, 0),
    Base(Place.Output, 0, 40, 0),
    Base(Place.Scratch, 0, 20, 0),
    Base(Place.Saved, 0, 40, 0),
    Base(Place.Operand, 1, 20, 1),
)
ADD, TANH, MOV, MUL = Op.Add, Op.Tanh, Op.Mov, Op.Mul


def taken(*instrs: Instr, d: Ref = RESULT, left: int = X, space: int = 0) -> tuple[Finish | None, int]:
    """What the product d = left @ p0 of 20 columns takes of some instructions."""
    product = Phase(PhaseKind.Gemm, 0, param=0, a=(Segment(Ref(left), 20),), d=d, width=20)
    code = Code(BASES, (), (), (product, Phase(PhaseKind.Rows, space, instrs)))
    return finish(code, 0, CPU_FORM, Liveness(code))


def test_a_chain_over_the_products_columns() -> None:
    found, count = taken(
        Instr(ADD, 20, Ref(T), Ref(T), Ref(X)),
        Instr(TANH, 20, Ref(Y), Ref(T)),
        Instr(MUL, 20, Ref(Y, 20), Ref(Y), Ref(S)),
    )
    assert count == 3 and found is not None
    assert not found.stores_result and found.chain.stored == (Ref(Y), Ref(Y, 20))
    assert found.tables == (X, Y, S) and found.buffers == ()
    assert found.statements("v", "r", "c", "16") == [
        "{",
        "    const V a1 = LOAD(row_0 + c);",
        "    const V v0 = v + a1;",
        "    const V v1 = tanh_v(v0);",
        "    const V a3 = LOAD(row_3 + c);",
        "    const V v2 = v1 * a3;",
        "    STORE(row_1 + c, v1);",
        "    STORE(row_1 + 20 + c, v2);",
        "}",
    ]


def test_a_part_of_a_vector() -> None:
    found, _ = taken(Instr(TANH, 20, Ref(Y, 20), Ref(T)))
    assert found is not None
    assert found.statements("v", "r", "16", "4")[-2] == "    STORE4(row_1 + 20 + 16, (v0).s0123);"
    assert found.statements("v", "r", "c", "n")[-3:-1] == [
        "    if ((n) >= 16) STORE(row_1 + 20 + c, v0);",
        "    else store_some(row_1 + 20 + c, v0, n);",
    ]


def test_the_product_is_stored_where_somebody_reads_it() -> None:
    later = Instr(Op.SumCols, 20, Ref(S, 39), Ref(T))
    found, count = taken(Instr(TANH, 20, Ref(Y), Ref(T)), later)
    assert count == 1 and found is not None and found.stores_result
    found, count = taken(Instr(TANH, 20, Ref(S), Ref(Y)), d=Ref(Y))  # an output is read by others
    assert count == 1 and found is not None and found.stores_result


LEFT: dict[str, tuple[Instr, ...]] = {
    "a part of its columns": (Instr(TANH, 10, Ref(Y), Ref(T)),),
    "no columns of its own": (Instr(TANH, 20, Ref(Y), Ref(X)), Instr(TANH, 20, Ref(Y, 20), Ref(T))),
    "a sum": (Instr(Op.SumCols, 20, Ref(Y), Ref(T)),),
    "one of its columns for all": (Instr(Op.MulCol, 20, Ref(Y), Ref(T), Ref(T, 3)),),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_a_kernel_of_its_own(name: str) -> None:
    assert taken(*LEFT[name]) == (None, 0)


def test_what_other_work_items_still_read_is_not_written() -> None:
    assert taken(Instr(TANH, 20, Ref(S, 10), Ref(T)), left=S) == (None, 0)


def test_columns_that_others_become_are_left_alone() -> None:
    assert taken(Instr(TANH, 20, Ref(Y), Ref(Y, 10)), d=Ref(Y, 10)) == (None, 0)


def test_another_space_begins_another_kernel() -> None:
    assert taken(Instr(TANH, 20, Ref(T), Ref(T)), space=1) == (None, 0)
