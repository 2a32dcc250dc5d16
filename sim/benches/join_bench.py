"""A join of {header 4 bits, body 8 bits} from `a` and `b`."""

from __future__ import annotations

import random
from typing import Any

import cocotb

from sim.bench import PACES, Bench, always
from sim.streams import Receiver, Sender

COUNT = 200


@cocotb.test()
@cocotb.parametrize(a=list(PACES), b=list(PACES), receiver=["always", "bursts"])
async def pairs(dut: Any, a: str, b: str, receiver: str) -> None:
    left, right = Sender(dut, "a", PACES[a]()), Sender(dut, "b", PACES[b]())
    sink = Receiver(dut, "o", PACES[receiver]())
    bench = Bench(dut, left, right, sink)
    await bench.start()
    headers = [random.randrange(16) for _ in range(COUNT)]
    bodies = [(random.randrange(256), random.randrange(256)) for _ in range(COUNT)]
    left.send(header | one << 4 for header, (one, _) in zip(headers, bodies, strict=True))
    right.send(header | other << 4 for header, (_, other) in zip(headers, bodies, strict=True))
    await bench.until(lambda: len(sink.received) == COUNT, 60 * COUNT, "the last pair")
    expected = [header | one << 4 | other << 12 for header, (one, other) in zip(headers, bodies, strict=True)]
    assert sink.received == expected


@cocotb.test()
async def a_mismatch_stops_both(dut: Any) -> None:
    left, right = Sender(dut, "a", always), Sender(dut, "b", always)
    sink = Receiver(dut, "o", always)
    bench = Bench(dut, left, right, sink)
    await bench.start()
    left.send([1, 2, 3])
    right.send([1, 3, 3])
    await bench.step(30)
    assert sink.received == [1]
    assert (len(left.accepted), len(right.accepted)) == (1, 1)
    assert dut.mismatch.value == 1
