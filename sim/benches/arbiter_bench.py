"""An arbiter of packets {destination 2 bits, last 1 bit, body 8 bits} with the inputs `i_0`, `i_1`, ..."""

from __future__ import annotations

import random
from typing import Any

import cocotb

from sim.bench import PACES, Bench, settings
from sim.streams import Receiver, Sender

PACKETS = 30


def packets(source: int) -> list[int]:
    """Packets of random lengths; `destination` says where a payload is from, so that it can be told apart."""
    result = []
    for _ in range(PACKETS):
        length = random.randint(1, 5)
        result += [source | (k == length - 1) << 2 | random.randrange(256) << 3 for k in range(length)]
    return result


@cocotb.test()
@cocotb.parametrize(sender=list(PACES), receiver=list(PACES))
async def packets_stay_whole(dut: Any, sender: str, receiver: str) -> None:
    sources = [Sender(dut, f"i_{k}", PACES[sender]()) for k in range(settings()["inputs"])]
    sink = Receiver(dut, "o", PACES[receiver]())
    bench = Bench(dut, *sources, sink)
    await bench.start()
    sent = [packets(number) for number in range(len(sources))]
    for source, words in zip(sources, sent, strict=True):
        source.send(words)
    total = sum(map(len, sent))
    await bench.until(lambda: len(sink.received) >= total, 60 * total, "the last payload")
    await bench.step(20)
    assert len(sink.received) == total
    for number, words in enumerate(sent):
        assert [word for word in sink.received if word & 3 == number] == words
    owner = None
    for word in sink.received:
        assert owner in (None, word & 3), "two packets are mixed"
        owner = None if word >> 2 & 1 else word & 3


@cocotb.test()
async def nobody_starves(dut: Any) -> None:
    """Among inputs that always offer, the numbers of packets differ by one at most."""
    sources = [Sender(dut, f"i_{k}") for k in range(settings()["inputs"])]
    sink = Receiver(dut, "o", PACES["half"]())
    bench = Bench(dut, *sources, sink)
    await bench.start()
    for number, source in enumerate(sources):
        source.send([number | 1 << 2] * 500)
    await bench.step(400)
    taken = [len(source.accepted) for source in sources]
    assert max(taken) - min(taken) <= 1 and min(taken) > 30, taken


@cocotb.test()
async def reset(dut: Any) -> None:
    """A reset in the middle of a packet: the next packet may come from anywhere."""
    sources = [Sender(dut, f"i_{k}") for k in range(settings()["inputs"])]
    sink = Receiver(dut, "o")
    bench = Bench(dut, *sources, sink)
    await bench.start()
    sources[0].send([0, 0, 0, 0])  # no last one: the arbiter waits for the rest
    await bench.step(10)
    sources[1].send([1 | 1 << 2])
    await bench.step(10)
    assert sink.received == [0, 0, 0, 0]
    await bench.reset()
    sources[1].send([1 | 1 << 2])
    await bench.step(10)
    assert sink.received == [1 | 1 << 2]
