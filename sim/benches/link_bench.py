"""Both ends of the link beside a payload memory that is busy: any messages, and words that are none."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import cocotb
import numpy as np

from amphw.rtl.gateware.controller.memory import ControlShape
from amphw.rtl.isa.memory import READ_LATENCY
from amphw.rtl.isa.wire import FIELDS, HEADER_WORDS, Kind, pack, unpack
from sim.bench import PACES, Bench, Pace, counted, generator, settings
from sim.models.link import Header, LinkModel, header_bits, header_words, random_message
from sim.streams import Receiver, Sender

HEADER_BITS = 16 * HEADER_WORDS
CARRIED = ("output", "unit", "place", "payload", "copy")
"""Fields that a sender passes on, whatever they are."""


class Engine:
    """Reads and writes when it likes, and so keeps the link from the memory. The last words are its own."""

    def __init__(self, dut: Any, model: LinkModel, own: int, pace: Pace) -> None:
        self.dut, self.model, self.first, self.pace = dut, model, len(model.payload) - own, pace
        model.payload[self.first :] = [None] * own  # from an earlier test it holds anything

    def drive(self) -> None:
        dut, own = self.dut, range(self.first, len(self.model.payload))
        reads, writes = self.pace(), self.pace()
        dut.read_en.value, dut.write_en.value = reads, writes
        self._read = random.choice(own) if reads else None
        self._write = (random.choice(own), random.getrandbits(16)) if writes else None
        if self._read is not None:
            dut.read_addr.value = self._read
        if self._write is not None:
            dut.write_addr.value, dut.write_data.value = self._write

    def sample(self) -> None:
        wanted = self._wanted.popleft()
        if wanted is not None:
            assert int(self.dut.read_data.value) == wanted, "the engine reads what was not written"
        # What is read while it is written is nobody's business.
        clear = self._read is not None and (self._write is None or self._write[0] != self._read)
        self._wanted.append(self.model.payload[self._read] if clear else None)  # type: ignore[index]
        if self._write is not None:
            self.model.payload[self._write[0]] = self._write[1]

    def restart(self) -> None:
        self.dut.read_en.value = self.dut.write_en.value = 0
        self._read = self._write = None
        self._wanted = deque([None] * READ_LATENCY)


class Table:
    """The controller's table memory."""

    def __init__(self, dut: Any, size: int) -> None:
        self.dut, self.words = dut, [0] * size

    def drive(self) -> None:
        pass

    def sample(self) -> None:
        if int(self.dut.table_en.value):
            self.words[int(self.dut.table_addr.value)] = int(self.dut.table_data.value)

    def restart(self) -> None:
        pass


