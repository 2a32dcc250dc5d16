"""A device's engines and payload memory, played by the bench: they do what the models do, when they like."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from amphw.rtl.gateware.lanes.shape import LaneShape, command_layout
from amphw.rtl.gateware.vector.command import VectorShape
from amphw.rtl.isa import events
from amphw.rtl.isa.commands import IndexMode, LaneOp, VectorOp
from amphw.rtl.isa.memory import READ_LATENCY
from sim.bench import Pace
from sim.bits import unpacked
from sim.models.lanes import LaneModel, results
from sim.models.vector import Command, Walk, execute
from sim.parts import FREE
from sim.streams import Sender

ROOM = 2
"""Commands that an engine takes ahead."""

Told = Callable[[int], None]
"""Hears of events, in the form of a device's `watched`."""


class Engine(ABC):
    """Takes commands, and does each at some time; until then it is not idle.

    prompt: while it is, it takes one at once.
    """

    prompt = False

    def __init__(self, dut: Any, name: str, layout: Any, pace: Pace, told: Told) -> None:
        self.layout, self.pace, self.told = layout, pace, told
        self._valid, self._ready, self._payload = (
            dut[f"{name}_command_{part}"] for part in ("valid", "ready", "payload")
        )
        self._idle = dut[f"{name}_idle"]
        self.restart()

    def restart(self) -> None:
        self.waiting: deque[Any] = deque()
        self._willing = False

    @property
    def idle(self) -> bool:
        return not self.waiting

    def drive(self) -> None:
        if self.waiting and self.pace():
            self.run(self.waiting.popleft())
        self._willing = (self.prompt and self.idle) or (len(self.waiting) < ROOM and self.pace())
        self._ready.value, self._idle.value = self._willing, self.idle

    def sample(self) -> None:
        if self._willing and int(self._valid.value):
            self.waiting.append(self.decode(unpacked(self.layout, int(self._payload.value))))

    def wrote(self, address: int, word: int) -> None:
        self.told(events.pack(events.What.WRITE, firing=address, data=int(word) & 0xFFFF))

    def decode(self, fields: dict[str, Any]) -> Any:
        return fields

    @abstractmethod
    def run(self, command: Any) -> None: ...


class Lanes(Engine):
    def __init__(self, dut: Any, shape: LaneShape, memory: Any, pace: Pace, told: Told) -> None:
        self.model = LaneModel(shape)
        self.model.memory = memory
        self.response = Sender(dut, "lanes_response", pace)
        super().__init__(dut, "lanes", command_layout(shape), pace, told)

    def restart(self) -> None:
        super().restart()
        self.response.restart()

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.response.waiting

    def drive(self) -> None:
        self.response.drive()
        super().drive()

    def sample(self) -> None:
        self.response.sample()
        super().sample()

    def run(self, command: Any) -> None:
        self.model.run(command)
        if command["op"] == LaneOp.PEEK:
            self.response.send([self.model.responses.pop() & (1 << 36) - 1])
        for address in results(command):
            self.wrote(address, self.model.memory[address])


class Vector(Engine):
    prompt = True  # as the unit is: the controller counts on that

    def __init__(self, dut: Any, shape: VectorShape, memory: Any, pace: Pace, told: Told) -> None:
        self.shape, self.memory = shape, memory
        self.pointers = [0] * shape.pointers
        self._pointer = [dut[f"vector_pointer_{part}"] for part in ("en", "index", "data")]
        super().__init__(dut, "vector", shape.command, pace, told)

    def decode(self, fields: dict[str, Any]) -> Command:
        op, mode, index = VectorOp(fields.pop("op")), IndexMode(fields.pop("mode")), fields.pop("index")
        walks = {name: Walk(**fields.pop(name)) for name in "abd"}
        return Command(op, mode=mode, index=index["base"], scale=index["scale"], **walks, **fields)

    def sample(self) -> None:
        super().sample()
        en, index, data = self._pointer
        if int(en.value):
            used = any(command.mode is IndexMode.POINTERS for command in self.waiting)
            assert not used, "a pointer is written while a command may still use it"
            self.pointers[int(index.value)] = int(data.value)

    def run(self, command: Command) -> None:
        for address in execute(command, self.memory, self.pointers, self.shape.curves).writes:
            self.wrote(address, self.memory[address])


class Memory:
    """The payload memory, for whoever must wait for it; one is granted a write and one a read, sometimes."""

    def __init__(self, dut: Any, memory: Any, pace: Pace) -> None:
        self.memory, self.pace = memory, pace
        self._grants = {name: dut[f"grant_{name}"] for name in FREE}
        self._ports = {name: [dut[f"memory_{name}_{p}"] for p in ("en", "addr", "data")] for name in FREE}
        self.restart()

    def restart(self) -> None:
        self._granted: list[str] = []
        self._read: dict[str, int] = {}
        self._coming = deque([self._read] * READ_LATENCY)

    def drive(self) -> None:
        granted = [
            random.choice([name for name, writes in FREE.items() if writes is kind])
            for kind in (True, False)
            if self.pace()
        ]
        come = self._coming.popleft()
        for name, grant in self._grants.items():
            grant.value = name in granted
            if not FREE[name]:
                self._ports[name][2].value = come.get(name, random.getrandbits(16))
        self._granted, self._read = granted, {}
        self._coming.append(self._read)

    def sample(self) -> None:
        for name in self._granted:
            en, addr, data = self._ports[name]
            if not int(en.value):
                continue
            address = int(addr.value)
            if FREE[name]:
                word = int(data.value)
                self.memory[address] = word - ((word & 0x8000) << 1)
            else:
                self._read[name] = int(self.memory[address]) & 0xFFFF
