"""Components with one input `i` and one output `o` that pass payloads on unchanged: buffers and queues."""

from __future__ import annotations

import random
from typing import Any

import cocotb

from sim.bench import PACES, Bench, never, settings
from sim.streams import Receiver, Sender

COUNT = 300


def payloads(count: int) -> list[int]:
    return [random.randrange(1 << settings()["bits"]) for _ in range(count)]


@cocotb.test()
@cocotb.parametrize(sender=list(PACES), receiver=list(PACES))
async def order(dut: Any, sender: str, receiver: str) -> None:
    """Every payload comes out once, in order, at any pace of both sides."""
    source, sink = Sender(dut, "i", PACES[sender]()), Receiver(dut, "o", PACES[receiver]())
    bench = Bench(dut, source, sink)
    await bench.start()
    sent = payloads(COUNT)
    source.send(sent)
    await bench.until(lambda: len(sink.received) >= COUNT, 60 * COUNT, "the last payload")
    await bench.step(20)
    assert sink.received == sent


@cocotb.test()
async def capacity(dut: Any) -> None:
    """Behind a receiver that stands still, the component takes as many payloads as it is said to hold."""
    source, sink = Sender(dut, "i"), Receiver(dut, "o", never)
    bench = Bench(dut, source, sink)
    await bench.start()
    source.send(payloads(COUNT))
    await bench.step(COUNT)
    assert len(source.accepted) == settings()["capacity"]


@cocotb.test()
@cocotb.parametrize(after=[1, 2, 7, 40])
async def reset(dut: Any, after: int) -> None:
    """A reset in the middle of a stream leaves nothing behind."""
    source, sink = Sender(dut, "i"), Receiver(dut, "o", PACES["rarely"]())
    bench = Bench(dut, source, sink)
    await bench.start()
    source.send(payloads(COUNT))
    await bench.step(after)
    await bench.reset()
    sent = payloads(50)
    source.send(sent)
    await bench.until(lambda: len(sink.received) >= 50, 3000, "the last payload")
    await bench.step(100)
    assert sink.received == sent
