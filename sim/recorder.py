"""What goes over a link, written down to be played again."""

from __future__ import annotations

from typing import Any

import numpy as np


class Recorder:
    """A link that writes down what goes over another one.

    turns: words that the host sent, each with the number of words that had come until then. came: words that
    came back.
    """

    def __init__(self, link: Any):
        self.link = link
        self.turns: list[tuple[int, list[int]]] = []
        self.came: list[int] = []

    def exchange(self, words: np.ndarray, cycles: int) -> tuple[int, np.ndarray, list[int]]:
        before = len(self.came)
        accepted, came, watched = self.link.exchange(words, cycles)
        if accepted:
            self.turns.append((before, words[:accepted].tolist()))
        self.came += came.tolist()
        return accepted, came, watched

    def close(self) -> None:
        self.link.close()
