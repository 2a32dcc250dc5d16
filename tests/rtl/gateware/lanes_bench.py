"""A lane engine with its payload memory in Amaranth's simulator, beside the model of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import memory
from amaranth.sim import Simulator

from amphw.rtl.gateware.lanes.engine import LaneEngine
from amphw.rtl.gateware.lanes.shape import LaneShape
from amphw.rtl.isa.commands import Bank
from sim.memory import read_of
from sim.models.lanes import Command, LaneModel


class Bench:
    """`check` compares all memories, and the answers to PEEK, of gates and model."""

    def __init__(self, shape: LaneShape) -> None:
        self.shape = shape
        self.model = LaneModel(shape)
        self.engine = LaneEngine(shape)
        self.payload = memory.Memory(shape=16, depth=1 << shape.address_bits, init=[])
        self.reset = Signal()
        self.responses: list[int] = []
        self.done_at: list[int] = []
        self.cycle = 0

    def circuit(self) -> Module:
        m = Module()
        m.submodules.engine = ResetInserter(self.reset)(self.engine)
        m.submodules.payload = self.payload
        for port in (self.engine.read_a, self.engine.read_b):
            m.d.comb += port.data.eq(read_of(m, self.payload, port.addr))
        write, port = self.payload.write_port(), self.engine.write
        m.d.comb += [write.en.eq(port.en), write.addr.eq(port.addr), write.data.eq(port.data)]
        return m

    def stores(self) -> dict[Bank, Any]:
        engine = self.engine
        found = {Bank.WEIGHT: engine.weights, Bank.GRADIENT: engine.gradients.store}
        if engine.low is not None:
            found[Bank.LOW] = engine.low
        if engine.velocities is not None:
            found[Bank.VELOCITY] = engine.velocities
        return found

    def load(self, ctx: Any) -> None:
        """The gates' memories become the model's."""
        for bank, store in self.stores().items():
            for beat, words in enumerate(self.model.banks[bank]):
                ctx.set(store.memory.data[beat], [int(word) for word in words])
        for address, word in enumerate(self.model.memory):
            ctx.set(self.payload.data[address], int(word) & 0xFFFF)

    def check(self, ctx: Any) -> None:
        for bank, store in self.stores().items():
            found = [
                [ctx.get(store.memory.data[beat])[lane] for lane in range(self.shape.lanes)]
                for beat in range(self.shape.beats)
            ]
            np.testing.assert_array_equal(np.array(found, object), self.model.banks[bank], err_msg=bank.name)
        words = [ctx.get(self.payload.data[address]) for address in range(len(self.model.memory))]
        signed = [word - (1 << 16) * (word >> 15) for word in words]
        np.testing.assert_array_equal(np.array(signed, object), self.model.memory, err_msg="payload")
        assert self.responses == self.model.responses

    async def give(self, ctx: Any, commands: Iterable[Command], gap: int = 0) -> None:
        port = self.engine.command
        for fields in commands:
            ctx.set(port.payload, fields)
            ctx.set(port.valid, 1)
            await ctx.tick().until(port.ready)
            ctx.set(port.valid, 0)
            if gap:
                await ctx.tick().repeat(gap)

    async def settle(self, ctx: Any, limit: int = 100_000) -> None:
        for _ in range(limit):
            if ctx.get(self.engine.idle):
                await ctx.tick().repeat(2)  # `watch` sees the last cycle
                return
            await ctx.tick()
        raise AssertionError(f"the engine is not idle after {limit} cycles")

    async def watch(self, ctx: Any) -> None:
        """Note when commands are done, and take responses."""
        ctx.set(self.engine.response.ready, 1)
        response = self.engine.response
        async for _, _, done, valid, payload in ctx.tick().sample(
            self.engine.done, response.valid, response.payload
        ):
            if done:
                self.done_at.append(self.cycle)
            if valid:
                self.responses.append(payload)
            self.cycle += 1

    def simulate(self, testbench: Any) -> None:
        simulator = Simulator(self.circuit())
        simulator.add_clock(1e-6)
        simulator.add_testbench(testbench)
        simulator.add_testbench(self.watch, background=True)
        simulator.run()


def compare(bench: Bench, commands: list[Command], gap: int = 0) -> None:
    """From the model's present state run all commands, as fast as they are taken, and compare everything."""

    async def testbench(ctx: Any) -> None:
        bench.load(ctx)
        for fields in commands:
            bench.model.run(fields)
        await bench.give(ctx, commands, gap)
        await bench.settle(ctx)
        bench.check(ctx)
        assert len(bench.done_at) == len(commands)

    bench.simulate(testbench)
