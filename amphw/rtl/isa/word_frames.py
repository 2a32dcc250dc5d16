"""How 16-bit words travel as bytes over a line that may lose, damage or invent some: the host's end of it.

A word is three bytes, of which the first alone has its top bit set:

    1 s s s s p w w   0 w w w w w w w   0 w w w w w w w        (the word's bits from the top, w15 first)

s is a sequence number, 0 .. 14 and 0 again, p makes the number of ones in the three bytes odd. So the
receiver finds the next word wherever it starts to listen, sees any single wrong bit, and sees that words are
missing unless a multiple of 15 in a row are.

s = 15 says that it is no word. Two such, with the low and the high half of a CRC-32, are a check of all words
since the one before; a sender puts it behind BLOCK words, and wherever it has no more words to send. With an
even number of ones it is a signal: START to a board, which forgets what it has received so far, and ALARM
from one, that the line to it is bad.

Nothing that is wrong is sent again: a link with losses is broken. `gateware.link.framing` is the same in
hardware.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np

SEQUENCE = 15
NO_WORD = 15
BYTES = 3
BLOCK = 64
"""Words behind which a check comes at the latest."""

START, ALARM = 0xA5C3, 0x3C5A

BITS = 10
"""Of a byte on the line, with start and stop bit."""

LEAST_DIVISOR = 4
"""Clock cycles a bit of a board's serial line: below, its synchronizer's delay moves the sample out of the
bit."""

BAUD = 1_000_000
"""Of a serial line where nothing says what its bridge keeps up with."""

QUEUE = 512
"""Words received that a board keeps; it drops what comes while so many wait."""


def _frames(values: np.ndarray, sequence: np.ndarray | int, odd: bool = True) -> bytes:
    values = values.astype(np.uint32)
    frame = np.empty((values.size, BYTES), np.uint32)
    frame[:, 0] = 0x80 | np.asarray(sequence, np.uint32) << 3 | values >> 14
    frame[:, 1], frame[:, 2] = values >> 7 & 0x7F, values & 0x7F
    wrong = np.bitwise_count(frame).sum(axis=1) % 2 != int(odd)
    frame[:, 0] |= wrong.astype(np.uint32) << 2
    return frame.astype(np.uint8).tobytes()


def signal(code: int) -> bytes:
    """START or ALARM."""
    return _frames(np.array([code]), NO_WORD, odd=False)


def checksum(words: np.ndarray) -> int:
    """CRC-32 (ISO-HDLC, as zlib's) of words [n] uint16, the low byte of each first."""
    return zlib.crc32(words.astype("<u2").tobytes())


class Encoder:
    """Words to bytes, from the first word of a link on."""

    def __init__(self) -> None:
        self._sent = 0

    def start(self) -> bytes:
        """What a host says first."""
        self._sent = 0
        return signal(START)

    def feed(self, words: np.ndarray) -> bytes:
        """The bytes of some words [n] uint16, with their checks."""
        out = b""
        for first in range(0, len(words), BLOCK):
            block = np.asarray(words[first : first + BLOCK], np.uint16)
            out += _frames(block, (self._sent + np.arange(block.size)) % SEQUENCE)
            crc = checksum(block)
            out += _frames(np.array([crc & 0xFFFF, crc >> 16]), NO_WORD)
            self._sent += block.size
        return out


@dataclass
class Decoder:
    """Bytes to words, however they are cut into pieces.

    damaged: byte groups that were nothing. lost: words missing between two that arrived, at least. failed:
    checks that are not those of the words before them; the first check after listening began says nothing.
    alarm: whether the other end says that the line to it is bad.
    """

    damaged: int = 0
    lost: int = 0
    failed: int = 0
    alarm: bool = False
    _expected: int | None = None
    _checked: bool = False  # whether all words since the last check are known
    _half: int | None = None
    _block: list[int] = field(default_factory=list)
    _group: list[int] = field(default_factory=list)

    @property
    def faulty(self) -> bool:
        return bool(self.damaged or self.lost or self.failed or self.alarm)

    def forgive(self) -> None:
        """What was wrong so far does not count: the line is at the beginning of something."""
        self.damaged = self.lost = self.failed = 0
        self.alarm = False

    def feed(self, received: bytes) -> np.ndarray:
        """The words [n] uint16 that these bytes complete."""
        words: list[int] = []
        for byte in received:
            if byte & 0x80:
                self.damaged += bool(self._group)
                self._group = [byte]
            elif self._group:
                self._group.append(byte)
                if len(self._group) == BYTES:
                    self._frame(words)
                    self._group = []
            else:
                self.damaged += 1
        return np.array(words, np.uint16)

    def _frame(self, words: list[int]) -> None:
        first, middle, last = self._group
        odd = (first.bit_count() + middle.bit_count() + last.bit_count()) % 2 == 1
        sequence, value = first >> 3 & 15, (first & 3) << 14 | middle << 7 | last
        if odd and sequence == NO_WORD:
            self._check(value)
        elif odd:
            self._word(sequence, value)
            words.append(value)
        elif sequence == NO_WORD and value == START:
            self.__init__()  # type: ignore[misc]
            self._expected, self._checked = 0, True
        elif sequence == NO_WORD and value == ALARM:
            self.alarm = True
        else:
            self.damaged += 1

    def _word(self, sequence: int, value: int) -> None:
        if self._expected is not None:
            self.lost += (sequence - self._expected) % SEQUENCE
        self._expected = (sequence + 1) % SEQUENCE
        if self._half is not None:  # a check has lost its second half
            self.failed += 1
            self._half = None
        self._block.append(value)

    def _check(self, value: int) -> None:
        if self._half is None:
            self._half = value
            return
        wrong = value << 16 | self._half != checksum(np.array(self._block, np.uint16))
        self.failed += self._checked and wrong
        self._checked, self._half, self._block = True, None, []
