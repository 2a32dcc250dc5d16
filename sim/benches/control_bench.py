"""All of a device but its engines and its payload memory, which the bench plays, driven by the real driver.

The driver runs in a thread of its own, and waits while the simulation runs. What it has trained is replayed
on the model: every message, loss and parameter must be the same.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import cocotb
import numpy as np
from cocotb.task import bridge, resume

from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.update import UpdateRule
from amphw.rtl.driver.device import HardwareDevice
from amphw.rtl.driver.messages import Messages
from amphw.rtl.gateware.device import Device
from amphw.rtl.isa.wire import Fault, Kind, Register, pack
from amphw.rtl.plan.hardware import HardwarePlan
from sim.bench import PACES, Bench, counted, settings
from sim.engines import Lanes, Memory, Vector
from sim.replay import SEED, assert_as_model, drive
from sim.streams import Receiver, Sender
from tests.graphs.cases import CASES


class Events:
    """What a device tells whoever watches it."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.restart()

    def restart(self) -> None:
        self.seen: list[int] = []

    def drive(self) -> None:
        pass

    def sample(self) -> None:
        if int(self.dut.event_valid.value):
            self.seen.append(int(self.dut.event.value))


class Board:
    """The device with its engines, and the link of a driver that runs in another thread."""

    def __init__(
        self, dut: Any, link: str = "always", engines: str = "always", memory: str = "always"
    ) -> None:
        self.dut, self.given = dut, settings()
        self.case = next(c for c in CASES if c.name == self.given["case"])
        self.graph = self.case.build()
        self.rules = {"*": UpdateRule(interval=5, lr=0.05, optimizer=self.given["optimizer"])}
        planned = _Planned(self.given["formats"])
        planned.load(self.graph, self.rules, self.options())
        plan = planned.plan
        device = Device(plan)
        shapes = device.lanes_shape, device.vector_shape
        words = np.zeros(plan.sizes.payload, object)
        self.source, self.sink = (
            Sender(dut, "words_in", PACES[link]()),
            Receiver(dut, "words_out", PACES[link]()),
        )
        self.events = Events(dut)
        self.lanes = Lanes(dut, shapes[0], words, PACES[engines](), self.told)
        self.vector = Vector(dut, shapes[1], words, PACES[engines](), self.told)
        free = Memory(dut, words, PACES[memory]())
        agents = (self.source, self.sink, self.events, self.lanes, self.vector, free)
        self.bench = Bench(dut, *agents)
        self.rests = False  # whether the circuit said so, when the last exchange ended
        self._exchange = resume(self.run)

    def told(self, event: int) -> None:
        self.events.seen.append(event)

    def options(self) -> DeviceOptions:
        sizes = {"watch_writes": True, **self.given["sizes"]}
        return DeviceOptions(self.given["keys"], 0, "self", SEED, True, sizes)

    # --- the link ---------------------------------------------------------------------------------

    def exchange(self, words: np.ndarray, cycles: int) -> tuple[int, np.ndarray, list[int]]:
        return self._exchange(words, cycles)

    def close(self) -> None:
        pass

    async def run(self, words: np.ndarray, cycles: int) -> tuple[int, np.ndarray, list[int]]:
        """For some cycles, and then until there is something to tell, or nothing more can come."""
        self.source.waiting = deque(words.tolist())
        least, quiet = random.randint(1, 1500), 0
        for cycle in range(cycles):
            await self.bench.step()
            idle = (
                not self.source.waiting
                and int(self.dut.idle.value)
                and not int(self.dut.words_out_valid.value)
            )
            quiet = quiet + 1 if idle else 0
            accepted = len(words) - len(self.source.waiting)
            if quiet == 4 or (cycle >= least and (accepted or self.sink.received or self.events.seen)):
                break
        self.rests = quiet > 0
        came, seen = np.array(self.sink.received, np.uint16), self.events.seen
        self.sink.received, self.events.seen = [], []
        return len(words) - len(self.source.waiting), came, seen

    # --- what drivers do --------------------------------------------------------------------------

    def device(self) -> HardwareDevice:
        device = _Bridged(self, self.given["formats"])
        device.load(self.graph, self.rules, self.options())
        return device

    def instances(self, number: int) -> list[Any]:
        found: list[Any] = []
        seed = 0
        while len(found) < number:
            found += self.case.instances(seed)
            seed += 1
        for k, instance in enumerate(found[:number]):
            instance.number = k
        return found[:number]

    def as_the_model(self, number: int, mode: Mode) -> None:
        device, instances, keys = self.device(), self.instances(number), self.given["keys"]
        reports, _ = drive(device, instances, keys, mode)
        compared = assert_as_model(device, self.graph, self.rules, instances, reports, keys, mode)
        counted("instances", number)
        counted("messages", compared)

    def interrupted(self, exchanges: int) -> None:
        """Work, and stop in the middle."""
        device = self.device()
        for k, instance in enumerate(self.instances(self.given["keys"])):
            device.submit(k, 0, instance, Mode.TRAIN)
        for _ in range(exchanges):
            device.turn()

    def answers(self, words: list[int]) -> list[dict[str, int]]:
        """What comes back for raw words."""
        messages, found, left = Messages(), [], np.array(words, np.uint16)
        for _ in range(20):
            accepted, came, _ = self.exchange(left, 2000)
            left = left[accepted:]
            found += [header for header, _ in messages.add(came)]
        assert not len(left)
        return found

    def bad_messages(self) -> None:
        """Operands of one firing that disagree about its state, what the link drops, and questions."""
        known = {"slot": 0, "generation": 7}
        operand = {**known, "firing": 5, "place": 9, "payload": 100}
        words = pack(Kind.BEGIN, **known)
        words += pack(Kind.FIRINGS, firing=5, copy=1, payload=64, place=8, state=3, unit=0, **known)
        words += [*pack(Kind.FORWARD, words=2, **operand, state=0), 1, 2]
        words += [*pack(Kind.FORWARD, words=2, **{**operand, "generation": 8}), 1, 2]
        words += [*pack(Kind.FORWARD, words=2, **operand, state=1), 3, 4]
        words += pack(Kind.UPDATE, unit=1)
        words += [*pack(Kind.FAULT, words=2), 3, 4]
        words += pack(Kind.PEEK, place=Register.COUNTER, payload=0)
        answered = self.answers(words)
        (updated,) = [h for h in answered if h["kind"] == Kind.UPDATED]
        (cycles,) = [h for h in answered if h["kind"] == Kind.VALUE]
        assert updated["unit"] == 1 and 0 < cycles["state"] <= self.bench.cycles
        got = [h for h in answered if h["kind"] == Kind.FAULT]
        assert sorted(h["output"] for h in got) == [Fault.UNKNOWN, Fault.LATE, Fault.STATE]
        (state,) = [h for h in got if h["output"] == Fault.STATE]
        assert (state["slot"], state["generation"], state["firing"], state["state"]) == (0, 0, 5, 1)


