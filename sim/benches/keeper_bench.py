"""A keeper between a sequencer that runs, a host that asks, and a lane engine that takes its time."""

from __future__ import annotations

import random
from typing import Any

import cocotb
import numpy as np

from amphw.rtl.gateware.controller.memory import ControlShape
from amphw.rtl.gateware.controller.ports import FrameKind, Run
from amphw.rtl.gateware.lanes.shape import RESPONSE_BITS, LaneShape, command_layout
from amphw.rtl.isa.commands import Bank, LaneOp
from amphw.rtl.isa.wire import HEADER_WORDS, Kind, Register, pack, unpack
from sim.bench import PACES, Bench, Pace, counted, generator, settings
from sim.bits import packed, unpacked
from sim.models.keeper import UNITS, KeeperModel, owners
from sim.models.link import header_bits
from sim.streams import Receiver, Sender

COUNTERS = 1 << 16


class Runs:
    """The sequencer: runs units while engines are idle and nobody holds it."""

    def __init__(self, dut: Any, model: KeeperModel, shape: Any, pace: Pace) -> None:
        self.dut, self.model, self.shape, self.pace = dut, model, shape, pace
        self.restart()

    def restart(self) -> None:
        self.left = self.wanted = self.done = 0
        self.engines_idle = True
        self.dut.finished.value = self.dut.busy.value = 0

    def drive(self) -> None:
        self.dut.busy.value = self.left > 0
        self.dut.finished.value = self.left == 1

    def begin(self) -> None:
        units = [*owners(False), *range(UNITS)]  # those with parameters more often
        self._fields = {
            "kind": random.choice([*FrameKind, FrameKind.BACKWARD]).value, "bank": random.getrandbits(1),
            "firing": random.randrange(64), "unit": random.choice(units), "slot": random.randrange(8),
        }  # fmt: skip
        self.bits = self.shape.const(self._fields).as_bits()
        self.rows = random.randrange(12)
        if random.random() < 0.2:
            self.rows = random.choice([random.getrandbits(16), (1 << random.randrange(4, 16)) + self.rows])
        self.left = random.randint(1, 12)
        self.dut.current.value, self.dut.rows.value = self.bits, self.rows

    def sample(self) -> None:
        if self.left:
            self.left -= 1
            if not self.left:
                self.done += 1
                self.model.finished(self._fields["kind"], self._fields["unit"], self.rows, self.bits)
        elif self.done < self.wanted and self.engines_idle and self.pace() and not int(self.dut.hold.value):
            assert not self.model.updated, "a unit runs in the middle of an update"
            self.begin()


class Lanes:
    """The lane engine: takes commands, is busy with them, and answers to PEEK."""

    def __init__(self, dut: Any, model: KeeperModel, runs: Runs, layout: Any, pace: Pace) -> None:
        self.dut, self.model, self.runs, self.layout, self.pace = dut, model, runs, layout, pace
        self.response = Sender(dut, "response", pace)
        self.restart()

    def restart(self) -> None:
        self.left = 0
        self.peeked: list[int] = []
        self.response.restart()

    def drive(self) -> None:
        self.runs.engines_idle = not self.left and not self.response.waiting
        self.dut.idle.value = self.runs.engines_idle
        # While it answers it takes nothing.
        self._ready = not self.response.waiting and self.pace()
        self.dut.lanes_ready.value = self._ready
        self.response.drive()

    def sample(self) -> None:
        self.response.sample()
        self.left -= self.left > 0
        if int(self.dut.updated.value):
            assert self.runs.engines_idle, "parameters are updated before the lane engine is through"
            unit = self.model.updated.pop(0)
            assert unit == int(self.dut.unit.value)
        if not int(self.dut.lanes_valid.value):
            return
        assert int(self.dut.takes.value), "a command without a claim to the lane engine"
        assert not self.runs.left, "a command while a program runs"
        if self._ready:
            self._take(int(self.dut.lanes_payload.value))

    def _take(self, bits: int) -> None:
        assert self.model.commands, "a command that nobody asked for"
        wanted = dict(self.model.commands.pop(0))
        if wanted["op"] == LaneOp.PEEK:
            del wanted["data"]
            self.response.send([self.peeked.pop(0)])
        got, wanted_bits = (
            unpacked(self.layout, bits),
            packed(self.layout, {(n,): v for n, v in wanted.items()}),
        )
        due = unpacked(self.layout, wanted_bits)
        wrong = {name: got[name] for name in wanted if got[name] != due[name]}
        assert not wrong, f"{wrong} instead of {wanted}"
        self.left = random.randint(1, 30)


class Host:
    """Asks, one request after another; what is due is known once a request has been taken."""

    def __init__(self, dut: Any, model: KeeperModel, lanes: Lanes, pace: Pace) -> None:
        self.dut, self.model, self.lanes = dut, model, lanes
        self.requests = Sender(dut, "request", pace)
        self.counters = [random.getrandbits(32) for _ in range(COUNTERS)]
        self._asked = [0, 0, 0]
        self.restart()

    def restart(self) -> None:
        self.requests.restart()
        self._taken = 0

    def drive(self) -> None:
        self.requests.drive()
        # A counter's value is there two cycles after its number.
        self.dut.counted.value = self.counters[self._asked[0] % COUNTERS]

    def sample(self) -> None:
        self._asked = [*self._asked[1:], int(self.dut.counter.value)]
        self.requests.sample()
        if len(self.requests.accepted) > self._taken:
            bits = self.requests.accepted[self._taken]
            self._taken += 1
            header = unpack([bits >> 16 * k & 0xFFFF for k in range(HEADER_WORDS)])
            peeked = random.getrandbits(RESPONSE_BITS)
            if header["kind"] == Kind.PEEK and header["place"] < Register.VERSION:
                self.lanes.peeked.append(peeked)
            signed = peeked - (1 << RESPONSE_BITS) * (peeked >> RESPONSE_BITS - 1)
            self.model.request(header, signed, self.counters)


