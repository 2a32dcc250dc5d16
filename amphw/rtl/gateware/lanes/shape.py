"""What a lane engine is built for, and the commands it takes.

Parameters lie in memories of *beats*: `lanes` consecutive columns of one row. A parameter [K, N] takes
ceil(N / lanes) beats a row, rows one behind the other; the bias of a layer is row K behind its matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, enum

from amphw.ir.errors import AmphwError
from amphw.rtl.fixed.parameters import COEFFICIENT_BITS, MU_BITS, RATE_BITS
from amphw.rtl.isa.commands import Bank, LaneOp
from amphw.rtl.isa.memory import READ_LATENCY
from amphw.rtl.numbers.formats import Formats

RESPONSE_BITS = 36
BROADCAST_BITS = 18
"""Of the operand that all lanes share: a multiplier takes 18 bits, so a 1.0 of 17 or 18 bits fits."""


class LaneShapeError(AmphwError):
    """A lane engine that cannot be built as asked."""


@dataclass(frozen=True)
class LaneShape:
    """Constants of a lane engine.

    lanes: multipliers, a power of two of 2 or more. beats: depth of the parameters' memories, shared by all
    parameters. widest_blocks: beats a row of the widest parameter. address_bits: of the payload memory.
    s1, s2: right shifts of an update, behind the products with `scale` and `rate`. mu: momentum's factor,
    times 2**15. clips: whether there is a CLIP.
    """

    lanes: int
    beats: int
    widest_blocks: int
    address_bits: int
    formats: Formats = field(default_factory=Formats)
    momentum: bool = False
    mu: int = 0
    s1: int = 24
    s2: int = 16
    clips: bool = False

    def __post_init__(self) -> None:
        if self.lanes < 2 or self.lanes & (self.lanes - 1):
            raise LaneShapeError(f"a lane engine of {self.lanes} lanes: choose a power of two, 2 or more")
        if not 1 <= self.widest_blocks <= self.beats:
            raise LaneShapeError(
                f"rows of up to {self.widest_blocks} beats in a memory of {self.beats}: "
                "choose 1 <= widest_blocks <= beats"
            )
        if self.address_bits < 2:
            raise LaneShapeError(f"a payload memory of {self.address_bits} address bits: choose 2 or more")
        if not 0 <= self.mu < 1 << MU_BITS:
            raise LaneShapeError(
                f"mu = {self.mu}: momentum's factor times 2**{MU_BITS} lies in 0 .. {(1 << MU_BITS) - 1}"
            )
        for name in ("s1", "s2"):
            if not 0 <= getattr(self, name) <= 60:
                raise LaneShapeError(f"{name} = {getattr(self, name)}: a shift of 0 .. 60 bits")

    @property
    def lane_bits(self) -> int:
        return (self.lanes - 1).bit_length()

    @property
    def beat_bits(self) -> int:
        return max(1, (self.beats - 1).bit_length())

    @property
    def count_bits(self) -> int:
        """Of a number of rows, or of beats: 0 .. beats."""
        return self.beats.bit_length()

    @property
    def block_bits(self) -> int:
        """Of a block's number within a row."""
        return max(1, (self.widest_blocks - 1).bit_length())

    @property
    def keeps_low(self) -> bool:
        """The master's low bits are kept in a memory."""
        return self.formats.rounding == "nearest"

    @property
    def bias_shift(self) -> int:
        """1.0 is 1 << value.frac; what exceeds the operand is shifted in behind the multiplier."""
        return max(0, self.formats.value.frac - (BROADCAST_BITS - 2))


def command_layout(shape: LaneShape) -> data.StructLayout:
    """Payload of the command stream; a field that an op has no use for is ignored.

    op; count: rows of the message; x, y, dz: addresses in the payload memory; base: first beat; rows, blocks,
    columns: K, beats a row, N; bias, want_dx, want_dw. UPDATE: scale, rate, seed. CLIP: scale, that of one
    row, and in `data` the limit of the norm. POKE and PEEK: `bank`, beat `base`, `lane`, and POKE's `data`.
    """
    address = unsigned(shape.address_bits)
    return data.StructLayout(
        {
            "op": LaneOp,
            "count": address,
            "x": address,
            "y": address,
            "dz": address,
            "base": unsigned(shape.beat_bits),
            "rows": unsigned(shape.count_bits),
            "blocks": unsigned(shape.widest_blocks.bit_length()),
            "columns": unsigned((shape.widest_blocks * shape.lanes).bit_length()),
            "bias": unsigned(1),
            "want_dx": unsigned(1),
            "want_dw": unsigned(1),
            "scale": unsigned(COEFFICIENT_BITS),
            "rate": unsigned(RATE_BITS),
            "seed": unsigned(32),
            "bank": Bank,
            "lane": unsigned(shape.lane_bits),
            "data": signed(RESPONSE_BITS),
        }
    )


class Kind(enum.Enum, shape=2):  # type: ignore[call-arg]
    """What one walk over a parameter's beats does. EMPTY touches nothing; it carries the end of a command."""

    FORWARD = 0
    WEIGHT_GRADIENT = 1
    INPUT_GRADIENT = 2
    EMPTY = 3


def walk_layout(shape: LaneShape) -> data.StructLayout:
    """One walk over a parameter's beats, for one row of a message.

    last_row, last_block: numbers of the last row (the bias included) and of the last block. tail: lanes of
    the last block, less one. dz: which of the two registers for dz. release: the last walk that reads it.
    final: the last walk of its command.
    """
    address = unsigned(shape.address_bits)
    return data.StructLayout(
        {
            "kind": Kind,
            "base": unsigned(shape.beat_bits),
            "x": address,
            "y": address,
            "last_row": unsigned(shape.count_bits),
            "blocks": unsigned(shape.widest_blocks.bit_length()),
            "last_block": unsigned(shape.block_bits),
            "tail": unsigned(shape.lane_bits),
            "bias": unsigned(1),
            "dz": unsigned(1),
            "release": unsigned(1),
            "final": unsigned(1),
        }
    )


def beat_layout(shape: LaneShape) -> data.StructLayout:
    """What happens to one beat; travels down the pipeline beside the data.

    bias: x is 1.0. last: a sum is complete; forward: of `tail` + 1 lanes, to y onwards; input_gradient: to y.
    """
    return data.StructLayout(
        {
            "forward": unsigned(1),
            "weight_gradient": unsigned(1),
            "input_gradient": unsigned(1),
            "beat": unsigned(shape.beat_bits),
            "dz": unsigned(1),
            "block": unsigned(shape.block_bits),
            "bias": unsigned(1),
            "last": unsigned(1),
            "tail": unsigned(shape.lane_bits),
            "y": unsigned(shape.address_bits),
        }
    )


# Cycles behind a beat's issue. x is asked for at 0, and everything is registered.
OPERANDS = READ_LATENCY + 1
"""Weights, x and dz are in registers. Their memories, but for that of x, are asked two cycles before."""
PRODUCTS = OPERANDS + 3
"""So are the products, and the summed gradients that they are added to."""
REWRITTEN = PRODUCTS + 1
"""Summed gradients are written back, and sums of FORWARD stand captured."""
READ_AGAIN = 4
"""A beat of summed gradients may be issued this long after it was issued before."""


def tree_levels(shape: LaneShape) -> int:
    """Levels of the tree that adds up the lanes of a beat, one cycle each.

    Two at least: a sum of it would else come to the rounder together with the last of FORWARD's before it.
    """
    return max(2, shape.lane_bits)
