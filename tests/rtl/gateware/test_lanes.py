"""The lane engine, gates beside the model: every command, sizes of all kinds, commands in a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amphw.rtl.gateware.lanes.shape import LaneShape, LaneShapeError
from amphw.rtl.isa.commands import Bank, LaneOp
from amphw.rtl.numbers.formats import Formats
from sim.models.lane_commands import command, fill, random_command
from tests.daily import daily
from tests.rtl.gateware.lanes_bench import Bench, compare

SHAPE = LaneShape(lanes=4, beats=32, widest_blocks=4, address_bits=8)
LAYER = {"rows": 5, "blocks": 2, "columns": 7, "bias": 1}
GRADIENTS = {"want_dx": 1, "want_dw": 1}


def bench(shape: LaneShape = SHAPE, seed: int = 0, weights: int = 13, sums: int = 30) -> Bench:
    """Random contents, see `fill`."""
    found = Bench(shape)
    fill(found.model, np.random.default_rng(seed), weights, sums)
    return found


@pytest.mark.parametrize("lanes", daily([4], [2, 8]))
@pytest.mark.parametrize(
    "rows, columns, bias",
    [(5, 7, 1), (5, 7, 0), (1, 1, 0), (0, 5, 1), (2, 3, 1), (4, 8, 0), (3, 8, 1), (1, 8, 1), (9, 2, 0)],
)
@pytest.mark.parametrize("op", [LaneOp.FORWARD, LaneOp.BACKWARD])
def test_layer(op: LaneOp, lanes: int, rows: int, columns: int, bias: int) -> None:
    shape = LaneShape(lanes=lanes, beats=64, widest_blocks=4, address_bits=8)
    blocks = -(-columns // lanes)
    layer = command(
        op,
        count=3,
        rows=rows,
        columns=columns,
        blocks=blocks,
        bias=bias,
        base=3,
        x=0,
        dz=40,
        y=100,
        **GRADIENTS,
    )
    compare(bench(shape), [layer, {**layer, "y": 140}])


@pytest.mark.parametrize("want_dx, want_dw", [(0, 0), (0, 1), (1, 0)])
def test_parts_of_backward(want_dx: int, want_dw: int) -> None:
    backward = command(LaneOp.BACKWARD, count=2, dz=50, y=100, want_dx=want_dx, want_dw=want_dw, **LAYER)
    compare(bench(), [backward, backward])


@pytest.mark.parametrize("columns", [3, 4, 7])
def test_take(columns: int) -> None:
    where = {"count": 10, "x": 240, "columns": columns, "blocks": -(-columns // 4), "base": 2}
    compare(bench(), [command(LaneOp.TAKE, y=0, **where), command(LaneOp.TAKE_GRADIENT, dz=80, **where)])


@pytest.mark.parametrize("columns", [3, 8])
def test_sums_are_read_only_after_they_are_written(columns: int) -> None:
    """Behind a long command, gradients of the same few beats are ready one right behind the other."""
    long = command(LaneOp.FORWARD, x=0, y=100, rows=9, columns=8, blocks=2, bias=1)
    few = command(
        LaneOp.BACKWARD,
        count=2,
        x=0,
        dz=50,
        rows=1,
        columns=columns,
        blocks=-(-columns // 4),
        base=1,
        want_dw=1,
    )
    compare(bench(), [long, long, few, few])


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_results_of_both_kinds_leave_through_one_rounder(lanes: int) -> None:
    """The tree of the gradients is deeper than the way of FORWARD, which comes right behind it."""
    shape = LaneShape(lanes, 64, 4, 8)
    short = {"rows": 1, "columns": lanes, "blocks": 1}
    forward = command(LaneOp.FORWARD, x=0, y=100, **short)
    backward = command(LaneOp.BACKWARD, dz=20, y=180, want_dx=1, **short)
    long = command(LaneOp.BACKWARD, rows=60, columns=lanes, want_dw=1, dz=20)
    compare(bench(shape), [long, backward, forward])
    compare(bench(shape), [long, forward, backward, forward])


def test_done_comes_in_order() -> None:
    """A command without effects, right behind one whose results are still leaving, is done after it."""
    engine = bench(LaneShape(8, 32, 4, 8))
    forward = command(LaneOp.FORWARD, x=0, y=100, rows=9, columns=8)
    engine.model.run(forward)

    async def testbench(ctx: Any) -> None:
        engine.load(ctx)
        ctx.set(engine.payload.data[107], 0x5555)
        await engine.give(ctx, [forward, command(LaneOp.BACKWARD), command(LaneOp.BACKWARD)])
        for _ in range(3):
            await ctx.tick().until(engine.engine.done)
            assert ctx.get(engine.payload.data[107]) == engine.model.memory[107] & 0xFFFF
        await ctx.tick().repeat(2)
        assert ctx.get(engine.engine.idle)

    engine.simulate(testbench)


def test_standalone_vector() -> None:
    vector = {"rows": 0, "bias": 1, "columns": 6, "blocks": 2, "base": 4}
    forward = command(LaneOp.FORWARD, y=100, **vector)
    backward = command(LaneOp.BACKWARD, dz=20, want_dw=1, **vector)
    compare(bench(), [forward, backward, backward, backward, forward])


def test_nothing_to_do_is_done() -> None:
    nothing = [
        command(LaneOp.FORWARD, count=0, **LAYER),
        command(LaneOp.BACKWARD, count=0, **LAYER, **GRADIENTS),
        command(LaneOp.BACKWARD, **LAYER),
        command(LaneOp.BACKWARD, rows=0, **GRADIENTS),
        command(LaneOp.UPDATE, rows=0),
    ]
    compare(bench(), [*nothing, command(LaneOp.FORWARD, y=100, **LAYER), *nothing])


def test_done_means_in_memory() -> None:
    """Whoever waits for `done` may hand the outputs to the next command, even of a narrow layer."""
    engine = bench()
    chain = [
        command(LaneOp.FORWARD, x=0, y=100, **LAYER),
        command(LaneOp.BACKWARD, x=0, dz=100, y=110, **LAYER, **GRADIENTS),
        command(LaneOp.FORWARD, x=110, y=120, **LAYER),
        command(LaneOp.BACKWARD, dz=120, y=130, want_dx=1, **LAYER),
        command(LaneOp.FORWARD, x=130, y=140, rows=1, columns=3, bias=0),
        command(LaneOp.FORWARD, x=140, y=150, rows=1, columns=3, bias=0),
        command(LaneOp.TAKE, x=240, y=160, columns=5, blocks=2),
        command(LaneOp.BACKWARD, dz=160, y=170, rows=1, columns=3, want_dx=1),
        command(LaneOp.BACKWARD, dz=170, y=180, rows=1, columns=1, want_dx=1),
    ]

    async def testbench(ctx: Any) -> None:
        engine.load(ctx)
        for fields in chain:
            engine.model.run(fields)
            await engine.give(ctx, [fields])
            await ctx.tick().until(engine.engine.done)
            engine.check(ctx)

    engine.simulate(testbench)


def test_outputs_and_sums_saturate() -> None:
    engine = bench(weights=16)
    engine.model.memory[:200] = [32767 if i % 3 else -32768 for i in range(200)]
    limit = 1 << (SHAPE.formats.sums - 1)
    engine.model.banks[Bank.GRADIENT][:, ::2] = limit - 1000
    engine.model.banks[Bank.GRADIENT][:, 1::2] = 1000 - limit
    layer = {"x": 0, "y": 200, "dz": 50, **LAYER}
    compare(engine, [command(LaneOp.FORWARD, **layer), command(LaneOp.BACKWARD, **layer, **GRADIENTS)])
    sums = set(engine.model.banks[Bank.GRADIENT].flat)
    assert limit - 1 in sums and -limit in sums
    assert {32767, -32768} & set(engine.model.memory[200:207])


@pytest.mark.parametrize(
    "formats",
    [
        "q4.12",
        "q6.10,w=q3.13",
        "q2.14,w=q8.8,sum=32",
        "q0.16,w=q2.14",
        "q-4.20,w=q0.16,acc=48",
        "q4.12,w=q-2.18",
    ],
)
def test_binary_points(formats: str) -> None:
    shape = LaneShape(4, 32, 4, 8, Formats.parse(formats))
    layer = {"x": 0, "y": 100, "dz": 50, **LAYER}
    compare(
        bench(shape, sums=29),
        [
            command(LaneOp.FORWARD, **layer),
            command(LaneOp.BACKWARD, **layer, **GRADIENTS),
            command(LaneOp.TAKE, x=240, y=120, columns=7, blocks=2),
        ],
    )


@pytest.mark.parametrize("gap", daily([0], range(1, 4)))
def test_any_commands_one_behind_the_other(gap: int) -> None:
    for seed in range(10):
        rng = np.random.default_rng(100 * gap + seed)
        listed = [random_command(rng, SHAPE) for _ in range(rng.integers(2, 13))]
        compare(bench(seed=seed, sums=36), listed, gap)


@pytest.mark.parametrize("cycles", [3, 9, 14, 21, 33, 60])
def test_reset_amid_commands(cycles: int) -> None:
    engine = bench()
    layer = {"count": 2, "x": 0, "y": 100, "dz": 50, **LAYER}
    work = [
        command(LaneOp.BACKWARD, **layer, **GRADIENTS),
        command(LaneOp.FORWARD, **layer),
        command(LaneOp.UPDATE, **LAYER, scale=99999),
    ]

    async def testbench(ctx: Any) -> None:
        ctx.set(engine.engine.command.payload, work[0])
        ctx.set(engine.engine.command.valid, 1)
        await ctx.tick().repeat(cycles)
        ctx.set(engine.engine.command.valid, 0)
        ctx.set(engine.reset, 1)
        await ctx.tick()
        ctx.set(engine.reset, 0)
        assert ctx.get(engine.engine.idle)
        await ctx.tick().repeat(20)
        engine.load(ctx)
        engine.done_at.clear()
        for fields in work:
            engine.model.run(fields)
        await engine.give(ctx, work)
        await engine.settle(ctx)
        engine.check(ctx)
        assert len(engine.done_at) == len(work)

    engine.simulate(testbench)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"lanes": 3}, "a lane engine of 3 lanes: choose a power of two, 2 or more"),
        (
            {"widest_blocks": 33},
            "rows of up to 33 beats in a memory of 32: choose 1 <= widest_blocks <= beats",
        ),
        ({"address_bits": 1}, "a payload memory of 1 address bits: choose 2 or more"),
        ({"mu": 1 << 15}, "mu = 32768: momentum's factor times 2**15 lies in 0 .. 32767"),
        ({"s1": 61}, "s1 = 61: a shift of 0 .. 60 bits"),
    ],
)
def test_shapes_that_cannot_be(fields: dict[str, int], message: str) -> None:
    with pytest.raises(LaneShapeError) as error:
        LaneShape(**{"lanes": 4, "beats": 32, "widest_blocks": 4, "address_bits": 8, **fields})
    assert str(error.value) == message