class Part:
    def __init__(self, dut: Any, host: str = "half", controller: str = "half", lanes: str = "half") -> None:
        given = settings()
        self.model = KeeperModel(owners(given["momentum"], given["clips"]))
        run = Run(ControlShape(**given["control"]))
        layout = command_layout(LaneShape(**given["lanes"]))
        self.runs = Runs(dut, self.model, run, PACES[controller]())
        self.lanes = Lanes(dut, self.model, self.runs, layout, PACES[lanes]())
        self.host = Host(dut, self.model, self.lanes, PACES[host]())
        self.ran = Receiver(dut, "ran", PACES[controller]())
        self.answers = Receiver(dut, "answer", PACES[host]())
        self.bench = Bench(dut, self.runs, self.lanes, self.host, self.ran, self.answers)

    async def prepare(self) -> None:
        """Versions and rows of all units; memories keep what they hold in a reset."""
        self.ask([
            {"kind": Kind.POKE, "unit": unit, "place": place, "state": random.randrange(most)}
            for unit in range(UNITS)
            for place, most in ((Register.VERSION, 1200), (Register.ROWS, 15))
        ])  # fmt: skip
        await self.settle(0)

    def ask(self, requests: list[dict[str, int]]) -> None:
        self.host.requests.send(
            header_bits(unpack(pack(Kind(r["kind"]), **{k: v for k, v in r.items() if k != "kind"})))
            for r in requests
        )

    async def settle(self, runs: int) -> None:
        """Until so many units more have run and all requests are answered; all must be as the model says."""
        self.runs.wanted += runs
        model, host = self.model, self.host

        def through() -> bool:
            return (
                self.runs.done == self.runs.wanted
                and not host.requests.waiting
                and len(self.ran.received) == len(model.ran)
                and len(self.answers.received) == len(model.answers)
                and not model.commands
                and not model.updated
            )

        limit = 2_000 + 800 * (runs + len(host.requests.waiting))
        await self.bench.until(through, limit, "the last run, command and answer")
        await self.bench.step(40)
        assert self.ran.received == model.ran
        empty = unpack(pack(Kind.VALUE))
        for bits, answer in zip(self.answers.received, model.answers, strict=True):
            got = unpack([bits >> 16 * k & 0xFFFF for k in range(HEADER_WORDS)])
            wanted = {**empty, **answer}
            assert got == wanted, f"answer {got} instead of {wanted}"
        assert not model.commands and not model.updated


def random_requests(rng: np.random.Generator, number: int) -> list[dict[str, int]]:
    made = []
    for _ in range(number):
        kind = Kind(int(rng.choice([Kind.POKE, Kind.PEEK, Kind.UPDATE])))
        place = int(
            rng.choice([*Bank, Register.VERSION, Register.ROWS] + [Register.COUNTER] * (kind == Kind.PEEK))
        )
        state = int(rng.integers(1 << 32))
        if place == Register.VERSION:
            state = int(rng.integers(1200)) if rng.random() < 0.9 else state >> int(rng.integers(32))
        elif place == Register.ROWS:
            state = int(rng.integers(100)) if rng.random() < 0.9 else state >> 1
        payload = int(rng.integers(COUNTERS if place == Register.COUNTER else 64))
        made.append(
            {
                "kind": kind, "unit": int(rng.integers(UNITS)), "place": place, "payload": payload,
                "firing": int(rng.integers(4)), "state": state, "copy": int(rng.integers(1 << 16)),
                # Only answered with.
                "output": int(rng.integers(16)), "slot": int(rng.integers(256)),
                "generation": int(rng.integers(256)),
            }
        )  # fmt: skip
    return made


@cocotb.test()
@cocotb.parametrize(
    paces=[("always", "always", "always"), ("half", "rarely", "bursts"), ("rarely", "half", "half")],
)
async def as_the_rules(dut: Any, paces: tuple[str, str, str]) -> None:
    """Units run and the host asks, both whenever they may: each update and each answer is the model's."""
    part, rng = Part(dut, *paces), generator()
    await part.bench.start()
    await part.prepare()
    number = settings()["runs"]
    part.ask(random_requests(rng, number))
    await part.settle(number)
    counted("runs", number)
    counted("requests", number)
    counted("updates", part.model.updates)


@cocotb.test()
async def reset(dut: Any) -> None:
    """A reset at any time; then units run and are updated as ever."""
    part, rng = Part(dut), generator()
    await part.bench.start()
    for _ in range(settings()["resets"]):
        await part.prepare()
        part.ask(random_requests(rng, 10))
        part.runs.wanted += 10
        await part.bench.step(random.randrange(1, 400))
        await part.bench.reset()
        counted("resets", 1)
        fresh = KeeperModel(part.model.owners)
        part.model.__dict__.update(fresh.__dict__)
        await part.prepare()
        part.ask(random_requests(rng, 5))
        await part.settle(5)
        await part.bench.reset()
        part.model.__dict__.update(KeeperModel(part.model.owners).__dict__)