class Link:
    def __init__(
        self, dut: Any, pace: str = "always", neighbours: str = "always", engine: str = "half"
    ) -> None:
        given = settings()
        self.shape = ControlShape(**given["shape"])
        self.model = LinkModel(self.shape, given["payload"])
        self.shared, self.most = given["shared"], given["payload"] - given["own"]
        # Half the slots and half the memory are for what is sent meanwhile.
        half = self.shape.slots // 2
        self.theirs, self.ours = range(half), range(half, self.shape.slots)
        self.low, self.high = range(self.shared // 2), range(self.shared // 2, self.shared)
        self.dut = dut
        self.source, self.jobs = Sender(dut, "words_in", PACES[pace]()), Sender(dut, "jobs", PACES[pace]())
        self.sink = Receiver(dut, "words_out", PACES[neighbours]())
        self.told = {name: Receiver(dut, name, PACES[neighbours]()) for name in ("event", "request", "fault")}
        self.table = Table(dut, self.shape.table)
        self.engine = Engine(dut, self.model, given["own"], PACES[engine]())
        agents = (self.source, self.jobs, self.sink, *self.told.values(), self.table, self.engine)
        self.bench = Bench(dut, *agents)

    async def prepare(self, rng: np.random.Generator) -> None:
        """Write the payload memory and the table, and begin every slot anew."""
        words: list[int] = []
        for slot in range(self.shape.slots):
            words += pack(Kind.BEGIN, slot=slot, generation=int(rng.integers(256)))
        self.model.feed(words)
        known = {"slot": 0, "generation": self.model.generations[0]}
        for kind, size in ((Kind.FORWARD, self.shared), (Kind.TABLE, self.shape.table)):
            content = rng.integers(0, 1 << 16, size).tolist()
            message = pack(kind, words=size, **known) + content
            self.model.feed(message)
            words += message
        self.source.send(words)
        await self.settle()

    def send(self, words: list[int]) -> None:
        self.model.feed(words)
        self.source.send(words)

    async def settle(self) -> None:
        """Until all is done; everything must be as the model says."""
        limit = 1_000 + 40 * len(self.source.waiting) + 400 * len(self.jobs.waiting)
        rests = self.model.resting
        await self.bench.until(
            lambda: not self.source.waiting and not self.jobs.waiting and (not rests or self.resting),
            limit,
            "the end of all messages",
        )
        await self.bench.step(60)
        for name, headers in (
            ("event", self.model.events),
            ("request", self.model.requests),
            ("fault", self.model.faults),
        ):
            got = [
                unpack([bits >> 16 * k & 0xFFFF for k in range(HEADER_WORDS)])
                for bits in self.told[name].received
            ]
            for k, (one, other) in enumerate(zip(got, headers, strict=False)):
                assert one == other, f"{name} {k} is {one} instead of {other}"
            assert len(got) == len(headers), f"{len(got)} of {len(headers)} times {name}"
        assert self.table.words == self.model.table

    @property
    def resting(self) -> bool:
        return bool(int(self.dut.resting.value))

    def job(self, header: Header, source: int) -> list[int]:
        """Ask for a message -> its words as they must come."""
        self.jobs.send([header_bits(header) | source << HEADER_BITS])
        if header["kind"] not in (Kind.FAULT, Kind.VALUE):
            header = {**header, "generation": self.model.generations[header["slot"]]}
        return header_words(header) + self.model.payload[source : source + header["words"]]

    async def check_payload(self) -> None:
        """Everything that is not the engine's, read over the link."""
        before = len(self.sink.received)
        wanted = self.job(unpack(pack(Kind.FORWARD, words=self.shared)), 0)
        await self.bench.until(
            lambda: len(self.sink.received) - before == len(wanted), 200 * len(wanted), "the payload memory"
        )
        assert self.sink.received[before:] == wanted

    def random_job(self, rng: np.random.Generator) -> list[int]:
        words = int(rng.integers(0, 20))
        source = int(rng.integers(self.high.start, self.high.stop - words))
        kinds = (Kind.FORWARD, Kind.BACKWARD, Kind.IDLE, Kind.VALUE, Kind.UPDATED, Kind.FAULT)
        return self.job(
            unpack(
                pack(
                    kinds[int(rng.integers(len(kinds)))],
                    slot=int(rng.choice(self.ours)),
                    generation=int(rng.integers(256)),
                    firing=int(rng.integers(1 << 16)),
                    state=int(rng.integers(1 << 32)),
                    words=words,
                    **{name: int(rng.integers(1 << bits)) for name, bits in FIELDS if name in CARRIED},
                )
            ),
            source,
        )


@cocotb.test()
@cocotb.parametrize(
    paces=[("always", "always", "half"), ("bursts", "half", "bursts"), ("half", "bursts", "rarely")],
    wrong=[0.0, 0.7],
)
async def both_ways(dut: Any, paces: tuple[str, str, str], wrong: float) -> None:
    """Messages in, some of them wrong in one field, while others go out and an engine uses the memory."""
    link, rng = Link(dut, *paces), generator()
    await link.bench.start()
    await link.prepare(rng)
    messages, wanted = settings()["messages"], list(link.sink.received)
    for _ in range(messages):
        link.send(random_message(rng, link.model, link.theirs, link.low, wrong))
        wanted += link.random_job(rng)
    await link.settle()
    await link.bench.until(lambda: len(link.sink.received) >= len(wanted), 100_000, "the last word")
    assert link.sink.received == wanted
    assert link.resting
    await link.check_payload()
    counted("messages in", messages)
    counted("messages out", messages)
    counted("faults", len(link.model.faults))


@cocotb.test()
async def long(dut: Any) -> None:
    """Messages up to as long as memory has room for, both ways; then the longest there is, dropped."""
    link, rng = Link(dut, engine="rarely"), generator()
    await link.bench.start()
    await link.prepare(rng)
    words, wanted = link.most - link.shared, list(link.sink.received)
    known = {"slot": 0, "generation": link.model.generations[0]}
    while words:
        first = int(rng.integers(link.shared, link.most - words + 1))
        content = rng.integers(0, 1 << 16, words).tolist()
        link.send(pack(Kind.FORWARD, payload=first, words=words, **known) + content)
        await link.settle()
        wanted += link.job(unpack(pack(Kind.BACKWARD, payload=first, words=words)), first)
        count = len(wanted)
        await link.bench.until(lambda n=count: len(link.sink.received) >= n, 100_000, "a long message")
        counted("long messages", 2)
        words //= 2
    late = {"slot": 0, "generation": known["generation"] ^ 1}
    link.send(pack(Kind.FORWARD, words=(1 << 16) - 1, **late) + [0] * ((1 << 16) - 1))
    link.send(random_message(rng, link.model, link.theirs, link.low, 0.0))
    await link.settle()
    assert link.sink.received == wanted


@cocotb.test()
async def truncated(dut: Any) -> None:
    """What follows a message that was cut off completes it; nothing hangs, and a reset ends it."""
    link, rng = Link(dut, "always", "half"), generator()
    await link.bench.start()
    for _ in range(settings()["cuts"]):
        await link.prepare(rng)
        whole = random_message(rng, link.model, link.theirs, link.low, 0.0)
        link.send(whole[: int(rng.integers(1, len(whole)))])
        for _ in range(20):
            link.send(random_message(rng, link.model, link.theirs, link.low, 0.0))
        await link.settle()
        counted("cut messages", 1)
        await link.bench.reset()
        link.model.restart()


@cocotb.test()
async def noise(dut: Any) -> None:
    """Words that are no messages: each header is reported or does what it says."""
    link, rng = Link(dut, "bursts", "half"), generator()
    await link.bench.start()
    for _ in range(settings()["cuts"]):
        await link.prepare(rng)
        for _ in range(10):
            # Mostly zeros: headers of messages that end soon.
            words = rng.integers(0, 1 << 16, 40)
            link.send(np.where(rng.random(40) < 0.3, words, 0).tolist())
        await link.settle()
        counted("words of noise", 400)
        await link.bench.reset()
        link.model.restart()


@cocotb.test()
async def reset(dut: Any) -> None:
    """A reset at any time, in both directions; then everything works."""
    link, rng = Link(dut, "always", "half"), generator()
    await link.bench.start()
    for _ in range(settings()["cuts"]):
        await link.prepare(rng)
        for _ in range(20):
            link.source.send(random_message(rng, link.model, link.theirs, link.low, 0.3))
            link.random_job(rng)
        await link.bench.step(random.randrange(1, 500))
        await link.bench.reset()
        counted("resets", 1)
        link.model.restart()
        await link.prepare(rng)
        wanted = [word for _ in range(5) for word in link.random_job(rng)]
        link.send(random_message(rng, link.model, link.theirs, link.low, 0.0))
        await link.settle()
        await link.bench.until(
            lambda words=wanted: len(link.sink.received) >= len(words), 5_000, "the last word"
        )
        assert link.sink.received == wanted
        await link.bench.reset()
        link.model.restart()
