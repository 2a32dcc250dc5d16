"""How many words the engines write for a firing: its microprogram's commands, counted."""

from __future__ import annotations

from collections.abc import Sequence

from amphw.rtl.isa.commands import INITIAL, REDUCTIONS, Code, Field, Instruction, LaneOp, Unit, decode


def words_written(words: Sequence[int], rows: Sequence[int]) -> int:
    """Of a microprogram, with so many rows in each register."""
    fields, count = dict(INITIAL), 0
    for i in decode(words):
        if i.code == Code.SETC:
            fields[Field(i["field"])] = i["imm"]
        elif i.code == Code.SETR:
            fields[Field(i["field"])] = rows[i["r"]] * i["imm"]
        elif i.code == Code.ISSUE:
            count += _of(i, fields)
        elif i.code == Code.END:
            break
    return count


def _of(i: Instruction, fields: dict[Field, int]) -> int:
    if i["unit"] == Unit.VECTOR:
        return fields[Field.V_OUTER] * (1 if i["op"] in REDUCTIONS else fields[Field.V_INNER])
    rows, op = fields[Field.L_ROWS], LaneOp(i["op"])
    if op in (LaneOp.FORWARD, LaneOp.TAKE):
        return rows * fields[Field.L_N]
    return rows * fields[Field.L_K] if op is LaneOp.BACKWARD and i["want_dx"] else 0
