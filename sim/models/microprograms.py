"""Random microprograms, and the commands that they come to, as the emulator of microcode understands them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from amaranth.lib import data

from amphw.rtl.gateware.controller.sequencer import LANE_FIELDS, VECTOR_FIELDS
from amphw.rtl.isa.commands import (
    END,
    KIND,
    LAYOUT,
    Code,
    Field,
    IndexMode,
    Instruction,
    LaneOp,
    Unit,
    VectorOp,
    encode,
)
from amphw.rtl.numbers.formats import Formats
from sim.bits import packed
from sim.models.emulator import Emulator, Fields


def random_program(rng: np.random.Generator, length: int) -> tuple[int, ...]:
    """Words of a program of any instructions, and END."""
    return encode([*(_instruction(rng) for _ in range(length)), END])


def _instruction(rng: np.random.Generator) -> Instruction:
    # What is set is seen where something is issued before it is set again.
    code = Code(int(rng.choice([*(c for c in Code if c != Code.END), Code.ISSUE, Code.ISSUE])))
    parts = {p.name: int(rng.integers(p.low, p.high + 1)) for p in LAYOUT[code]}
    if "field" in parts:
        # A constant is wider than what a pointer holds.
        fields = [f for f in Field if code == Code.SETC or KIND[f] != "constant"]
        parts["field"] = int(rng.choice(fields))
    if code == Code.ISSUE:
        parts["op"] = int(rng.choice(VectorOp if parts["unit"] == Unit.VECTOR else LaneOp))
        parts["mode"] = int(rng.choice(IndexMode))
    return Instruction(code, tuple(parts.values()))


@dataclass(frozen=True)
class Issued:
    """A command: to which unit, its bits, and whether all before it must be done first."""

    unit: Unit
    bits: int
    alone: bool


class Issues(Emulator):
    """Writes down what a program issues, and does nothing."""

    def __init__(self, vector: data.StructLayout, lanes: data.StructLayout) -> None:
        nothing = np.zeros(0, np.int64)
        super().__init__(Formats(), nothing, nothing, nothing, curves=())
        self.vector, self.lanes = vector, lanes
        self.issued: list[Issued] = []
        self._waited = False

    def _issue(self, i: Instruction, fields: Fields) -> None:
        unit = Unit(i["unit"])
        if unit == Unit.VECTOR:
            values = {path: fields[f] for f, path in VECTOR_FIELDS.items()}
            values |= {(name,): i[name] for name in ("op", "mode", "overlap", "shift", "table")}
            bits = packed(self.vector, values)
        else:
            values = {(name,): fields[f] for f, name in LANE_FIELDS.items()}
            values |= {(name,): i[name] for name in ("op", "bias", "want_dx", "want_dw")}
            bits = packed(self.lanes, values)
        self.issued.append(Issued(unit, bits, self._waited))
        self._waited = False

    def _finish(self) -> None:
        self._waited = True
