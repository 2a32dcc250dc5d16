"""The payload memory as an engine sees it, played by the bench."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Module, Signal, Value
from amaranth.lib.memory import Memory

from amphw.rtl.isa.memory import READ_LATENCY

READS, WRITE = ("read_a", "read_b"), "write"


def read_of(m: Module, memory: Memory, address: Value) -> Value:
    """The word at an address, as a payload memory gives it: READ_LATENCY cycles later."""
    port = memory.read_port()
    m.d.comb += port.addr.eq(address)
    return delayed(m, port.data)


def delayed(m: Module, word: Value) -> Value:
    """What comes in the cycle after it was asked for, as late as from a payload memory."""
    for _ in range(READ_LATENCY - 1):
        later = Signal.like(word)
        m.d.sync += later.eq(word)
        word = later
    return word


class Payload:
    """Two read ports and a write port. words: what it holds, signed. written: address and word, in order.

    A port that was not asked, or was asked for the word being written, gives something else.
    """

    def __init__(self, dut: Any, address_bits: int) -> None:
        self.words: list[int] = [0] * (1 << address_bits)
        self.written: list[tuple[int, int]] = []
        self._reads = [(dut[f"{name}_en"], dut[f"{name}_addr"], dut[f"{name}_data"]) for name in READS]
        self._write = [dut[f"{WRITE}_{part}"] for part in ("en", "addr", "data")]
        self._coming = [[0] * READ_LATENCY for _ in READS]  # what the ports will give, the next one first

    def load(self, words: Sequence[int]) -> None:
        self.words[:] = words
        self.written.clear()

    def drive(self) -> None:
        for (_, _, data), words in zip(self._reads, self._coming, strict=True):
            data.value = words.pop(0) & 0xFFFF

    def sample(self) -> None:
        en, addr, data = self._write
        at = int(addr.value) if int(en.value) else None
        for k, (asked, where, _) in enumerate(self._reads):
            address = int(where.value) if int(asked.value) else at
            word = random.getrandbits(16) if address in (None, at) else self.words[address]
            self._coming[k].append(word)
        if at is not None:
            word = int(data.value)
            word -= (word & 0x8000) << 1
            self.words[at] = word
            self.written.append((at, word))

    def restart(self) -> None:
        self.written.clear()
