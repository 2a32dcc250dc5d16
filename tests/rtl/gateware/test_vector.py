"""The vector unit against its reference: operations, addresses, order, time."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.rtl.fixed.curves import curve
from amphw.rtl.formats import Formats
from amphw.rtl.gateware.vector_command import CONSTANT_BITS, REDUCTIONS, Mode, Op, VectorShape
from tests.rtl.gateware.vector_bench import check, simulate
from tests.rtl.gateware.vector_reference import Command, Walk

SHAPE = VectorShape(10, 8, Formats.parse("q4.12"), (curve("sigmoid", 12), curve("tanh", 12)), pointers=16)
SIZE = 1 << SHAPE.address_bits
EXTREMES = (-32768, -32767, -1, 0, 1, 32766, 32767)


def memory(rng: np.random.Generator) -> list[int]:
    """Words of every size, extremes often."""
    words = rng.integers(-(1 << 15), 1 << 15, SIZE) >> rng.integers(0, 16, SIZE)
    return np.where(rng.random(SIZE) < 0.3, rng.choice(EXTREMES, SIZE), words).tolist()


def constant(rng: np.random.Generator) -> int:
    high = (1 << (CONSTANT_BITS - 1)) - 1
    if rng.random() < 0.4:
        return int(rng.choice([-high - 1, high, 0, 1, -1, 32767, -32768, 4096]))
    return int(rng.integers(-high - 1, high + 1) >> rng.integers(0, CONSTANT_BITS))


@pytest.mark.parametrize("op", Op)
def test_operation(op: Op) -> None:
    """Every shift, and many constants, on values in memory that nothing else writes."""
    rng = np.random.default_rng(op.value)
    commands = [
        Command(
            op,
            outer=3 if op in REDUCTIONS else 1,
            inner=12,
            a=Walk(int(rng.integers(512)), 16, 1),
            b=Walk(int(rng.integers(512)), 16, 1),
            d=Walk(512 + 12 * n, 1, 1),
            constant=constant(rng),
            shift=n % 32,
            table=n % 2,
            overlap=True,
        )
        for n in range(40)
    ]
    check(SHAPE, memory(rng), commands)
