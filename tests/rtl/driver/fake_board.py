"""A line with a board at its other end that knows the link alone: it takes words, and answers some."""

from __future__ import annotations

from collections import deque

import numpy as np

from amphw.rtl.isa.wire import HEADER_WORDS, Fault, Kind, pack, unpack
from amphw.rtl.isa.word_frames import Decoder, Encoder

SIZES = {"slot": 2, "unit": 3, "firing": 16, "place": 32, "payload": 64}
"""What is outside, by field; unit and firing of FIRINGS, payload of TABLE and FORWARD."""


class FakeBoard:
    """As `Line`. header, left: words of an unfinished message that it has taken, and those it still expects.

    pace: words that it takes each time that the host looks; those that wait must fit its queue.
    garbage: bytes that lie on the line. dumb: it never says a thing. spoil: what becomes of its bytes.
    """

    name = "fake"

    def __init__(
        self, header: tuple[int, ...] = (), left: int = 0, pace: int = 1 << 20, garbage: bytes = b""
    ):
        self.header, self.left, self.pace = list(header), left, pace
        self.pending = bytearray(garbage)
        self.decoder = Decoder()
        self.queue: deque[int] = deque()
        self.fullest = 0
        self.taken: list[dict[str, int]] = []
        self.encoder = Encoder()
        self.dumb = False
        self.spoil = bytes
        self.most = 1 << 20  # bytes that one read gives
        self.closed = False

    def write(self, data: bytes) -> None:
        self.queue.extend(self.decoder.feed(data).tolist())
        self.fullest = max(self.fullest, len(self.queue))

    def read(self, seconds: float) -> bytes:
        for _ in range(min(self.pace, len(self.queue))):
            self._word(self.queue.popleft())
        out, self.pending = bytes(self.pending[: self.most]), self.pending[self.most :]
        return out

    def close(self) -> None:
        self.closed = True

    def say(self, words: list[int]) -> None:
        if not self.dumb:
            self.pending += self.spoil(self.encoder.feed(np.array(words, np.uint16)))

    def _word(self, word: int) -> None:
        if self.left:
            self.left -= 1
            return
        self.header.append(word)
        if len(self.header) == HEADER_WORDS:
            fields, self.header = unpack(self.header), []
            self.left = fields["words"]
            self.taken.append(fields)
            self._message(fields)

    def _message(self, fields: dict[str, int]) -> None:
        kind, rest = fields["kind"], {k: v for k, v in fields.items() if k not in ("kind", "output", "words")}
        if kind == Kind.PEEK:
            self.say(pack(Kind.VALUE, **{**rest, "state": 77}))
        elif kind not in list(Kind):
            self.say(pack(Kind.FAULT, output=Fault.UNKNOWN, **rest))
        elif kind in (Kind.BEGIN, Kind.FORWARD, Kind.TABLE, Kind.FIRINGS):
            bounds = {
                Kind.BEGIN: ("slot",),
                Kind.FORWARD: ("firing", "place", "payload"),
                Kind.TABLE: ("payload",),
                Kind.FIRINGS: ("unit",),
            }[Kind(kind)]
            outside = any(fields[f] >= SIZES[f] + (f == "payload") for f in bounds)
            if outside:
                self.say(pack(Kind.FAULT, output=Fault.OUTSIDE, **rest))
            elif fields["generation"]:
                self.say(pack(Kind.FAULT, output=Fault.LATE, **rest))
