"""The vector unit against its reference: operations, addresses, order, time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from amphw.rtl.fixed.curves import curve
from amphw.rtl.gateware.vector.command import VectorShape
from amphw.rtl.gateware.vector.issue import LATENCY
from amphw.rtl.isa.commands import REDUCTIONS, IndexMode, VectorOp
from amphw.rtl.numbers.formats import Formats
from sim.models.vector import Command, Traffic, Walk, execute
from sim.models.vector_commands import EXTREMES, constant, random_commands
from sim.models.vector_commands import memory as memory_of
from tests.daily import daily
from tests.rtl.gateware.vector_bench import check

SHAPE = VectorShape(10, 8, Formats.parse("q4.12"), (curve("sigmoid", 12), curve("tanh", 12)), pointers=16)
SIZE = 1 << SHAPE.address_bits


def memory(rng: np.random.Generator) -> list[int]:
    return memory_of(rng, SIZE)


@pytest.mark.parametrize("op", VectorOp)
def test_operation(op: VectorOp) -> None:
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


@pytest.mark.parametrize("frac", [2, 8, 12, 15])
@pytest.mark.thorough
def test_lines_of_other_formats(frac: int) -> None:
    """Every 61st input, and those about the ends."""
    formats = Formats.parse(f"q{16 - frac}.{frac}")
    shape = VectorShape(12, 12, formats, (curve("tanh", frac), curve("sigmoid", frac)), pointers=1)
    inputs = [*range(-32768, 32768, 61), *EXTREMES]
    limit = curve("tanh", frac).limit_int
    inputs += [x for end in (-limit, limit) for x in range(end - 3, end + 4) if -32768 <= x < 32768]
    n = len(inputs)
    commands = [
        Command(VectorOp.LINES, 1, n, a=Walk(0, 0, 1), d=Walk(n * (t + 1), 0, 1), table=t, overlap=True)
        for t in (0, 1)
    ]
    check(shape, inputs + [0] * (4096 - n), commands)


def test_addresses() -> None:
    """Strides of 0, beyond the row, down (modulo the memory), and around its end."""
    rng = np.random.default_rng(1)
    walks = [(0, 0), (0, 1), (1, 0), (7, 1), (1, 9), (SIZE - 3, 1), (100, SIZE - 1), (512, 33)]
    commands = [
        Command(
            VectorOp.SUB,
            5,
            4,
            Walk(int(rng.integers(SIZE)), *a),
            Walk(int(rng.integers(SIZE)), *b),
            Walk(SIZE - 9, *d),
        )
        for a, b, d in zip(walks, walks[3:] + walks[:3], walks[5:] + walks[:5], strict=True)
    ]
    check(SHAPE, memory(rng), [c for c in commands if not traffic([c]).circular])


def traffic(
    commands: Sequence[Command], mem: Sequence[int] = (0,) * SIZE, pointers: Sequence[int] = ()
) -> Traffic:
    """Of the last command, after the others."""
    now = list(mem)
    for command in commands:
        last = execute(command, now, pointers, SHAPE.curves)
    return last


def with_indices(rng: np.random.Generator, rows: int) -> list[int]:
    """A memory with row numbers at its start, some of them more than once; negative ones are large."""
    mem = memory(rng)
    mem[:16] = rng.integers(0, rows, 16).tolist()
    mem[3] = mem[2]
    mem[9] = -5
    return mem


@pytest.mark.parametrize("mode", [IndexMode.A, IndexMode.D, IndexMode.ADD_D])
@pytest.mark.parametrize(("outer", "inner"), [(1, 1), (2, 5), (16, 1), (16, 3), (9, 20)])
def test_rows_by_index(mode: IndexMode, outer: int, inner: int) -> None:
    """Gathers, scatters, and sums into rows that come up again at once, after two, and much later."""
    mem = with_indices(np.random.default_rng(outer * inner), 7)
    a, d = (
        Walk(300, 0 if mode is IndexMode.A else inner, 1),
        Walk(700, inner if mode is IndexMode.A else 0, 1),
    )
    op = VectorOp.ADD if mode is IndexMode.ADD_D else VectorOp.COPY
    commands = [
        Command(op, outer, inner, a=a, d=d, mode=mode, index=0, scale=inner),
        Command(op, outer, inner, a=a, d=d, mode=mode, index=1, scale=inner + 1, overlap=True),
    ]
    check(SHAPE, mem, commands)


def test_scatter_add_into_one_word() -> None:
    """Every element needs the one before it; sums saturate on the way."""
    mem = with_indices(np.random.default_rng(2), 1)
    a, d = Walk(100, 6, 1), Walk(900, 0, 0)
    run = check(SHAPE, mem, [Command(VectorOp.ADD, 8, 6, a=a, d=d, mode=IndexMode.ADD_D, index=0, scale=0)])
    assert run.written_when_done == [48]


def test_scatter_of_the_largest() -> None:
    """An operation other than addition combines with what is there, too."""
    mem = with_indices(np.random.default_rng(3), 5)
    command = Command(
        VectorOp.MAX, 12, 4, a=Walk(100, 4, 1), d=Walk(800, 0, 1), mode=IndexMode.ADD_D, index=0, scale=4
    )
    check(SHAPE, mem, [command])


def test_sums_of_rows_anywhere() -> None:
    rng = np.random.default_rng(4)
    pointers = rng.integers(0, SIZE - 64, 16).tolist()
    commands = [
        Command(op, 8, inner, a=Walk(base, 1, 0), d=Walk(1000 - 8 * n, 1), mode=IndexMode.POINTERS)
        for n, (op, inner, base) in enumerate(
            [
                (VectorOp.SUM, 16, 0),
                (VectorOp.SUM, 1, 0),
                (VectorOp.LARGEST, 5, 3),
                (VectorOp.SUM, 0, 0),
                (VectorOp.SUM, 2, 17),
            ]
        )
    ]
    check(SHAPE, memory(rng), commands, pointers)


@pytest.mark.parametrize("overlap", [False, True])
def test_counts_of_zero(overlap: bool) -> None:
    """Nothing happens, but reductions of nothing are 0; each command is done all the same."""
    rng = np.random.default_rng(5)
    commands = [
        Command(
            op,
            outer,
            inner,
            a=Walk(20, 3, 1),
            d=Walk(600 + 9 * n, 2, 1),
            constant=7,
            overlap=overlap,
            mode=mode,
        )
        for mode in (IndexMode.NONE, IndexMode.A, IndexMode.D)
        for n, op in enumerate((VectorOp.FILL, VectorOp.SUM, VectorOp.LARGEST, VectorOp.ARGMAX, VectorOp.ADD))
        for outer, inner in ((0, 0), (0, 3), (3, 0), (1, 0), (2, 1))
    ]
    run = check(SHAPE, memory(rng), commands)
    assert len(run.written_when_done) == len(commands)


@pytest.mark.parametrize("seed", daily([0], range(1, 4)))
def test_random_sequences(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    mem, pointers = memory(rng), rng.integers(0, SIZE, 16).tolist()
    pauses = rng.integers(0, 20, 150).tolist() if seed % 2 else []
    check(SHAPE, mem, random_commands(rng, SHAPE, mem, pointers, 150), pointers, pauses=pauses)


def test_a_result_is_read_whenever_its_reader_comes() -> None:
    """In pairs: the second needs what the first writes, and comes up to 20 cycles after it, at any time."""
    mem = memory(np.random.default_rng(12))
    commands = [
        Command(VectorOp.SHIFT, a=Walk(100 + n), d=Walk(101 + n), constant=n + 1, mode=mode)
        for mode in (IndexMode.NONE, IndexMode.A, IndexMode.ADD_D)
        for n in range(40)
    ]
    commands[::2] = [replace(first, mode=IndexMode.NONE) for first in commands[::2]]
    check(SHAPE, mem, commands, pauses=[30 if n % 2 == 0 else n % 40 // 2 for n in range(120)])


def test_reset_at_any_time() -> None:
    """A unit that was reset has forgotten what it did, and does the commands from the first one on."""
    rng = np.random.default_rng(6)
    mem, pointers = memory(rng), rng.integers(0, SIZE, 16).tolist()
    commands = random_commands(rng, SHAPE, mem, pointers, 20)
    resets = [*range(1, 16), *rng.integers(16, 200, 10).tolist()]
    check(SHAPE, mem, commands, pointers, resets)


def test_an_element_a_cycle() -> None:
    mem = memory(np.random.default_rng(7))
    a, b, d = Walk(0, 20, 1), Walk(100, 20, 1), Walk(700, 20, 1)
    run = check(SHAPE, mem, [Command(VectorOp.MUL, 10, 20, a, b, d, shift=12)])
    # Accepted, set up, three cycles for addresses; then the last element's way, and `done`.
    assert run.cycles <= 200 + 5 + LATENCY + 2
    run = check(SHAPE, mem, [Command(VectorOp.SUM, 200, 1, Walk(0, 1), d=Walk(700, 1))])
    assert run.cycles <= 200 + 5 + LATENCY + 2


@pytest.mark.parametrize(("overlap", "between"), [(True, 2), (False, LATENCY)])
def test_cycles_between_commands(overlap: bool, between: int) -> None:
    mem = memory(np.random.default_rng(8))
    commands = [
        Command(VectorOp.ADD, 1, 16, Walk(0, 0, 1), Walk(20, 0, 1), Walk(500 + 16 * n, 0, 1), overlap=overlap)
        for n in range(20)
    ]
    cycles = [check(SHAPE, mem, commands[:n]).cycles for n in (1, 20)]
    assert cycles[1] - cycles[0] <= 19 * (16 + between)


def test_cycles_between_rows_with_an_index() -> None:
    mem = with_indices(np.random.default_rng(9), 20)
    gather = Command(VectorOp.COPY, 16, 8, a=Walk(100, 0, 1), d=Walk(600, 8, 1), mode=IndexMode.A, scale=8)
    assert check(SHAPE, mem, [gather]).cycles <= 16 * (8 + 2) + 12 + LATENCY + 2


def test_scatter_add_waits_only_for_its_own_words() -> None:
    mem = with_indices(np.random.default_rng(10), 16)
    mem[:16] = range(16)
    a, d = Walk(100, 8, 1), Walk(600, 0, 1)
    scatter = Command(VectorOp.ADD, 16, 8, a=a, d=d, mode=IndexMode.ADD_D, scale=8)
    assert check(SHAPE, mem, [scatter]).cycles <= 16 * (8 + 2) + 12 + LATENCY + 2


def test_reads_only_what_it_uses() -> None:
    """Cycles without a read are the link's."""
    mem = memory(np.random.default_rng(11))
    reads = {
        VectorOp.FILL: 0,
        VectorOp.COPY: 1,
        VectorOp.LINES: 1,
        VectorOp.SHIFT: 1,
        VectorOp.ABOVE: 1,
        VectorOp.ADD: 2,
        VectorOp.GATE: 2,
        VectorOp.EQUAL: 2,
    }
    for op, each in reads.items():
        run = check(SHAPE, mem, [Command(op, 1, 10, Walk(0, 0, 1), Walk(0, 0, 1), Walk(500, 0, 1))])
        assert run.reads == 10 * each, op
