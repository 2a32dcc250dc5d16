"""A vector unit, its payload memory played by the bench, beside the model: any commands, at any pace."""

from __future__ import annotations

import random
from typing import Any

import cocotb
import numpy as np

from amphw.rtl.fixed.curves import curve
from amphw.rtl.gateware.vector.command import VectorShape
from amphw.rtl.numbers.formats import Formats
from sim.bench import PACES, Bench, counted, generator, settings
from sim.memory import Payload
from sim.models.vector import Command, execute
from sim.models.vector_commands import memory, random_commands
from sim.streams import Sender


class Done:
    """Notes how much was written when each command was done."""

    def __init__(self, dut: Any, source: Sender, payload: Payload) -> None:
        self.dut, self.source, self.payload = dut, source, payload
        self.restart()

    def restart(self) -> None:
        self.written: list[int] = []
        self._accepted = 0

    def drive(self) -> None:
        self._accepted = len(self.source.accepted)

    def sample(self) -> None:
        if int(self.dut.done.value):
            self.written.append(len(self.payload.written))
        idle = int(self.dut.idle.value)
        assert idle == (len(self.written) == self._accepted), f"idle is {idle} amid commands"
        assert not idle or int(self.dut.command_ready.value), "an idle unit does not take a command"


class Unit:
    """Gates and model side by side."""

    def __init__(self, dut: Any, pace: str = "always") -> None:
        given = settings()
        formats = Formats.parse(given["formats"])
        curves = tuple(curve(name, formats.value.frac) for name in given["curves"])
        self.shape = VectorShape(given["address_bits"], 8, formats, curves, given["pointers"])
        self.dut = dut
        self.source = Sender(dut, "command", PACES[pace]())
        self.payload = Payload(dut, self.shape.address_bits)
        self.done = Done(dut, self.source, self.payload)
        self.bench = Bench(dut, self.done, self.source, self.payload)

    async def load(self, rng: np.random.Generator) -> None:
        size = 1 << self.shape.address_bits
        self.payload.load(memory(rng, size))
        self.pointers = rng.integers(0, size, self.shape.pointers).tolist()
        for index, address in enumerate(self.pointers):
            self.dut.pointer_en.value = 1
            self.dut.pointer_index.value = index
            self.dut.pointer_data.value = address
            await self.bench.step()
        self.dut.pointer_en.value = 0

    def commands(self, rng: np.random.Generator, number: int) -> list[Command]:
        return random_commands(rng, self.shape, self.payload.words, self.pointers, number)

    def send(self, commands: list[Command]) -> None:
        layout = self.shape.command
        self.source.send(layout.const(command.fields()).as_bits() for command in commands)

    async def give(self, commands: list[Command]) -> None:
        """Do all; every write must be the model's, and be done when its command is."""
        wanted, written, when_done = (
            list(self.payload.words),
            len(self.payload.written),
            len(self.done.written),
        )
        self.send(commands)
        limit = 1_000 + 400 * len(commands)
        await self.bench.until(
            lambda: len(self.done.written) - when_done == len(commands), limit, "the last command"
        )
        await self.bench.step(3)
        for command, done in zip(commands, self.done.written[when_done:], strict=True):
            addresses = execute(command, wanted, self.pointers, self.shape.curves).writes
            ours = self.payload.written[written : written + len(addresses)]
            written += len(addresses)
            assert [at for at, _ in ours] == addresses, command
            last = dict(ours)
            wrong = {at: word for at, word in last.items() if word != wanted[at]}
            assert not wrong, f"{command} writes {wrong} instead of {[wanted[at] for at in wrong]}"
            assert done >= written, f"{command} is done before its last write"
        assert len(self.payload.written) == written
        assert self.payload.words == wanted


@cocotb.test()
@cocotb.parametrize(pace=["always", "bursts", "half"])
async def as_the_model(dut: Any, pace: str) -> None:
    """Rows of commands that use one another's results, without a wait between them."""
    unit, rng = Unit(dut, pace), generator()
    await unit.bench.start()
    for _ in range(settings()["rows"]):
        await unit.load(rng)
        commands = unit.commands(rng, 100)
        await unit.give(commands)
        counted("random commands", len(commands))


@cocotb.test()
async def reset(dut: Any) -> None:
    """A reset at any time leaves a unit that does commands from the first one on."""
    unit, rng = Unit(dut), generator()
    await unit.bench.start()
    for _ in range(settings()["resets"]):
        await unit.load(rng)
        unit.send(unit.commands(rng, 10))
        await unit.bench.step(random.randrange(1, 150))
        await unit.bench.reset()
        assert int(dut.idle.value)
        counted("resets", 1)
        await unit.load(rng)
        await unit.give(unit.commands(rng, 10))
