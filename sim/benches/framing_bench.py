"""The decoder of words, on lines that lose, invent and damage bytes; the host's decoder says what is due."""

from __future__ import annotations

import random
from typing import Any

import cocotb
import numpy as np

from amphw.rtl.isa.word_frames import Decoder, Encoder
from sim.bench import PACES, Bench
from sim.streams import Receiver, Sender

COUNT = 120
FAULTS = {"none": 0.0, "some": 0.03, "many": 0.3}


class Reports:
    """Counts the reports of damage and of gaps."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.restart()

    def restart(self) -> None:
        self.damaged = self.missing = self.failed = 0

    def drive(self) -> None:
        pass

    def sample(self) -> None:
        self.damaged += int(self.dut.damaged.value)
        self.missing += int(self.dut.missing.value)
        self.failed += int(self.dut.failed.value)


def line(rate: float) -> bytes:
    """The bytes of some words, each lost, followed by an invented one, or damaged in one bit, at a rate."""
    words = np.array([random.randrange(1 << 16) for _ in range(COUNT)], np.uint16)
    encoder = Encoder()
    encoder.feed(words[: random.randrange(16)])  # what came before is not heard
    result = bytearray()
    for byte in encoder.feed(words):
        if random.random() >= rate:
            result.append(byte)
        if random.random() < rate:
            result.append(random.randrange(256))
        elif result and random.random() < rate:
            result[-1] ^= 1 << random.randrange(8)
    return bytes(result)


@cocotb.test()
@cocotb.parametrize(faults=list(FAULTS), sender=["always", "bursts"], receiver=list(PACES))
async def as_the_host_decodes(dut: Any, faults: str, sender: str, receiver: str) -> None:
    source, sink, reports = (
        Sender(dut, "i", PACES[sender]()),
        Receiver(dut, "o", PACES[receiver]()),
        Reports(dut),
    )
    bench = Bench(dut, source, sink, reports)
    await bench.start()
    received = line(FAULTS[faults])
    source.send(received)
    await bench.until(lambda: not source.waiting, 40 * len(received), "the last byte")
    host = Decoder()
    assert sink.received == host.feed(received).tolist()
    assert reports.damaged == host.damaged
    assert bool(reports.missing) == bool(host.lost)
    assert reports.failed == host.failed


@cocotb.test()
async def reset(dut: Any) -> None:
    """A reset in the middle of a word: the rest of it is damage, and the next word arrives."""
    source, sink, reports = Sender(dut, "i"), Receiver(dut, "o"), Reports(dut)
    bench = Bench(dut, source, sink, reports)
    await bench.start()
    frame = Encoder().feed(np.array([0x1234, 0xBEEF], np.uint16))
    source.send(frame[:2])
    await bench.step(5)
    await bench.reset()
    source.send(frame[2:])
    await bench.step(20)
    assert sink.received == [0xBEEF]
    assert (reports.damaged, reports.missing) == (1, 0)
