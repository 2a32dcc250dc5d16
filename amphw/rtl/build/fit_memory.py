"""Every memory of a device, and how many of a chip's block memories it becomes."""

from __future__ import annotations

from dataclasses import dataclass

from amphw.rtl.build.boards import Board
from amphw.rtl.fixed.curves import SEGMENTS
from amphw.rtl.isa.wire import HEADER_WORDS, WORD
from amphw.rtl.microcode.compile import CURVES
from amphw.rtl.numbers.formats import BITS
from amphw.rtl.plan.hardware import JOBS, HardwarePlan, payload_part

_SHAPES = {
    "ecp5": ((36, 512), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384)),
    "ice40": ((16, 256), (8, 512), (4, 1024), (2, 2048)),
    "xilinx": ((36, 512), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384)),
    "gowin": ((36, 512), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384)),
}
"""Per family, the (bits, words) that a block memory can be."""

_BLOCK, _CELL, _CHOICE = 128, 4, 0.5
"""What Yosys takes as the cost of a block memory, of 16 x 4 bits of logic, and of a choice between two bits;
it makes of a memory what costs least."""

_WAIT = 3
"""Bits of how long a step's expressions take to settle, as a rule."""


@dataclass(frozen=True)
class Block:
    """A memory of `words` words. lanes: parts of a word that are written alone, of `bits` bits each."""

    name: str
    bits: int
    words: int
    lanes: int = 1
    always: bool = False  # in block memory, however small

    def blocks(self, board: Board) -> int:
        """How many block memories it takes; 0 for what is made of logic."""
        family = board.target.family
        width = self.bits * self.lanes
        blocks, dear = min(
            ((n, _BLOCK * n + _CHOICE * (deep - 1) * width) for n, deep in map(self._of, _SHAPES[family])),
            key=lambda each: each[1],
        )
        deep = -(-self.words // 16)
        logic = _CELL * deep * -(-width // 4) + _CHOICE * (deep - 1) * width
        return 0 if family != "ice40" and not self.always and logic < dear else blocks

    def _of(self, shape: tuple[int, int]) -> tuple[int, int]:
        """(block memories of this shape, how many lie one behind the other)."""
        bits, words = shape
        deep = -(-self.words // words)
        if self.lanes == 1:
            return deep * -(-self.bits // bits), deep
        # Bytes of 9 bits (8 of 8) are written alone; a lane takes whole ones.
        if bits < self.bits:
            return deep * -(-self.bits // bits) * self.lanes, deep
        byte = 9 if bits % 9 == 0 else 8
        each = -(-self.bits // byte) * byte
        return deep * -(-self.lanes // max(1, bits // each)), deep


def memories(plan: HardwarePlan) -> list[Block]:
    """Those that may become block memories."""
    sizes, partition, formats = plan.sizes, plan.partition, plan.formats
    part = payload_part(sizes.payload)
    beats, lanes = max(2, plan.stack.beats), sizes.lanes
    blocks = max((p.blocks for of in plan.stack.places.values() for p in of.values()), default=1)
    curves = {
        o.attr()["curve"] for d in plan.fixed.values() for _, o in d.forward.numbered() if o.op == "curve"
    }
    firing, place = _bits(sizes.firings), _bits(sizes.places)
    outputs = [len(u.derivative.float_outputs) if u.derivative else 0 for u in partition.units]
    output = _bits(max(1, *outputs, 1))
    row = WORD + 1 if partition.by_rows else 0
    words = sum(
        len(c.forward.words) + len(c.inference.words) + len(c.backward.words) for c in plan.codes.values()
    )
    found = [
        *(Block(f"payload {k}", part, sizes.payload) for k in range(2 * WORD // part)),
        Block("table", WORD, sizes.table),
        Block("messages missing", WORD + 1, sizes.firings),
        Block("records", WORD, sizes.firings),
        Block("owners", max(1, _bits(len(partition.units))) + max(1, _bits(sizes.slots)) + 1, sizes.firings),
        Block("states", partition.state_bits, sizes.firings),
        Block("gradients missing", WORD, sizes.firings),
        Block("gradients to add", place + 1, sizes.firings << output),
        Block("places", WORD + max(firing, place) + 2 + output + row, sizes.places),
        Block("learning rates", 16, sum(len(r.rates) for r in dict.fromkeys(plan.rules.values()))),
        Block("ready forward", firing, sizes.firings),
        Block("ready backward", firing, sizes.firings),
        Block("control programs", _step_bits(plan), len(plan.control.steps)),
        Block("microprograms", 32, words),
        Block("pointers", _bits(sizes.payload), sizes.fan_in),
        Block("weights", BITS, beats, lanes),
        Block("summed gradients", formats.sums, beats, lanes),
        Block("gradients of a row", BITS, 2 << _bits(blocks), lanes, always=True),
        Block("messages to send", (HEADER_WORDS + 1) * WORD, JOBS),
        Block("link", WORD, 512, always=True),
    ]
    if formats.rounding == "nearest":
        found.append(Block("low halves of weights", formats.low_bits, beats, lanes))
    if any(r.mu is not None for r in plan.rules.values()):
        found.append(Block("velocities", 32, beats, lanes))
    if curves:
        found.append(Block("curves", 36, SEGMENTS * len(CURVES)))
    return found


def _step_bits(plan: HardwarePlan) -> int:
    """Of a word of the control programs, without those that are 0 in all of them."""
    steps = plan.control.steps
    numbers = 0
    for slot in "abcde":
        distinct = {e for s in steps if (e := getattr(s, slot)) is not None}
        numbers += max(1, _bits(len(distinct) + 1))
    path = max(1, _bits(max(s.path for s in steps) + 1))
    n, m = _bits(max(s.n for s in steps) + 1), _bits(max(s.m for s in steps) + 1)
    return 5 + n + m + max(1, _bits(len(steps) + 1)) + path + _WAIT + numbers


def _bits(n: int) -> int:
    """Of the numbers 0 .. n-1."""
    return (n - 1).bit_length() if n > 0 else 0
