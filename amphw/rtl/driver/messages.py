"""Words on a link become messages again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from amphw.rtl.isa.wire import HEADER_WORDS, unpack


class Messages:
    """Collects words as they come, and hands out whole messages: (header's fields, payload int64)."""

    def __init__(self) -> None:
        self._words = np.zeros(0, np.uint16)

    def cut(self, words: np.ndarray) -> Iterator[np.ndarray]:
        """The words of each message that these complete."""
        self._words = np.concatenate([self._words, words]) if len(self._words) else words
        at = 0
        while len(self._words) - at >= HEADER_WORDS:
            end = at + HEADER_WORDS + unpack(self._words[at : at + HEADER_WORDS].tolist())["words"]
            if end > len(self._words):
                break
            yield self._words[at:end]
            at = end
        self._words = self._words[at:]

    def add(self, words: np.ndarray) -> Iterator[tuple[dict[str, int], np.ndarray]]:
        for message in self.cut(words):
            header = unpack(message[:HEADER_WORDS].tolist())
            yield header, message[HEADER_WORDS:].astype(np.int16).astype(np.int64)

    @property
    def partial(self) -> int:
        """Words of a message that is not complete."""
        return len(self._words)