class _Planned(HardwareDevice):
    """Plans a device, and has none."""

    def make_link(self, plan: HardwarePlan, writes: bool) -> Any:
        return None


class _Bridged(HardwareDevice):
    def __init__(self, board: Board, formats: str):
        super().__init__(formats)
        self.board = board

    def make_link(self, plan: HardwarePlan, writes: bool) -> Any:
        return self.board

    def turn(self) -> bool:
        alive = super().turn()
        if self.board.rests:
            self.watcher.retirement.rests()
        return alive


@cocotb.test()
@cocotb.parametrize(paces=settings()["paces"])
async def trains(dut: Any, paces: list[str]) -> None:
    board = Board(dut, *paces)
    await board.bench.start()
    await bridge(board.as_the_model)(settings()["instances"], Mode.TRAIN)


@cocotb.test()
async def infers(dut: Any) -> None:
    board = Board(dut, "half", "always", "half")
    await board.bench.start()
    await bridge(board.as_the_model)(settings()["instances"], Mode.INFER)


@cocotb.test()
async def faults_and_resets(dut: Any) -> None:
    """Bad messages are reported, and things go on; a reset at any time, and they go on."""
    board = Board(dut, "always", "half", "half")
    await board.bench.start()
    await bridge(board.bad_messages)()
    await bridge(board.as_the_model)(1, Mode.TRAIN)
    for _ in range(settings()["resets"]):
        await bridge(board.interrupted)(random.randrange(5, 60))
        await board.bench.reset()
        counted("resets", 1)
        await bridge(board.as_the_model)(1, Mode.TRAIN)
