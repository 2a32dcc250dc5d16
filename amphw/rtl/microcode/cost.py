"""What microprograms are made of, counted without running them; `timing` says how long they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amphw.rtl.commands import INITIAL, REDUCTIONS, Code, Field, Instruction, LaneOp, Unit, decode


@dataclass(frozen=True)
class Cost:
    """instructions: of the sequencer, one a cycle. waits: how many of them wait for the units.

    vector: elements, one a cycle. lanes: cycles in which the lane engine's multipliers, or what they read and
    write, are busy; both without the time that a command takes to begin and to end.
    """

    instructions: int
    waits: int
    vector_commands: int
    vector: int
    lane_commands: int
    lanes: int

    def __str__(self) -> str:
        return (
            f"{self.instructions} instructions ({self.waits} wait), {self.vector_commands} vector commands "
            f"({self.vector} elements), {self.lane_commands} lane commands ({self.lanes} cycles)"
        )


def cost(words: Sequence[int], rows: Sequence[int], lanes: int) -> Cost:
    """Of a microprogram, for so many rows in each register and so many lanes."""
    fields = dict(INITIAL)
    counts = {Unit.VECTOR: 0, Unit.LANES: 0}
    cycles = {Unit.VECTOR: 0, Unit.LANES: 0}
    program = decode(words)
    for i in program:
        if i.code == Code.SETC:
            fields[Field(i["field"])] = i["imm"]
        elif i.code == Code.SETR:
            fields[Field(i["field"])] = rows[i["r"]] * i["imm"]
        elif i.code == Code.ISSUE:
            unit = Unit(i["unit"])
            counts[unit] += 1
            cycles[unit] += _elements(i, fields) if unit == Unit.VECTOR else _beats(i, fields, lanes)
    return Cost(
        len(program),
        sum(i.code == Code.WAIT for i in program),
        counts[Unit.VECTOR],
        cycles[Unit.VECTOR],
        counts[Unit.LANES],
        cycles[Unit.LANES],
    )


def _elements(i: Instruction, f: dict[Field, int]) -> int:
    inner = f[Field.V_INNER]
    return f[Field.V_OUTER] * (max(inner, 1) if i["op"] in REDUCTIONS else inner)


def _beats(i: Instruction, f: dict[Field, int], lanes: int) -> int:
    blocks, columns = f[Field.L_BLOCKS], f[Field.L_N]
    matrix, bias = f[Field.L_K] * blocks, i["bias"] * blocks
    if i["op"] == LaneOp.FORWARD:
        # A result is written a word a cycle.
        row = max(matrix + bias, columns, lanes)
    elif i["op"] == LaneOp.BACKWARD:
        row = max(i["want_dw"] * (matrix + bias) + i["want_dx"] * matrix, columns)
    else:
        row = columns
    return f[Field.L_ROWS] * row
