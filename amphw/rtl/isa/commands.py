"""What the lane engine and the vector unit can be told, and the instructions that a sequencer tells it with.

The one definition of the encoding, for the compiler, the emulator and the gates. A microprogram is a list of
32-bit words. Instructions set fields, which are registers that keep their value, and issue commands, which
take the fields as they are then. When a program starts, fields have the values of `INITIAL`.

Registers beside the fields: ROWS[r], the rows of the message in a row space; PTR[p], addresses.

    SETC field, imm         field = imm
    SETP field, p, imm      field = PTR[p] + imm
    SETR field, r, imm      field = ROWS[r] * imm
    PTR d, p, r, imm        PTR[d] = PTR[p] + ROWS[r] * imm
    ISSUE unit, op, ...     the command goes to the unit; only WAIT says that the other one is through
    WAIT                    until both units are idle
    END                     the program is over once both units are idle
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

WORD = 32
"""Bits of an instruction."""

ROW_REGISTERS = 8
POINTERS = 32

CONSTANT_BITS = 18
"""Of an immediate (but that of PTR has 16) and of a command's constant, signed: as wide as a multiplier."""

COUNT_BITS = 15
"""Of the counts of a command: rows, columns, elements of a loop."""


class VectorOp(IntEnum):
    """What an element of d becomes; a and b are those of the operands. Results saturate to 16 bits."""

    FILL = 0
    """The constant."""
    COPY = 1
    """a"""
    CONVERT = 2
    """narrow(a, shift)"""
    LIFT = 3
    """a << shift"""
    ADD = 4
    """a + b"""
    SUB = 5
    """a - b"""
    MUL = 6
    """narrow(a * b, shift)"""
    SCALE = 7
    """narrow(a * constant, shift)"""
    SHIFT = 8
    """a + constant"""
    RELU = 9
    """max(a, 0)"""
    GATE = 10
    """a where b > 0, or else 0"""
    MAX = 11
    """max(a, b)"""
    ABS = 12
    """|a|"""
    SIGN = 13
    """The constant where a > 0, minus the constant where a < 0, or else 0."""
    STEP = 14
    """The constant where a > 0, or else 0."""
    EQUAL = 15
    """The constant where a == b, or else 0."""
    ABOVE = 16
    """1 where a > constant, or else 0."""
    LINES = 17
    """The curve number `table` of a."""
    SUM = 18
    """The sum of a over the inner loop; 0 where that is empty."""
    LARGEST = 19
    """The largest a of the inner loop; 0 where that is empty."""
    ARGMAX = 20
    """The position in the inner loop of the first of the largest a; 0 where that is empty."""


REDUCTIONS = frozenset({VectorOp.SUM, VectorOp.LARGEST, VectorOp.ARGMAX})
"""Written once for each outer step, at d.base + o * d.outer; 0 where the inner loop is empty."""

BINARY = frozenset({VectorOp.ADD, VectorOp.SUB, VectorOp.MUL, VectorOp.GATE, VectorOp.MAX, VectorOp.EQUAL})
"""Operations that read b."""


class IndexMode(IntEnum):
    """What is added to the addresses of an outer step."""

    NONE = 0
    A = 1
    """To a's: mem[index.base + o] * index.scale, the word taken as unsigned."""
    D = 2
    """To d's: the same."""
    ADD_D = 3
    """To d's: the same; and b is what d's address holds, results of earlier elements included: with
    VectorOp.ADD a scatter-add. b's own addresses are not used."""
    POINTERS = 4
    """To a's: pointer[i], where i counts the inner loop."""


class LaneOp(IntEnum):
    """What the lane engine does; microprograms use the first four, the controller the others."""

    FORWARD = 0
    BACKWARD = 1
    TAKE = 2
    TAKE_GRADIENT = 3
    UPDATE = 4
    POKE = 5
    PEEK = 6
    CLIP = 7
    """Limits the coefficient of the next UPDATE by the norm of the parameter's gradient."""


