"""The payload memory as an engine sees it, played by the bench."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

READS, WRITE = ("read_a", "read_b"), "write"


class Payload:
    """Two read ports and a write port. words: what it holds, signed. written: address and word, in order.

    A port that was not asked, or was asked for the word being written, gives something else.
    """

    def __init__(self, dut: Any, address_bits: int) -> None:
        self.words: list[int] = [0] * (1 << address_bits)
        self.written: list[tuple[int, int]] = []
        self._reads = [(dut[f"{name}_en"], dut[f"{name}_addr"], dut[f"{name}_data"]) for name in READS]
        self._write = [dut[f"{WRITE}_{part}"] for part in ("en", "addr", "data")]
        self._next = [0, 0]

    def load(self, words: Sequence[int]) -> None:
        self.words[:] = words
        self.written.clear()

    def drive(self) -> None:
        for (_, _, data), word in zip(self._reads, self._next, strict=True):
            data.value = word & 0xFFFF

    def sample(self) -> None:
        en, addr, data = self._write
        at = int(addr.value) if int(en.value) else None
        for k, (asked, where, _) in enumerate(self._reads):
            address = int(where.value) if int(asked.value) else at
            self._next[k] = random.getrandbits(16) if address in (None, at) else self.words[address]
        if at is not None:
            word = int(data.value)
            word -= (word & 0x8000) << 1
            self.words[at] = word
            self.written.append((at, word))

    def restart(self) -> None:
        self.written.clear()
