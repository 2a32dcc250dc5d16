"""Words on a link become messages again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from amphw.rtl.wire import HEADER_WORDS, unpack


class Messages:
    """Collects words as they come, and hands out whole messages: (header's fields, payload int64)."""

    def __init__(self) -> None:
        self._words = np.zeros(0, np.uint16)

    def add(self, words: np.ndarray) -> Iterator[tuple[dict[str, int], np.ndarray]]:
        self._words = np.concatenate([self._words, words]) if len(self._words) else words
        at = 0
        while len(self._words) - at >= HEADER_WORDS:
            header = unpack(self._words[at : at + HEADER_WORDS].tolist())
            end = at + HEADER_WORDS + header["words"]
            if end > len(self._words):
                break
            yield header, self._words[at + HEADER_WORDS : end].astype(np.int16).astype(np.int64)
            at = end
        self._words = self._words[at:]