class Bank(IntEnum):
    """A memory of the lane engine, for POKE and PEEK: each holds one number of every parameter."""

    WEIGHT = 0
    LOW = 1
    """The low bits of the master, of which WEIGHT is the top."""
    GRADIENT = 2
    """Summed since the last update."""
    VELOCITY = 3
    """Momentum's."""


class Unit(IntEnum):
    LANES = 0
    VECTOR = 1


class Field(IntEnum):
    """Registers that commands are made of; those of the vector unit first."""

    V_OUTER = 0
    V_INNER = 1
    V_A = 2
    V_A_OUTER = 3
    V_A_INNER = 4
    V_B = 5
    V_B_OUTER = 6
    V_B_INNER = 7
    V_D = 8
    V_D_OUTER = 9
    V_D_INNER = 10
    V_CONSTANT = 11
    V_INDEX = 12
    V_SCALE = 13
    L_ROWS = 14
    L_X = 15
    L_Y = 16
    L_DZ = 17
    L_BASE = 18
    L_K = 19
    L_BLOCKS = 20
    L_N = 21


INITIAL = {f: int(f in (Field.V_OUTER, Field.V_A_INNER, Field.V_B_INNER, Field.V_D_INNER)) for f in Field}
"""Values when a program starts: one outer step, elements that lie side by side, 0 for the rest."""

FieldKind = Literal["address", "count", "constant", "beat"]

KIND: dict[Field, FieldKind] = {
    f: (
        "constant"
        if f == Field.V_CONSTANT
        else "beat"
        if f == Field.L_BASE
        else "count"
        if f in (Field.V_OUTER, Field.V_INNER, Field.L_ROWS, Field.L_K, Field.L_BLOCKS, Field.L_N)
        else "address"
    )
    for f in Field
}
"""What a field holds, and so how wide it is: an address of payload memory (strides too, modulo its size), a
count (COUNT_BITS), a signed constant (CONSTANT_BITS), or the number of a beat of parameters."""


class Code(IntEnum):
    """Kinds of instructions."""

    SETC = 0
    SETP = 1
    SETR = 2
    PTR = 3
    ISSUE = 4
    WAIT = 5
    END = 6


CODE_BITS = 3
"""The kind stands in the lowest bits; its parts follow in the order of LAYOUT, from low to high."""


