from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.rtl.isa.commands import (
    END,
    INITIAL,
    KIND,
    LAYOUT,
    WAIT,
    WORD,
    Code,
    Field,
    IndexMode,
    Instruction,
    LaneOp,
    VectorOp,
    decode,
    encode,
    issue_lanes,
    issue_vector,
    listing,
    ptr,
    setc,
    setp,
    setr,
)


@st.composite
def instructions(draw: st.DrawFn) -> Instruction:
    code = draw(st.sampled_from(Code))
    return Instruction(code, tuple(draw(st.integers(p.low, p.high)) for p in LAYOUT[code]))


@given(instructions())
def test_words_hold_instructions(instruction: Instruction) -> None:
    word = instruction.encode()

    assert 0 <= word < 1 << WORD
    assert Instruction.decode(word) == instruction


def test_instructions_leave_room_for_their_code() -> None:
    assert {code: sum(p.bits for p in parts) for code, parts in LAYOUT.items()} == {
        Code.SETC: 24,
        Code.SETP: 29,
        Code.SETR: 27,
        Code.PTR: 29,
        Code.ISSUE: 22,
        Code.WAIT: 0,
        Code.END: 0,
    }


def test_parts_stand_where_the_layout_says() -> None:
    # From high to low: imm, p, field, code.
    assert setp(Field.V_D, 3, -1).encode() == (0b11_1111_1111_1111_1111 << 14) | (3 << 9) | (8 << 3) | 1


def test_an_operand_too_large_is_named() -> None:
    with pytest.raises(ValueError, match=re.escape("SETC: imm = 131072, allowed is -131072 .. 131071")):
        setc(Field.V_A, 1 << 17).encode()
    with pytest.raises(ValueError, match=re.escape("PTR: imm = -32769, allowed is -32768 .. 32767")):
        ptr(1, 2, 3, -(1 << 15) - 1).encode()
    with pytest.raises(ValueError, match=re.escape("SETP: p = 32, allowed is 0 .. 31")):
        setp(Field.V_A, 32).encode()


def test_bits_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="0x00000085 is no instruction"):
        Instruction.decode(0x85)
    with pytest.raises(ValueError, match="7 is not a valid Code"):
        Instruction.decode(7)


def test_every_field_has_a_kind_and_fits_its_part() -> None:
    assert set(KIND) == set(INITIAL) == set(Field)
    assert max(Field) <= LAYOUT[Code.SETC][0].high


def test_operations_fit_their_part() -> None:
    for vector in VectorOp:
        assert decode([issue_vector(vector).encode()])[0]["op"] == vector
    for lanes in LaneOp:
        assert decode([issue_lanes(lanes).encode()])[0]["op"] == lanes


def test_a_listing_reads_like_the_program() -> None:
    words = encode(
        [
            ptr(4, 1, 2, 7),
            setp(Field.V_A, 4),
            setp(Field.V_D, 0, 12),
            setr(Field.V_INNER, 2, 3),
            setr(Field.L_ROWS, 0),
            setc(Field.V_CONSTANT, -5),
            issue_vector(VectorOp.ADD, IndexMode.ADD_D, overlap=True),
            issue_vector(VectorOp.LINES, table=1),
            WAIT,
            issue_lanes(LaneOp.BACKWARD, bias=True, want_dx=True, want_dw=True),
            END,
        ]
    )

    assert [line[16:] for line in listing(words).splitlines()] == [
        "ptr4 = ptr1 + rows2 * 7",
        "v_a = ptr4",
        "v_d = ptr0 + 12",
        "v_inner = rows2 * 3",
        "l_rows = rows0",
        "v_constant = -5",
        "vector.add mode=ADD_D overlap",
        "vector.lines table=1",
        "wait",
        "lanes.backward bias want_dx want_dw",
        "end",
    ]
    assert listing(words).splitlines()[0].startswith(f"   0  {words[0]:08x}  ptr4")
