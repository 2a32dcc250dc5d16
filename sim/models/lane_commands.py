"""Random work for a lane engine: contents of its memories, and commands."""

from __future__ import annotations

from typing import Any

import numpy as np

from amphw.rtl.fixed.norm import LIMIT_BITS
from amphw.rtl.fixed.parameters import COEFFICIENT_BITS, RATE_BITS, VELOCITY
from amphw.rtl.gateware.lanes.shape import LaneShape
from amphw.rtl.isa.commands import Bank, LaneOp
from sim.models.lanes import Command, LaneModel

DEFAULTS: Command = {
    "op": LaneOp.FORWARD, "count": 1, "x": 0, "y": 0, "dz": 0, "base": 0, "rows": 0, "blocks": 1, "bias": 0,
    "columns": 1, "want_dx": 0, "want_dw": 0, "scale": 0, "rate": 0, "seed": 1, "bank": Bank.WEIGHT,
    "lane": 0, "data": 0,
}  # fmt: skip

OPS = [*(op for op in LaneOp if op != LaneOp.CLIP), *2 * (LaneOp.FORWARD, LaneOp.BACKWARD)]
"""Those of random commands; the two that have most parts come more often. CLIP joins where there is one."""

LOWER, UPPER = 0, 96
"""Where operands and results of random commands begin: those of one area never reach the other."""

INDICES = 16
"""Words at the end of the payload memory that random TAKEs take for indices."""


def command(op: LaneOp, **fields: Any) -> Command:
    return {**DEFAULTS, "op": op, **fields}


def banks(shape: LaneShape) -> dict[Bank, tuple[int, int]]:
    """The memories that an engine has, and the least and the largest number of each."""

    def signed(bits: int) -> tuple[int, int]:
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    found = {Bank.WEIGHT: signed(16), Bank.GRADIENT: signed(shape.formats.sums)}
    if shape.keeps_low:
        found[Bank.LOW] = 0, (1 << shape.formats.low_bits) - 1
    if shape.momentum:
        found[Bank.VELOCITY] = signed(VELOCITY.bits)
    return found


def fill(model: LaneModel, rng: np.random.Generator, weights: int = 13, sums: int = 30) -> None:
    """Random contents: weights and summed gradients of so many bits. The memory ends with indices.

    A quarter of the numbers end with zeros, so that half of a last place is rounded as well.
    """
    shape = model.shape
    for bank, (low, high) in banks(shape).items():
        bits = {Bank.WEIGHT: weights, Bank.GRADIENT: sums}.get(bank)
        if bits is not None:
            low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        numbers = rng.integers(low, high + 1, (shape.beats, shape.lanes))
        zeros = rng.integers(0, high.bit_length(), numbers.shape) * (rng.random(numbers.shape) < 0.25)
        model.banks[bank][:] = (numbers >> zeros << zeros).astype(object)
    model.memory[:] = rng.integers(-(1 << 13), 1 << 13, len(model.memory)).astype(object)
    model.memory[-INDICES:] = rng.integers(0, 4, INDICES).astype(object)


def random_command(
    rng: np.random.Generator, shape: LaneShape, operands: int = LOWER, results: int = UPPER
) -> Command:
    """Any, on a payload memory of 8 address bits or more and 32 beats or more.

    operands, results: areas that it reads and writes. Nobody waits within a row of commands, so these
    should differ.
    """

    def draw(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    ops = [*OPS, *[LaneOp.CLIP] * shape.clips]
    op = ops[draw(0, len(ops) - 1)]
    count, rows, columns = (
        draw(0, 3),
        draw(0 if op == LaneOp.BACKWARD else 1, 4),
        draw(1, 2 * shape.lanes + 1),
    )
    if rng.random() < 0.15:  # many rows, or many inputs, that just fit an area
        columns = draw(1, 3)
        # With the bias, and behind the last base, all rows lie in the memory of parameters, too.
        most = min(16, (shape.beats - 3) // -(-columns // shape.lanes) - 1)
        count, rows = (draw(4, INDICES), draw(1, 3)) if draw(0, 1) else (draw(1, 3), draw(5, most))
    bank = list(banks(shape))[draw(0, len(banks(shape)) - 1)]
    data = draw(0, (1 << LIMIT_BITS) - 1) >> draw(0, 34) if op == LaneOp.CLIP else draw(*banks(shape)[bank])
    return command(
        op,
        count=count,
        rows=rows,
        columns=columns,
        blocks=-(-columns // shape.lanes),
        bias=draw(0, 1),
        base=draw(0, 3),
        x=(1 << shape.address_bits) - INDICES
        if op in (LaneOp.TAKE, LaneOp.TAKE_GRADIENT)
        else operands + draw(0, 40),
        dz=operands + draw(0, 40),
        y=results + draw(0, 40),
        want_dx=draw(0, 1),
        want_dw=draw(0, 1),
        scale=draw(0, (1 << COEFFICIENT_BITS) - 1) >> draw(0, 26),
        rate=draw(0, (1 << RATE_BITS) - 1),
        seed=draw(1, (1 << 32) - 1),
        bank=bank,
        lane=draw(0, shape.lanes - 1),
        data=data,
    )
