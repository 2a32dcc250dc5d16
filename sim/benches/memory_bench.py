"""The payload memory between two engines, of which one runs at a time, and four others that wait."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import cocotb

from amphw.rtl.isa.memory import READ_LATENCY
from sim.bench import PACES, Bench, Pace, bursts, counted, settings

WRITERS, READERS = ("put", "receive"), ("look", "send")


class Words:
    """What the memory should hold; None: nobody knows."""

    def __init__(self, size: int) -> None:
        self.words: list[int | None] = [None] * size
        self.written: int | None = None  # in this cycle

    def read(self, address: int) -> int | None:
        """What a read of this cycle gives; it says nothing of a word that is being written."""
        return None if address == self.written else self.words[address]


class Port:
    """en, addr and data of one port."""

    def __init__(self, dut: Any, name: str) -> None:
        self.en, self.addr, self.data = (dut[f"{name}_{part}"] for part in ("en", "addr", "data"))


class Engines:
    """Read and write as they like (pace: in how many cycles), and never wait; one runs for some cycles."""

    def __init__(self, dut: Any, words: Words, pace: Pace) -> None:
        self.words, self.pace, self.lanes = words, pace, bursts(20)
        self.ports = {
            engine: [Port(dut, f"{engine}_{port}") for port in ("read_a", "read_b", "write")]
            for engine in ("lanes", "vector")
        }
        self.restart()

    def restart(self) -> None:
        for ports in self.ports.values():
            for port in ports:
                port.en.value = 0
        self.reads: list[tuple[Port, int]] = []
        self.due: deque[list[tuple[Port, int | None]]] = deque([[]] * READ_LATENCY)
        self.done = 0
        self.writes = self.reads_b = False

    def drive(self) -> None:
        size = len(self.words.words)
        lanes = self.lanes()
        self.words.written = None
        self.reads, self.writes, self.reads_b = [], False, False
        for engine, (a, b, write) in self.ports.items():
            runs = (engine == "lanes") == lanes
            for port in (a, b):
                asks = runs and self.pace()
                port.en.value = asks
                if asks:
                    address = random.randrange(size)
                    port.addr.value = address
                    self.reads.append((port, address))
                    self.reads_b |= port is b
            write.en.value = writes = runs and self.pace()
            if writes:
                self.writes, self.words.written = True, random.randrange(size)
                self._word = random.getrandbits(16)
                write.addr.value, write.data.value = self.words.written, self._word

    def sample(self) -> None:
        for port, wanted in self.due.popleft():
            if wanted is not None:
                got = int(port.data.value)
                assert got == wanted, f"an engine reads {got:#x} instead of {wanted:#x}"
                self.done += 1
        # Whoever waits may write only where no engine does.
        self._read_before_writes = [(port, self.words.read(address), address) for port, address in self.reads]

    def finish(self) -> None:
        """Once it is known what else is written in this cycle."""
        self.due.append(
            [(p, None if at == self.words.written else w) for p, w, at in self._read_before_writes]
        )
        if self.writes:
            assert self.words.written is not None
            self.words.words[self.words.written] = self._word


class Waiting:
    """Those that are served when no engine needs the port."""

    def __init__(self, dut: Any, words: Words, engines: Engines, pace: Pace) -> None:
        self.words, self.engines, self.pace = words, engines, pace
        self.ports = {name: (Port(dut, name), dut[f"{name}_done"]) for name in (*WRITERS, *READERS)}
        self.restart()

    def restart(self) -> None:
        for port, _ in self.ports.values():
            port.en.value = 0
        self.asked: dict[str, tuple[int, int]] = {}
        self.due: deque[dict[str, int | None]] = deque([{}] * READ_LATENCY)
        self.served = dict.fromkeys(self.ports, 0)

    def drive(self) -> None:
        for name, (port, _) in self.ports.items():
            if name not in self.asked and self.pace():
                self.asked[name] = random.randrange(len(self.words.words)), random.getrandbits(16)
                port.addr.value = self.asked[name][0]
                if name in WRITERS:
                    port.data.value = self.asked[name][1]
            port.en.value = name in self.asked

    def sample(self) -> None:
        for name, wanted in self.due.popleft().items():
            got = int(self.ports[name][0].data.value)
            assert wanted is None or got == wanted, f"{name} reads {got:#x} instead of {wanted:#x}"
        done = [name for name, (_, served) in self.ports.items() if int(served.value)]
        assert set(done) <= self.asked.keys(), f"{done} served, which did not all ask"
        self._one(WRITERS, done, self.engines.writes)
        self._one(READERS, done, self.engines.reads_b)
        for name in done:
            self.served[name] += 1
        reads = {name: self.asked[name][0] for name in READERS if name in done}
        before = {name: self.words.words[at] for name, at in reads.items()}
        for name in WRITERS:
            if name in done:
                address, word = self.asked[name]
                self.words.written, self.words.words[address] = address, word
        self.due.append({n: None if reads[n] == self.words.written else w for n, w in before.items()})
        self.asked = {name: what for name, what in self.asked.items() if name not in done}
        self.engines.finish()

    def _one(self, names: tuple[str, ...], done: list[str], engine: bool) -> None:
        """One is served if the engines leave the port free, and none else."""
        served, asked = [n for n in names if n in done], [n for n in names if n in self.asked]
        wanted = 0 if engine else min(1, len(asked))
        assert len(served) == wanted, (
            f"of {asked} {served} served, an engine {'is' if engine else 'is not'} there"
        )


@cocotb.test()
@cocotb.parametrize(engines=["half", "rarely", "bursts"], others=["always", "half", "rarely"])
async def everyone_at_once(dut: Any, engines: str, others: str) -> None:
    """Engines never wait, the others are served in what they leave, and everyone reads what was written."""
    words = Words(settings()["words"])
    busy = Engines(dut, words, PACES[engines]())
    waiting = Waiting(dut, words, busy, PACES[others]())
    bench = Bench(dut, busy, waiting)
    await bench.start()
    await bench.step(settings()["cycles"])
    assert busy.done > 0
    # The first of each kind comes before the second, which is served when it does not ask again at once.
    assert waiting.served["put"] and waiting.served["look"]
    if others != "always":
        assert waiting.served["receive"] and waiting.served["send"]
    counted("reads of engines", busy.done)
    counted("requests served", sum(waiting.served.values()))
    await bench.reset()
    await bench.step(200)
