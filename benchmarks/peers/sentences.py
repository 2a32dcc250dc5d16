"""The tagger's sentences, as instances have them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .stored import StoredInstances

WAYS = ("ahead", "back")
"""Directions, the ends of the names of our nodes."""


class Sentence(NamedTuple):
    """word: rows of the embedding, 0 where it is spelled. letters: of spelled words. tag: of each word."""

    word: np.ndarray
    letters: list[np.ndarray]
    tag: np.ndarray


def sentences(stored: StoredInstances) -> list[Sentence]:
    """The sentences of all instances."""
    names = ("words_word", "words_tag", "words_letters", "words_letters_first", "words_letters_length")
    out = []
    for word, tag, letters, first, length in zip(*map(stored.table, names), strict=True):
        spelled = [letters[first[i] : first[i] + length[i]] for i in np.flatnonzero(word == 0)]
        out.append(Sentence(word, spelled, tag))
    return out
