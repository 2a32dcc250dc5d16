"""Frames at a PHY's GMII, byte by byte."""

from __future__ import annotations

import random
from typing import Any

import pytest

from amphw.rtl.gateware.network.gmii import GAP, GmiiReceiver, GmiiTransmitter
from sim.frames import PREAMBLE, SHORTEST, with_check, without_check
from tests.rtl.gateware.benches import Chance, always, simulate, sometimes

Entry = dict[str, int]


def frame(words: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(2 * words)


def entries(data: bytes) -> list[Entry]:
    """Of a frame to be sent."""
    words = [int.from_bytes(data[k : k + 2], "big") for k in range(0, len(data), 2)]
    return [{"word": word, "last": k == len(words) - 1, "good": 0} for k, word in enumerate(words)]


def sent(frames: list[bytes], pace: Chance = always, depth: int = 1024) -> tuple[list[bytes], list[int]]:
    """What a transmitter makes of frames: on the wire, and the byte times between them."""
    dut = GmiiTransmitter(depth)
    wires: list[bytes] = []
    gaps: list[int] = []

    async def put(ctx: Any) -> None:
        for data in frames:
            for entry in entries(data):
                while not pace():
                    await ctx.tick()
                ctx.set(dut.i.payload, entry)
                ctx.set(dut.i.valid, 1)
                await ctx.tick().until(dut.i.ready)
                ctx.set(dut.i.valid, 0)

    async def watch(ctx: Any) -> None:
        wire, gap = bytearray(), 0
        while len(wires) < len(frames) or gap < 3 * GAP:
            _, _, enable, byte = await ctx.tick().sample(dut.enable, dut.data)
            if enable:
                if not wire and wires:
                    gaps.append(gap)
                wire.append(byte)
                gap = 0
            else:
                gap += 1
                if wire:
                    wires.append(bytes(wire))
                    wire.clear()

    simulate(dut, put, watch, limit=40_000)
    return wires, gaps


@pytest.mark.parametrize("words", [1, 7, 29, 30, 31, 100, 757])
def test_a_frame_is_sent_whole(words: int) -> None:
    """With preamble and check, and zeros behind one that is too short, however slowly it is written."""
    wires, _ = sent([frame(words)], sometimes(0.3, 1) if words < 200 else always)
    assert [without_check(wire) for wire in wires] == [frame(words).ljust(SHORTEST, b"\0")]


def test_frames_keep_their_distance() -> None:
    frames = [frame(40 + number, number) for number in range(5)]
    wires, gaps = sent(frames)
    assert [without_check(wire) for wire in wires] == frames
    assert all(GAP <= gap <= GAP + 8 for gap in gaps), gaps


def received(wires: list[tuple[bytes, int | None]], pace: Chance = always, depth: int = 1024) -> list[Any]:
    """What a receiver makes of bytes, of which one may have an error: words, and whether they are good."""
    dut = GmiiReceiver(depth)
    found: list[Any] = []
    over = False

    async def put(ctx: Any) -> None:
        nonlocal over
        for wire, wrong in wires:
            for number, byte in enumerate(wire):
                ctx.set(dut.valid, 1)
                ctx.set(dut.data, byte)
                ctx.set(dut.error, number == wrong)
                await ctx.tick()
            ctx.set(dut.valid, 0)
            await ctx.tick().repeat(GAP)
        over = True

    async def take(ctx: Any) -> None:
        words: list[int] = []
        quiet = 0
        while not over or quiet < 400:
            ready = pace()
            ctx.set(dut.o.ready, ready)
            _, _, valid, entry = await ctx.tick().sample(dut.o.valid, dut.o.payload)
            quiet = 0 if valid else quiet + 1
            if valid and ready and entry.last:
                found.append((words, bool(entry.good)))
                words = []
            elif valid and ready:
                words.append(entry.word)

    simulate(dut, put, take, limit=40_000)
    return found


def words_of(data: bytes) -> list[int]:
    return [int.from_bytes(data[k : k + 2], "big") for k in range(0, len(data), 2)]


@pytest.mark.parametrize("pace", [always, sometimes(0.55, 2)])
def test_frames_are_received_with_their_check(pace: Chance) -> None:
    wires = [with_check(frame(30 + number, number)) for number in range(6)]
    expected = [(words_of(wire[len(PREAMBLE) :]), True) for wire in wires]
    assert received([(wire, None) for wire in wires], pace) == expected


def test_what_is_damaged_is_said_to_be() -> None:
    wire = with_check(frame(30))
    spoilt = wire[:20] + bytes([wire[20] ^ 4]) + wire[21:]
    cut = wire[:-2]
    odd = with_check(frame(30) + b"\1")
    found = received([(spoilt, None), (wire, 25), (cut, None), (odd, None), (PREAMBLE, None), (wire, None)])
    assert [good for _, good in found] == [False] * 5 + [True]


def test_a_line_that_is_within_a_frame_at_first() -> None:
    """And noise between frames."""
    wire = with_check(frame(30))
    found = received([(wire[30:], None), (b"\x12\x34", None), (PREAMBLE[3:] + wire[8:], None)])
    assert found == [(words_of(wire[len(PREAMBLE) :]), True)]


def test_what_finds_no_room_is_damaged() -> None:
    """One after it is whole again."""
    wire = with_check(frame(100))
    waits = iter([False] * 2_000)
    found = received([(wire, None)] * 12, lambda: next(waits, True), depth=64)
    goods = [good for _, good in found]
    assert not goods[0] and goods[-1] and len(goods) < 12
