"""A whole device, from a script of the link: what the host sends, and when, and what must come back.

A script is a list of turns (words that have come before, words to send) and the words that come in all.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import cocotb

from sim.bench import PACES, Bench, always, settings
from sim.streams import Receiver, Sender

FAULT, KINDS, HEADER_WORDS = 15, range(16), 9


def script() -> tuple[list[tuple[int, list[int]]], list[int]]:
    found = json.loads(Path(settings()["script"]).read_text())
    return [(before, words) for before, words in found["turns"]], found["came"]


class Host:
    """Plays a script; stray: words of messages that the device must drop, put between two turns."""

    def __init__(self, dut: Any, to_device: str, from_device: str):
        self.source = Sender(dut, "words_in", PACES[to_device]())
        self.sink = Receiver(dut, "words_out", PACES[from_device]())
        self.bench = Bench(dut, self.source, self.sink, Receiver(dut, "watched", always))

    async def play(self, turns: list[tuple[int, list[int]]], came: list[int], stray: list[int]) -> None:
        extra = 0
        for k, (before, words) in enumerate(turns):
            await self.bench.until(
                lambda limit=before + extra: len(self.sink.received) >= limit, 400_000, f"turn {k}"
            )
            self.source.send(words)
            if stray and k == len(turns) // 2:
                # A whole message stands between whole messages.
                self.source.send(stray)
        wanted = len(came) + (HEADER_WORDS if stray else 0)
        await self.bench.until(lambda: len(self.sink.received) >= wanted, 400_000, "the last word")
        await self.bench.step(200)
        assert without_faults(self.sink.received) == came


def without_faults(words: list[int]) -> list[int]:
    """The words but for reports of dropped messages."""
    out, at = [], 0
    while at < len(words):
        length = HEADER_WORDS + words[at + 5]
        if words[at] & 0xF != FAULT:
            out += words[at : at + length]
        at += length
    return out


@cocotb.test()
@cocotb.parametrize(to_device=["always", "half", "bursts"], from_device=["always", "rarely", "bursts"])
async def any_pace(dut: Any, to_device: str, from_device: str) -> None:
    """The same words come back, whatever the pace of both directions."""
    host = Host(dut, to_device, from_device)
    await host.bench.start()
    await host.play(*script(), stray=[])


@cocotb.test()
@cocotb.parametrize(after=[50, 2000, 9000])
async def reset(dut: Any, after: int) -> None:
    """A reset in the middle, and then everything from the beginning."""
    host = Host(dut, "always", "half")
    await host.bench.start()
    turns, came = script()
    host.source.send([w for _, words in turns[:1] for w in words])
    await host.bench.step(after)
    await host.bench.reset()
    await host.play(turns, came, stray=[])


@cocotb.test()
@cocotb.parametrize(kind=[0, 12, 13, 14])
async def unknown(dut: Any, kind: int) -> None:
    """A message of an unknown kind, with a payload of random words, is reported, and nothing else changes."""
    host = Host(dut, "bursts", "bursts")
    await host.bench.start()
    length = random.randrange(20)
    header = [kind, *(random.getrandbits(16) for _ in range(4)), length, 0, 0, 0]
    await host.play(*script(), stray=[*header, *(random.getrandbits(16) for _ in range(length))])
