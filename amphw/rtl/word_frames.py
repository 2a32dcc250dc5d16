"""How 16-bit words travel as bytes over a line that may lose, damage or invent some: the host's end of it.

A word is three bytes, of which the first alone has its top bit set:

    1 s s s s p w w   0 w w w w w w w   0 w w w w w w w        (the word's bits from the top, w15 first)

s is a sequence number modulo 16, p makes the number of ones in the three bytes odd. So the receiver finds the
next word wherever it starts to listen, sees any single wrong bit, and sees that words are missing unless a
multiple of 16 in a row are. What it cannot repair it counts: nothing above resends, and a link with losses is
broken. `amphw/rtl/gateware/framing.py` is the same in hardware.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

SEQUENCE = 16
BYTES = 3

BITS = 10
"""Of a byte on the line, with start and stop bit."""

BAUD = 1_000_000
"""Of a board's serial line: what USB bridges keep up with, and a whole fraction of every board's clock."""

QUEUE = 512
"""Words received that a board keeps; it drops what comes while so many wait."""


def encode(words: np.ndarray, first: int = 0) -> bytes:
    """The bytes of some words [n] uint16, the first of which has the sequence number `first` modulo 16."""
    values = np.asarray(words, np.uint32)
    sequence = (first + np.arange(values.size, dtype=np.uint32)) % SEQUENCE
    frame = np.stack([0x80 | sequence << 3 | values >> 14, values >> 7 & 0x7F, values & 0x7F], axis=1)
    even = np.bitwise_count(frame).sum(axis=1) % 2 == 0
    frame[:, 0] |= even.astype(np.uint32) << 2
    return frame.astype(np.uint8).tobytes()


@dataclass
class Decoder:
    """Bytes to words, however they are cut into pieces.

    damaged: byte groups that were no word. lost: words missing between two that arrived, at least.
    """

    damaged: int = 0
    lost: int = 0
    _expected: int | None = None
    _group: list[int] = field(default_factory=list)

    def feed(self, received: bytes) -> np.ndarray:
        """The words [n] uint16 that these bytes complete."""
        words = []
        for byte in received:
            if byte & 0x80:
                self.damaged += bool(self._group)
                self._group = [byte]
            elif self._group:
                self._group.append(byte)
                if len(self._group) == BYTES:
                    word = self._word()
                    words += [] if word is None else [word]
                    self._group = []
            else:
                self.damaged += 1
        return np.array(words, np.uint16)

    def _word(self) -> int | None:
        first, middle, last = self._group
        if (first.bit_count() + middle.bit_count() + last.bit_count()) % 2 == 0:
            self.damaged += 1
            return None
        sequence = first >> 3 & 15
        if self._expected is not None:
            self.lost += (sequence - self._expected) % SEQUENCE
        self._expected = (sequence + 1) % SEQUENCE
        return (first & 3) << 14 | middle << 7 | last
