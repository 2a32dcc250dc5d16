# amaranth: UnusedElaboratable=no
"""Streams keep their payloads and their order; latency, throughput and capacity are what is promised."""

from __future__ import annotations

from typing import Any

import pytest
from amaranth.lib import data

from amphw.rtl.gateware.streams import (
    Arbiter,
    Demultiplexer,
    GatewareError,
    Join,
    Queue,
    SkidBuffer,
)
from tests.rtl.gateware.benches import receive, send, simulate, sometimes

PACKET = data.StructLayout({"destination": 2, "last": 1, "body": 8})


def through(component: Any, count: int, sender: float = 1, receiver: float = 1) -> tuple[list[int], int]:
    """What comes out for the payloads 0, 1, ..., and after how many cycles."""
    received: list[int] = []

    async def feed(ctx: Any) -> None:
        await send(ctx, component.i, range(count), sometimes(sender, seed=1))

    async def drain(ctx: Any) -> None:
        await receive(ctx, component.o, count, received, sometimes(receiver, seed=2))

    return received, simulate(component, feed, drain)


DELAYS = [
    (lambda: SkidBuffer(8), 1),
    (lambda: Queue(8, 4, "lut"), 1),
    (lambda: Queue(8, 4, "block"), 2),
    (lambda: Queue(8, 3, "block"), 2),
]


@pytest.mark.parametrize(("make", "delay"), DELAYS)
def test_full_throughput_after_the_delay(make: Any, delay: int) -> None:
    received, cycles = through(make(), 100)
    assert received == list(range(100))
    assert cycles == 100 + delay


@pytest.mark.parametrize(
    ("make", "delay"), [*DELAYS, (lambda: Queue(8, 1, "lut"), 0), (lambda: Queue(8, 1), 0)]
)
@pytest.mark.parametrize(("sender", "receiver"), [(0.5, 0.5), (0.9, 0.2), (0.2, 0.9)])
def test_order_under_back_pressure(make: Any, delay: int, sender: float, receiver: float) -> None:
    received, _ = through(make(), 200, sender, receiver)
    assert received == list(range(200))


@pytest.mark.parametrize("storage", ["lut", "block"])
@pytest.mark.parametrize("depth", [1, 3, 4])
def test_a_queue_holds_its_depth(storage: Any, depth: int) -> None:
    queue = Queue(8, depth, storage)
    levels = []

    async def fill(ctx: Any) -> None:
        ctx.set(queue.i.valid, 1)
        for _ in range(depth + 3):
            levels.append((ctx.get(queue.level), ctx.get(queue.i.ready)))
            await ctx.tick()

    simulate(queue, fill)
    assert levels == [(min(k, depth), k < depth) for k in range(depth + 3)]


def test_an_arbiter_takes_turns() -> None:
    arbiter = Arbiter(8, 3)
    received: list[int] = []

    def feeder(number: int) -> Any:
        async def feed(ctx: Any) -> None:
            await send(ctx, arbiter.i[number], [16 * number + k for k in range(4)])

        return feed

    async def drain(ctx: Any) -> None:
        await receive(ctx, arbiter.o, 12, received)

    cycles = simulate(arbiter, feeder(0), feeder(1), feeder(2), drain)
    assert cycles == 12
    assert [value >> 4 for value in received] == [1, 2, 0] * 4
    for number in range(3):
        assert [value & 15 for value in received if value >> 4 == number] == [0, 1, 2, 3]


def test_an_arbiter_of_packets_keeps_them_whole() -> None:
    arbiter = Arbiter(PACKET, 2, packets=True)
    received: list[int] = []

    def feeder(number: int) -> Any:
        words = [{"destination": number, "last": k % 3 == 2, "body": k} for k in range(9)]

        async def feed(ctx: Any) -> None:
            await send(ctx, arbiter.i[number], words, sometimes(0.5, seed=number))

        return feed

    async def drain(ctx: Any) -> None:
        await receive(ctx, arbiter.o, 18, received, sometimes(0.7, seed=5))

    simulate(arbiter, feeder(0), feeder(1), drain)
    got = [PACKET.from_bits(value) for value in received]
    sources = [word.destination for word in got]
    assert all(len(set(sources[k : k + 3])) == 1 for k in range(0, 18, 3))
    for number in range(2):
        assert [word.body for word in got if word.destination == number] == list(range(9))


def test_a_demultiplexer_delivers_by_destination_and_reports_strays() -> None:
    demultiplexer = Demultiplexer(PACKET, 3)
    outputs: list[list[int]] = [[], [], []]
    words = [{"destination": k % 4, "last": 0, "body": k} for k in range(40)]
    strays = 0

    async def feed(ctx: Any) -> None:
        await send(ctx, demultiplexer.i, words)

    async def count(ctx: Any) -> None:
        nonlocal strays
        for _ in range(200):
            _, _, stray = await ctx.tick().sample(demultiplexer.stray)
            strays += stray

    def drain(number: int) -> Any:
        async def run(ctx: Any) -> None:
            await receive(ctx, demultiplexer.o[number], 10, outputs[number], sometimes(0.4, seed=number))

        return run

    simulate(demultiplexer, feed, count, *(drain(number) for number in range(3)))
    assert strays == 10
    for number, output in enumerate(outputs):
        assert [PACKET.from_bits(value).body for value in output] == list(range(number, 40, 4))


def test_a_join_pairs_payloads_of_equal_headers() -> None:
    join = Join(4, 8, 8)
    received: list[int] = []

    async def left(ctx: Any) -> None:
        words = [{"header": k % 16, "body": k} for k in range(50)]
        await send(ctx, join.a, words, sometimes(0.5, seed=1))

    async def right(ctx: Any) -> None:
        words = [{"header": k % 16, "body": 100 + k} for k in range(50)]
        await send(ctx, join.b, words, sometimes(0.5, seed=2))

    async def drain(ctx: Any) -> None:
        await receive(ctx, join.o, 50, received, sometimes(0.5, seed=3))
        assert not ctx.get(join.mismatch)

    simulate(join, left, right, drain)
    assert [value >> 4 & 255 for value in received] == list(range(50))
    assert [value >> 12 for value in received] == list(range(100, 150))


def test_a_join_of_different_headers_stops() -> None:
    join = Join(4, 8, 8)

    async def bench(ctx: Any) -> None:
        ctx.set(join.o.ready, 1)
        for port, header in ((join.a, 3), (join.b, 4)):
            ctx.set(port.payload.header, header)
            ctx.set(port.valid, 1)
        assert ctx.get(join.mismatch)
        assert not ctx.get(join.o.valid) and not ctx.get(join.a.ready) and not ctx.get(join.b.ready)

    simulate(join, bench)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Queue(8, 0), "at least one payload, not 0"),
        (lambda: Queue(8, 2, "flash"), "'block' or 'lut', not 'flash'"),
        (lambda: Arbiter(8, 0), "at least one input, not 0"),
        (lambda: Arbiter(8, 2, packets=True), "field last. Fields of this one: none"),
        (lambda: Demultiplexer(PACKET, 2, "to"), "field to. Fields of this one: destination, last, body"),
        (lambda: Demultiplexer(PACKET, 0), "at least one output, not 0"),
    ],
)
def test_impossible_parameters_are_refused(make: Any, message: str) -> None:
    with pytest.raises(GatewareError, match=message):
        make()
