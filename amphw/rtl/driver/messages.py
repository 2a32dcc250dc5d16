"""Words on their way to a link, and words on a link that become messages again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from amphw.rtl.isa.wire import HEADER_WORDS, unpack


class Messages:
    """Collects words as they come, and hands out whole messages: (header's fields, payload int64)."""

    def __init__(self) -> None:
        self._words = np.zeros(0, np.uint16)

    def cut(self, words: np.ndarray) -> Iterator[np.ndarray]:
        """The words of each message that these complete."""
        return (message for _, message in self._cut(words))

    def _cut(self, words: np.ndarray) -> Iterator[tuple[dict[str, int], np.ndarray]]:
        """And its header's fields."""
        self._words = np.concatenate([self._words, words]) if len(self._words) else words
        at = 0
        while len(self._words) - at >= HEADER_WORDS:
            header = unpack(self._words[at : at + HEADER_WORDS].tolist())
            end = at + HEADER_WORDS + header["words"]
            if end > len(self._words):
                break
            yield header, self._words[at:end]
            at = end
        self._words = self._words[at:]

    def add(self, words: np.ndarray) -> Iterator[tuple[dict[str, int], np.ndarray]]:
        for header, message in self._cut(words):
            yield header, message[HEADER_WORDS:].astype(np.int16).astype(np.int64)

    @property
    def partial(self) -> int:
        """Words of a message that is not complete."""
        return len(self._words)


class Outgoing:
    """Words in the order in which they leave; `len` of them wait."""

    def __init__(self) -> None:
        self._words, self._later = np.zeros(0, np.uint16), list[np.ndarray]()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, words: Sequence[int] | np.ndarray) -> None:
        """Integers, of which the low bits are sent."""
        self._later.append(np.asarray(words, np.int64).astype(np.uint16))
        self._length += len(words)

    def first(self, most: int) -> np.ndarray:
        """The next words, uint16; they stay until they are dropped."""
        if self._later:
            self._words = np.concatenate([self._words, *self._later])
            self._later.clear()
        return self._words[:most]

    def drop(self, words: int) -> None:
        """They have left; no more than `first` has shown."""
        self._words = self._words[words:]
        self._length -= words
