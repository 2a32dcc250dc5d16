"""Words over a serial line to a board: framed and checked.

The line cannot wait, and the board's queue drops what does not fit; a message may lie there for as long as
the device computes. Nothing is sent again: a lost or damaged word ends the line.
"""

from __future__ import annotations

import numpy as np

from amphw.ir.errors import DeviceLostError
from amphw.rtl.driver.serial_line import Line
from amphw.rtl.isa.word_frames import BITS, BYTES, QUEUE, Decoder, Encoder

WINDOW = QUEUE - 64
"""Words on their way at most; the rest of the queue is for the link's own."""

_REMEDY = (
    "use a better cable, a lower baud rate, or see whether another program reads the port or sends to it"
)


class SerialWords:
    """See `WordLine`."""

    window = WINDOW
    identity = None

    def __init__(self, line: Line, baud: int):
        self.line, self.baud, self.name = line, baud, line.name
        self.strict, self.lag = True, 0.0
        self._encoder, self._decoder = Encoder(), Decoder()
        self._came, self._first = 0, b""

    def start(self) -> None:
        self.line.write(self._encoder.start())

    def write(self, words: np.ndarray) -> None:
        self.line.write(self._encoder.feed(words))

    def read(self, seconds: float) -> np.ndarray | None:
        data = self.line.read(seconds)
        if not data:
            return None
        self._came += len(data)
        self._first = (self._first + data)[:12]
        words = self._decoder.feed(data)
        if self.strict and self._decoder.faulty:
            raise DeviceLostError(f"{self._wrong(data)}. Nothing is sent again: {_REMEDY}")
        return words

    def forgive(self) -> None:
        """What was wrong so far does not count."""
        self._decoder.forgive()

    def seconds(self, words: int) -> float:
        return words * BYTES * BITS / self.baud

    def close(self) -> None:
        self.line.close()

    def _wrong(self, data: bytes) -> str:
        d, name = self._decoder, self.name
        what = [
            text
            for n, text in (
                (d.damaged, f"{d.damaged} damaged word(s)"),
                (d.lost, f"at least {d.lost} missing word(s)"),
                (d.failed, f"{d.failed} block(s) whose checksum is wrong"),
            )
            if n
        ]
        if not what:
            return f"the line to {name} is bad: the board says that words came damaged, or not at all"
        return (
            f"the line from {name} is bad: {', '.join(what)} among {self._came:,} bytes, the last of them "
            f"{data[-12:].hex(' ')}"
        )

    def complaint(self) -> str:
        where, n = f"{self.name} at {self.baud:,} baud", self._came
        if not n:
            return (
                f"nothing comes from {where}: is the board powered, is it this port, and is the circuit in "
                "it (amphw flash)? A wrong baud rate may also look like that"
            )
        shown = f"{n:,} byte(s) came from {where}, the first {self._first.hex(' ')}"
        if self._decoder.damaged * BYTES * 4 > n:
            return (
                f"{shown}: that is no amphw circuit's, or the baud rate is another (baud=...), which looks "
                "like garbage"
            )
        return (
            f"{shown}, but no answer to what was asked: the circuit is of another version of amphw, or what "
            "is connected is none. Build and flash it anew (amphw rtl, amphw flash)"
        )
