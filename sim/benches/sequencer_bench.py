"""A sequencer between a controller that fills its registers and engines that take their time."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import cocotb
import numpy as np

from amphw.rtl.gateware.controller.memory import ControlShape
from amphw.rtl.gateware.controller.ports import Run
from amphw.rtl.gateware.lanes.shape import LaneShape, command_layout
from amphw.rtl.gateware.vector.command import VectorShape
from amphw.rtl.isa.commands import POINTERS, ROW_REGISTERS, Unit
from sim.bench import PACES, Bench, Pace, counted, generator, settings
from sim.models.microprograms import Issued, Issues


@dataclass(frozen=True)
class Firing:
    """run: what is offered, as bits. rows, pointers: registers. issued: the commands that are due."""

    run: int
    bank: int
    rows: list[int]
    pointers: list[int]
    issued: list[Issued]


class Controller:
    """Writes a firing's registers, in any order, while the one before it runs; then offers it."""

    def __init__(self, dut: Any, pace: Pace) -> None:
        self.dut, self.pace = dut, pace
        self.restart()

    def restart(self) -> None:
        self.waiting: list[Firing] = []
        self.started: list[Firing] = []
        self._writes: list[tuple[int, int, int]] | None = None
        self._offering = False
        self.dut.run_valid.value = self.dut.registers_en.value = 0

    def drive(self) -> None:
        self.dut.registers_en.value = 0
        if self.waiting and not self._offering and self.pace():
            self._act(self.waiting[0])
        self.dut.run_valid.value = self._offering

    def _act(self, firing: Firing) -> None:
        dut = self.dut
        if self._writes is None:
            self._writes = [(1, k, value) for k, value in enumerate(firing.rows)]
            self._writes += [(0, k, value) for k, value in enumerate(firing.pointers)]
            random.shuffle(self._writes)
        if not self._writes:
            self._offering = True
            dut.run_payload.value = firing.run
            return
        rows, index, value = self._writes.pop()
        dut.registers_en.value, dut.registers_bank.value = 1, firing.bank
        dut.registers_rows.value, dut.registers_index.value = rows, index
        dut.registers_data.value = value

    def sample(self) -> None:
        if self._offering and int(self.dut.run_ready.value):
            self._offering, self._writes = False, None
            self.started.append(self.waiting.pop(0))


class Engines:
    """Take commands and are busy for a while; hold the sequencer to its order."""

    def __init__(self, dut: Any, controller: Controller, pace: Pace, longest: int) -> None:
        self.dut, self.controller, self.pace, self.longest = dut, controller, pace, longest
        self.streams = {
            unit: tuple(dut[f"{unit.name.lower()}_{part}"] for part in ("valid", "ready", "payload"))
            for unit in Unit
        }
        self.restart()

    def restart(self) -> None:
        self.under_way: dict[Unit, list[int]] = {unit: [] for unit in Unit}  # cycles that each has left
        self.finished = self.commands = 0
        self._started = 0
        self._due: list[Issued] = []
        self._ready = dict.fromkeys(Unit, False)
        self._hold = False

    def drive(self) -> None:
        controller = self.controller
        while self._started < len(controller.started):
            self._due += controller.started[self._started].issued
            self._started += 1
        for unit, (_, ready, _) in self.streams.items():
            self._ready[unit] = self.pace()
            ready.value = self._ready[unit]
        self._hold = not self.pace()
        self.dut.idle.value, self.dut.hold.value = not any(self.under_way.values()), self._hold

    def sample(self) -> None:
        idle = not any(self.under_way.values())
        if int(self.dut.run_valid.value) and int(self.dut.run_ready.value):
            assert idle and not self._hold, "a firing begins while engines are busy, or the keeper holds it"
        for left in self.under_way.values():
            if left:
                left[0] -= 1
                if not left[0]:
                    left.pop(0)
        if int(self.dut.finished.value):
            firing = self.controller.started[self.finished]
            assert idle, "a program ends while an engine is busy"
            assert not self._due, f"a program ends, and {len(self._due)} commands were not issued"
            assert int(self.dut.current.value) == firing.run
            assert int(self.dut.rows.value) == firing.rows[0]
            self.finished += 1
        for unit, (valid, _, payload) in self.streams.items():
            if self._ready[unit] and int(valid.value):
                self._accept(unit, int(payload.value), idle)

    def _accept(self, unit: Unit, bits: int, idle: bool) -> None:
        assert self._due, f"a command to {unit.name} that no program issues"
        due = self._due.pop(0)
        assert (unit, bits) == (due.unit, due.bits), f"{unit.name} {bits:#x} instead of {due}"
        assert idle or not due.alone, "a command behind WAIT does not wait"
        (other,) = (self.under_way[u] for u in Unit if u != unit)
        assert idle or not other, "two engines work at the same time"
        self.under_way[unit].append(random.randint(1, self.longest))
        self.commands += 1


class Part:
    def __init__(
        self, dut: Any, controller: str = "always", engines: str = "half", longest: int = 12
    ) -> None:
        given = settings()
        self.programs: list[list[int]] = given["programs"]
        self.shape = Run(ControlShape(**given["control"]))
        self.layouts = VectorShape(**given["vector"]).command, command_layout(LaneShape(**given["lanes"]))
        self.controller = Controller(dut, PACES[controller]())
        self.engines = Engines(dut, self.controller, PACES[engines](), longest)
        self.bench = Bench(dut, self.controller, self.engines)
        self._bank = 0

    def firing(self, rng: np.random.Generator) -> Firing:
        rows = rng.integers(0, 1 << int(rng.choice([4, 10, 16])), ROW_REGISTERS).tolist()
        pointers = rng.integers(0, 1 << 16, POINTERS).tolist()
        number = int(rng.integers(len(self.programs)))
        unit, kind = divmod(number, 3)
        fields = {"kind": kind, "bank": self._bank, "unit": unit}
        fields |= {"firing": int(rng.integers(64)), "slot": int(rng.integers(8))}
        model = Issues(*self.layouts)
        model.run(self.programs[number], rows, pointers)
        bank, self._bank = self._bank, 1 - self._bank
        return Firing(self.shape.const(fields).as_bits(), bank, rows, pointers, model.issued)

    async def run(self, firings: list[Firing]) -> None:
        done = self.engines.finished
        self.controller.waiting += firings
        await self.bench.until(
            lambda: self.engines.finished - done == len(firings), 8_000 * len(firings), "the last firing"
        )


@cocotb.test()
@cocotb.parametrize(
    paces=[("always", "always", 3), ("always", "half", 20), ("bursts", "bursts", 6), ("rarely", "half", 1)]
)
async def as_the_emulator(dut: Any, paces: tuple[str, str, int]) -> None:
    """Firings of random programs: every command as the emulator has it, in order, and none too early."""
    part, rng = Part(dut, *paces), generator()
    await part.bench.start()
    number = settings()["firings"]
    await part.run([part.firing(rng) for _ in range(number)])
    counted("firings", number)
    counted("commands", part.engines.commands)


@cocotb.test()
async def reset(dut: Any) -> None:
    """A reset in the middle of programs; then others run from their beginnings."""
    part, rng = Part(dut), generator()
    await part.bench.start()
    for _ in range(settings()["resets"]):
        part.controller.waiting += [part.firing(rng) for _ in range(4)]
        await part.bench.step(random.randrange(1, 400))
        await part.bench.reset()
        assert not int(dut.busy.value)
        counted("resets", 1)
        await part.run([part.firing(rng) for _ in range(2)])