@dataclass(frozen=True)
class Part:
    """A part of an instruction's word."""

    name: str
    bits: int
    signed: bool = False

    @property
    def low(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        return (1 << (self.bits - self.signed)) - 1


_FIELD, _POINTER, _ROWS, _IMM = Part("field", 6), Part("p", 5), Part("r", 3), Part("imm", CONSTANT_BITS, True)

LAYOUT: dict[Code, tuple[Part, ...]] = {
    Code.SETC: (_FIELD, _IMM),
    Code.SETP: (_FIELD, _POINTER, _IMM),
    Code.SETR: (_FIELD, _ROWS, _IMM),
    Code.PTR: (Part("d", 5), _POINTER, _ROWS, Part("imm", 16, True)),
    Code.ISSUE: (
        Part("unit", 1),
        Part("op", 5),
        # Of the vector unit: index mode; whether what is read is not what commands before it still write; the
        # right shift; the number of the curve.
        Part("mode", 3),
        Part("overlap", 1),
        Part("shift", 5),
        Part("table", 4),
        # Of the lane engine.
        Part("bias", 1),
        Part("want_dx", 1),
        Part("want_dw", 1),
    ),
    Code.WAIT: (),
    Code.END: (),
}


@dataclass(frozen=True)
class Instruction:
    """operands: in the order of LAYOUT."""

    code: Code
    operands: tuple[int, ...] = ()

    def __getitem__(self, name: str) -> int:
        names = [part.name for part in LAYOUT[self.code]]
        return self.operands[names.index(name)]

    def encode(self) -> int:
        """The word; ValueError for an operand that its part cannot hold."""
        word, at = int(self.code), CODE_BITS
        for part, value in zip(LAYOUT[self.code], self.operands, strict=True):
            if not part.low <= value <= part.high:
                raise ValueError(
                    f"{self.code.name}: {part.name} = {value}, allowed is {part.low} .. {part.high}"
                )
            word |= (value & ((1 << part.bits) - 1)) << at
            at += part.bits
        return word

    @classmethod
    def decode(cls, word: int) -> Instruction:
        """ValueError for a word that is no instruction."""
        code = Code(word & ((1 << CODE_BITS) - 1))
        at, operands = CODE_BITS, []
        for part in LAYOUT[code]:
            value = word >> at & ((1 << part.bits) - 1)
            operands.append(value - (1 << part.bits) if part.signed and value > part.high else value)
            at += part.bits
        if word >> at:
            raise ValueError(f"{word:#010x} is no instruction: bits are set behind those of {code.name}")
        return cls(code, tuple(operands))

    def __str__(self) -> str:
        if self.code == Code.ISSUE:
            unit = Unit(self["unit"])
            op: IntEnum = VectorOp(self["op"]) if unit == Unit.VECTOR else LaneOp(self["op"])
            words = [f"{unit.name.lower()}.{op.name.lower()}"]
            if self["mode"]:
                words.append(f"mode={IndexMode(self['mode']).name}")
            words += [f"{n}={self[n]}" for n in ("shift", "table") if self[n]]
            return " ".join([*words, *(n for n in ("overlap", "bias", "want_dx", "want_dw") if self[n])])
        if self.code == Code.PTR:
            return f"ptr{self['d']} = ptr{self['p']} + rows{self['r']} * {self['imm']}"
        if self.code in (Code.WAIT, Code.END):
            return self.code.name.lower()
        imm = self["imm"]
        value = str(imm)
        if self.code == Code.SETP:
            value = f"ptr{self['p']} + {imm}" if imm else f"ptr{self['p']}"
        elif self.code == Code.SETR:
            value = f"rows{self['r']} * {imm}" if imm != 1 else f"rows{self['r']}"
        return f"{Field(self['field']).name.lower()} = {value}"


def setc(field: Field, imm: int) -> Instruction:
    return Instruction(Code.SETC, (field, imm))


def setp(field: Field, p: int, imm: int = 0) -> Instruction:
    return Instruction(Code.SETP, (field, p, imm))


def setr(field: Field, r: int, imm: int = 1) -> Instruction:
    return Instruction(Code.SETR, (field, r, imm))


def ptr(d: int, p: int, r: int, imm: int) -> Instruction:
    return Instruction(Code.PTR, (d, p, r, imm))


def issue_vector(
    op: VectorOp,
    mode: IndexMode = IndexMode.NONE,
    *,
    overlap: bool = False,
    shift: int = 0,
    table: int = 0,
) -> Instruction:
    return Instruction(Code.ISSUE, (Unit.VECTOR, op, mode, int(overlap), shift, table, 0, 0, 0))


def issue_lanes(
    op: LaneOp, *, bias: bool = False, want_dx: bool = False, want_dw: bool = False
) -> Instruction:
    return Instruction(Code.ISSUE, (Unit.LANES, op, 0, 0, 0, 0, int(bias), int(want_dx), int(want_dw)))


WAIT = Instruction(Code.WAIT)
END = Instruction(Code.END)


def encode(instructions: Iterable[Instruction]) -> tuple[int, ...]:
    return tuple(i.encode() for i in instructions)


def decode(words: Iterable[int]) -> list[Instruction]:
    return [Instruction.decode(w) for w in words]


def listing(words: Sequence[int]) -> str:
    """A microprogram to read: one instruction a line, with its address and word."""
    return "\n".join(
        f"{n:4}  {w:08x}  {i}" for n, (w, i) in enumerate(zip(words, decode(words), strict=True))
    )
