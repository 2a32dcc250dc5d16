"""Updates, POKE and PEEK of the lane engine, gates beside the model."""

from __future__ import annotations

from typing import Any

import pytest

from amphw.rtl.gateware.lanes.shape import LaneShape
from amphw.rtl.isa.commands import Bank, LaneOp
from amphw.rtl.numbers.formats import Formats
from sim.models.lane_commands import command
from tests.daily import daily
from tests.rtl.gateware.lanes_bench import compare
from tests.rtl.gateware.test_lanes import bench

LAYER = {"base": 2, "rows": 4, "blocks": 2, "columns": 7}


def shape(**fields: Any) -> LaneShape:
    return LaneShape(lanes=4, beats=16, widest_blocks=2, address_bits=8, **fields)


@pytest.mark.parametrize("master", [24, 32])
@pytest.mark.parametrize("scale", [0, 1, 54321, (1 << 27) - 1])
@pytest.mark.parametrize("weights, sums", [(13, 30), (16, 36)])
def test_descent(master: int, scale: int, weights: int, sums: int) -> None:
    built = shape(formats=Formats(master=master), s1=22)
    compare(bench(built, weights=weights, sums=sums), [command(LaneOp.UPDATE, scale=scale, **LAYER)])


@pytest.mark.parametrize("mu", [0, 29491, 32767])
@pytest.mark.parametrize("s1, s2, rate", [(20, 16, 65535), (30, 8, 1000), (0, 0, 3)])
def test_momentum(mu: int, s1: int, s2: int, rate: int) -> None:
    built = shape(momentum=True, mu=mu, s1=s1, s2=s2)
    update = command(LaneOp.UPDATE, scale=1 << 20, rate=rate, **LAYER)
    backward = command(LaneOp.BACKWARD, x=0, dz=50, y=100, want_dx=1, want_dw=1, **LAYER)
    compare(bench(built, weights=16, sums=36), [update, backward, update])


@pytest.mark.parametrize("master", [24, 32])
def test_stochastic_rounding(master: int) -> None:
    built = shape(formats=Formats(master=master, rounding="stochastic"))
    commands = [command(LaneOp.UPDATE, scale=70000, seed=seed, **LAYER) for seed in (1, 0xDEADBEEF)]
    compare(bench(built), [commands[0], command(LaneOp.FORWARD, y=100, **LAYER), commands[1]])


@pytest.mark.parametrize("sums", daily(["sum=36"], ["sum=33", "sum=32"]))
@pytest.mark.parametrize("limit", [1, 1 << 20, (1 << 35) - 1])
@pytest.mark.parametrize("momentum", [False, True])
def test_clipping(sums: str, limit: int, momentum: bool) -> None:
    """A CLIP limits the update behind it, and none behind that."""
    formats = Formats.parse(f"q4.12,{sums}")
    built = shape(formats=formats, clips=True, momentum=momentum, mu=29491 * momentum, s1=30)
    engine = bench(built, sums=formats.sums)
    clip = command(LaneOp.CLIP, scale=1 << 26, data=limit, **LAYER)
    update = command(LaneOp.UPDATE, scale=123456, rate=1000, **LAYER)
    gradients = command(LaneOp.BACKWARD, x=0, dz=50, y=100, want_dw=1, **LAYER)
    compare(engine, [clip, update, gradients, update, gradients, clip, clip, update])


def test_a_gradient_of_nothing_is_not_clipped() -> None:
    engine = bench(shape(clips=True))
    engine.model.banks[Bank.GRADIENT][:] = 0
    clip = command(LaneOp.CLIP, scale=1, data=1, **LAYER)
    gradients = command(LaneOp.BACKWARD, x=0, dz=50, y=100, want_dw=1, **LAYER)
    compare(engine, [clip, gradients, command(LaneOp.UPDATE, scale=(1 << 27) - 1, **LAYER)])


def test_the_largest_norm() -> None:
    engine = bench(shape(clips=True))
    engine.model.banks[Bank.GRADIENT][:] = -(1 << 35)
    clip = command(LaneOp.CLIP, scale=(1 << 27) - 1, data=1 << 30, **LAYER)
    compare(engine, [clip, command(LaneOp.UPDATE, scale=(1 << 27) - 1, **LAYER)])


def test_used_gradients_are_cleared_and_others_are_not() -> None:
    engine = bench(shape(), sums=36)
    before = engine.model.banks[Bank.GRADIENT].copy()
    compare(engine, [command(LaneOp.UPDATE, scale=5000, **LAYER)])
    after = engine.model.banks[Bank.GRADIENT]
    assert not after[2:10, :3].any()
    assert (after[3:10:2, 3] == before[3:10:2, 3]).all()  # lanes behind the last column
    assert (after[10:] == before[10:]).all() and (after[:2] == before[:2]).all()


@pytest.mark.parametrize("momentum", [False, True])
def test_poke_and_peek(momentum: bool) -> None:
    built = shape(momentum=momentum)
    words = {
        Bank.WEIGHT: [-32768, 32767],
        Bank.LOW: [0, 65535],
        Bank.GRADIENT: [-(1 << 35), (1 << 35) - 1, -5],
    }
    if momentum:
        words[Bank.VELOCITY] = [-(1 << 31), (1 << 31) - 1]
    listed = []
    for bank, values in words.items():
        for i, value in enumerate(values):
            listed.append(command(LaneOp.POKE, bank=bank, base=5 + i, lane=i + 1, data=value))
            listed += [command(LaneOp.PEEK, bank=bank, base=5 + i, lane=lane) for lane in (i, i + 1)]
    layer = command(LaneOp.FORWARD, y=100, **LAYER)
    backward = command(LaneOp.BACKWARD, dz=50, y=100, want_dw=1, **LAYER)
    engine = bench(built)
    compare(engine, [layer, backward, *listed, layer, backward])
    assert {value for values in words.values() for value in values} <= set(engine.model.responses)


def test_peek_waits_for_whoever_asks() -> None:
    engine = bench(shape())
    peeks = [command(LaneOp.PEEK, bank=Bank.WEIGHT, base=beat, lane=1) for beat in (3, 4)]
    port = engine.engine.response
    answers = []

    async def testbench(ctx: Any) -> None:
        engine.load(ctx)
        await engine.give(ctx, peeks[:1])
        await ctx.tick().until(port.valid)
        ctx.set(engine.engine.command.payload, peeks[1])
        ctx.set(engine.engine.command.valid, 1)
        for _ in range(5):
            assert ctx.get(port.valid) and not ctx.get(engine.engine.idle)
            answers.append(ctx.get(port.payload))
            await ctx.tick()
        ctx.set(port.ready, 1)
        await ctx.tick()
        await ctx.tick().until(port.valid)
        answers.append(ctx.get(port.payload))

    from amaranth.sim import Simulator

    simulator = Simulator(engine.circuit())
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    weights = engine.model.banks[Bank.WEIGHT]
    assert answers == [weights[3, 1]] * 5 + [answers[-1]] and len(set(answers)) <= 2
