"""How many cycles a firing takes: a microprogram played on the times of the sequencer and its two engines.

The times are those that the gateware's own descriptions state (`gateware.sequencer`, `gateware.vector`,
`gateware.lanes.issue`); `tests/rtl/timing` holds them against the simulated circuit. What depends on values
is left out: a scatter-add that waits for a word still on its way, and gradients of matrices of fewer beats
than `READ_AGAIN`.
"""

from __future__ import annotations

from collections.abc import Sequence

from amphw.rtl.isa.commands import (
    INITIAL,
    REDUCTIONS,
    Code,
    Field,
    IndexMode,
    Instruction,
    LaneOp,
    Unit,
    decode,
)
from amphw.rtl.isa.memory import READ_LATENCY

BEGINS = 5
"""Cycles from a firing's begin to its first instruction's last stage."""

POINTER = 2
"""Further cycles of PTR: what follows reads registers only after it has written."""

VECTOR_READ, VECTOR_INDEX, VECTOR_WRITE = 6, READ_LATENCY + 13, READ_LATENCY + 8
"""From a command to its first read, without and with an index; from a read to its write."""

VECTOR_ROW, VECTOR_LEAST = 2, 8
"""Between rows with an index, and commands: cycles without a read; and from first to first, at least."""

LANES_END = READ_LATENCY + 16
"""From the last beat of a command, and the columns that leave behind it, to its end; and the levels of the
tree over the lanes. A beat counts as issued when its command would be, were there nothing in between."""

LANES_TAKEN = 5
"""From a command of one row to the next one that the loader takes."""

LANES_INDEX, LANES_FILL = READ_LATENCY + 2, 2
"""A row of an embedding is looked up; a row's gradient is loaded, beside a cycle a word."""

LANES_ROW, LANES_FILL_ROW = 3, 4
"""What the loader takes for a row, beside looking it up; and for one whose gradient it loads, beside that."""


def firing_cycles(words: Sequence[int], rows: Sequence[int], lanes: int) -> int:
    """Of a microprogram, from its begin to its end, for so many rows in each register and so many lanes."""
    return _Player(rows, lanes).play(decode(words))


class _Player:
    def __init__(self, rows: Sequence[int], lanes: int) -> None:
        self.rows, self.lanes = rows, lanes
        self.fields = dict(INITIAL)
        self.clear = 0  # when both engines are through
        self.last: Unit | None = None  # the engine that the last command went to
        self.taken = 0  # when that takes its next command, at the earliest
        self.read, self.reads = 0, 0  # the vector unit's last command: its first read, and how long it reads
        self.beat, self.left = 0, 0  # the lanes' last beat, and when the last column has left

    def play(self, program: Sequence[Instruction]) -> int:
        now = BEGINS
        for i in program:
            if i.code == Code.SETC:
                self.fields[Field(i["field"])] = i["imm"]
            elif i.code == Code.SETR:
                self.fields[Field(i["field"])] = self.rows[i["r"]] * i["imm"]
            elif i.code == Code.PTR:
                now += POINTER
            elif i.code == Code.ISSUE:
                unit = Unit(i["unit"])
                now = max(now, self.taken if unit is self.last else self.clear)
                self.last = unit
                if unit is Unit.VECTOR:
                    self._vector(now, i)
                else:
                    self._lanes(now, i)
            elif i.code in (Code.WAIT, Code.END):
                now = max(now, self.clear)
                if i.code == Code.END:
                    return now
            now += 1
        return now

    def _vector(self, now: int, i: Instruction) -> None:
        f = self.fields
        outer, inner = f[Field.V_OUTER], f[Field.V_INNER]
        if i["op"] in REDUCTIONS:
            inner = max(inner, 1)
        indexed = IndexMode(i["mode"]) in (IndexMode.A, IndexMode.D, IndexMode.ADD_D)
        if not outer * inner:
            reads = 1  # it ends, and nothing else
        elif indexed:
            reads = (outer - 1) * max(inner + VECTOR_ROW, VECTOR_LEAST) + inner
        else:
            reads = outer * inner
        first = now + (VECTOR_INDEX if indexed else VECTOR_READ)
        if self.reads:
            gap = max(self.reads + VECTOR_ROW, VECTOR_LEAST) if i["overlap"] else self.reads + VECTOR_WRITE
            first = max(first, self.read + gap)
        self.read, self.reads = first, reads
        # The loops run ahead of the reads, by as many elements as there are registers between.
        self.taken = max(first + 1, first + reads - 4)
        self.clear = first + reads + VECTOR_WRITE

    def _lanes(self, now: int, i: Instruction) -> None:
        f, op = self.fields, LaneOp(i["op"])
        takes = op in (LaneOp.TAKE, LaneOp.TAKE_GRADIENT)
        matrix = 0 if takes else f[Field.L_K]
        beats = matrix + (1 if takes else i["bias"])
        index, blocks = LANES_INDEX * takes, f[Field.L_BLOCKS]
        loaded, begins = now, [now, now]  # of the rows' walks
        for row in range(f[Field.L_ROWS]):
            if op in (LaneOp.FORWARD, LaneOp.TAKE):
                loaded = max(loaded + (LANES_ROW if row else 0) + index, begins[-2])
                begins.append(max(loaded, self.beat))
                self._forward(begins[-1], beats, blocks, f[Field.L_N])
            else:
                fill = blocks * self.lanes + (LANES_FILL_ROW if row else LANES_FILL) + index
                loaded = max(loaded + fill, begins[-2])
                begins.append(max(loaded, self.beat))
                weights = beats if i["want_dw"] or takes else 0
                self.beat = begins[-1] + blocks * (weights + (0 if takes else i["want_dx"] * matrix))
                self.left = self.beat
        self.taken = max(loaded, begins[-2]) + LANES_TAKEN
        self.clear = self.left + LANES_END + max(2, (self.lanes - 1).bit_length())
        self.reads = 0

    def _forward(self, begin: int, beats: int, blocks: int, columns: int) -> None:
        """A row: each block's sums are captured with its last beat, when those before have left."""
        self.beat = begin
        for block in range(blocks):
            self.beat = max(self.beat + beats, self.left)
            width = self.lanes if block < blocks - 1 else columns - (blocks - 1) * self.lanes
            self.left = self.beat + width
