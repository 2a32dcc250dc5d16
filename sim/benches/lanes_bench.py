"""A lane engine, its payload memory played by the bench, beside the model: any commands, at any pace."""

from __future__ import annotations

import random
from typing import Any

import cocotb
import numpy as np

from amphw.rtl.gateware.lanes.shape import RESPONSE_BITS, LaneShape, command_layout
from amphw.rtl.isa.commands import LaneOp
from amphw.rtl.numbers.formats import Formats
from sim.bench import PACES, Bench, counted, generator, log, settings
from sim.memory import Payload
from sim.models.lane_commands import LOWER, UPPER, banks, command, fill, random_command
from sim.models.lanes import UNLIMITED, Command, LaneModel
from sim.streams import Receiver, Sender


class Done:
    """Counts the commands that are done; an engine is idle when all are that it has accepted."""

    def __init__(self, dut: Any, source: Sender) -> None:
        self.dut, self.source = dut, source
        self.restart()

    def restart(self) -> None:
        self.number = 0
        self._accepted = 0

    def drive(self) -> None:
        self._accepted = len(self.source.accepted)

    def sample(self) -> None:
        idle = int(self.dut.idle.value)
        assert idle == (self.number == self._accepted), f"idle is {idle}: {self.number} of {self._accepted}"
        self.number += int(self.dut.done.value)


class Engine:
    """Gates and model side by side."""

    def __init__(self, dut: Any, commands: str = "always", responses: str = "always") -> None:
        given = settings()
        self.shape = LaneShape(**{**given["shape"], "formats": Formats.parse(given["formats"])})
        self.layout = command_layout(self.shape)
        self.model = LaneModel(self.shape)
        self.source = Sender(dut, "command", PACES[commands]())
        self.sink = Receiver(dut, "response", PACES[responses]())
        self.payload = Payload(dut, self.shape.address_bits)
        self.done = Done(dut, self.source)
        self.bench = Bench(dut, self.done, self.source, self.sink, self.payload)

    async def load(self, rng: np.random.Generator) -> None:
        """Random contents, word by word, after a reset; the model may have done something since."""
        self.model.ceiling = UNLIMITED
        fill(self.model, rng, weights=14, sums=self.shape.formats.sums - 2)
        self.payload.load([int(word) for word in self.model.memory])
        pokes = [
            command(
                LaneOp.POKE, bank=bank, base=beat, lane=lane, data=int(self.model.banks[bank][beat, lane])
            )
            for bank in banks(self.shape)
            for beat in range(self.shape.beats)
            for lane in range(self.shape.lanes)
        ]
        await self.give(pokes)

    async def give(self, commands: list[Command]) -> None:
        """Do all; then the payload memory must be the model's, and so must be the answers."""
        self.send(commands)
        for fields in commands:
            self.model.run(fields)
        await self.settle(len(commands))
        assert self.payload.words == [int(word) for word in self.model.memory]
        answers = [word - (1 << RESPONSE_BITS) * (word >> RESPONSE_BITS - 1) for word in self.sink.received]
        assert answers == self.model.responses
        self.sink.received.clear()
        self.model.responses.clear()

    def send(self, commands: list[Command]) -> None:
        self.source.send(self.layout.const(fields).as_bits() for fields in commands)

    async def settle(self, commands: int) -> None:
        done = self.done.number
        limit = 2_000 + 1_000 * commands
        await self.bench.until(
            lambda: self.done.number - done == commands and not self.source.waiting, limit, "the last command"
        )
        await self.bench.step(2)

    async def compare(self) -> None:
        """Every word of every memory of parameters."""
        await self.give(
            [
                command(LaneOp.PEEK, bank=bank, base=beat, lane=lane)
                for bank in banks(self.shape)
                for beat in range(self.shape.beats)
                for lane in range(self.shape.lanes)
            ]
        )


def work(rng: np.random.Generator, shape: LaneShape, number: int, flipped: bool) -> list[Command]:
    operands, results = (UPPER, LOWER) if flipped else (LOWER, UPPER)
    return [random_command(rng, shape, operands, results) for _ in range(number)]


@cocotb.test()
@cocotb.parametrize(
    paces=[("always", "always"), ("bursts", "half"), ("half", "rarely")],
)
async def as_the_model(dut: Any, paces: tuple[str, str]) -> None:
    """Rows of commands without a wait between them; each takes what the one before it has left."""
    engine, rng = Engine(dut, *paces), generator()
    await engine.bench.start()
    await engine.load(rng)
    for number in range(settings()["rows"]):
        commands = work(rng, engine.shape, int(rng.integers(1, 80)), bool(number % 2))
        await engine.give(commands)
        counted("random commands", len(commands))
    await engine.compare()
    log(f"{engine.bench.cycles} cycles")


@cocotb.test()
async def reset(dut: Any) -> None:
    """A reset at any time leaves an engine that works; what it knew is lost."""
    engine, rng = Engine(dut, "always", "half"), generator()
    await engine.bench.start()
    for _ in range(settings()["resets"]):
        engine.send(work(rng, engine.shape, 10, False))
        await engine.bench.step(random.randrange(1, 400))
        await engine.bench.reset()
        assert int(dut.idle.value)
        counted("resets", 1)
        await engine.load(rng)
        await engine.give(work(rng, engine.shape, 10, False))
        await engine.compare()
