"""A demultiplexer of payloads {destination 2 bits, last 1 bit, body 8 bits} to `o_0`, `o_1`, ..."""

from __future__ import annotations

import random
from typing import Any

import cocotb

from sim.bench import PACES, Bench, settings
from sim.streams import Receiver, Sender

COUNT = 300


class Strays:
    """Counts the cycles in which `stray` is set."""

    def __init__(self, dut: Any) -> None:
        self.stray = dut.stray
        self.count = 0

    def drive(self) -> None:
        pass

    def sample(self) -> None:
        self.count += int(self.stray.value)

    def restart(self) -> None:
        self.count = 0


@cocotb.test()
@cocotb.parametrize(sender=list(PACES), receiver=list(PACES))
async def by_destination(dut: Any, sender: str, receiver: str) -> None:
    outputs = settings()["outputs"]
    source, strays = Sender(dut, "i", PACES[sender]()), Strays(dut)
    sinks = [Receiver(dut, f"o_{k}", PACES[receiver]()) for k in range(outputs)]
    bench = Bench(dut, source, strays, *sinks)
    await bench.start()
    sent = [random.randrange(1 << 11) for _ in range(COUNT)]
    source.send(sent)
    await bench.until(lambda: len(source.accepted) == COUNT, 60 * COUNT, "the last payload")
    for number, sink in enumerate(sinks):
        assert sink.received == [word for word in sent if word & 3 == number]
    assert strays.count == sum(word & 3 >= outputs for word in sent)
