"""WikiNER: sentences from Wikipedia, each word tagged with what it names: a person, a place, ... or nothing.

Nothman et al. (Artificial Intelligence 194, 2013). A line is a sentence of `word|tag`. To train on there are
10,000 sentences that were tagged automatically, from the links in Wikipedia; to validate on 1,696 that were
tagged by hand (WikiGold, Balasuriya et al. 2009). A tag is O, or I- and the kind of a name; B- in its place
begins a name directly behind another one of its kind, and is rare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

from amphw.data.cache import DataError, DataFile, read_data

KINDS = ("PER", "LOC", "ORG", "MISC")
TAGS = ("O", *(f"I-{kind}" for kind in KINDS), *(f"B-{kind}" for kind in KINDS))

# The files of a course on neural networks for language, at a fixed commit; the data behind them is larger.
_URL = (
    "https://raw.githubusercontent.com/neubig/nn4nlp-code/61abdbda671302ecfb9c94e734d064970582476f/data/tags/"
)
_SHA256 = {
    "train": "16b42ac4ce1a32f3a67580f20106765645ea051cc47f0ab8e2ecdbddf114ca98",
    "dev": "bbbf63da9cc22d347c1c1d72ef35b5fde2fa3ece9c2c048b16dc4285e763e553",
}


class Sentence(NamedTuple):
    """Words, and the tag of each, one of TAGS."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


def wikiner_file(split: Literal["train", "dev"]) -> DataFile:
    """The file of a split."""
    if split not in _SHA256:
        raise ValueError(f"WikiNER has no split {split!r}; it has 'train' and 'dev'")
    return DataFile(f"wikiner/{split}.txt", f"{_URL}{split}.txt", f"sha256:{_SHA256[split]}")


def load_wikiner(split: Literal["train", "dev"]) -> list[Sentence]:
    """The sentences of a split, in the order of the file. Raises DataError if it cannot be had."""
    file = wikiner_file(split)
    return parse_sentences(read_data(file).decode("utf-8"), where=file.name)


def parse_sentences(text: str, where: str) -> list[Sentence]:
    """One sentence a line; empty lines are passed over. Raises DataError naming the line of `where`."""
    sentences = []
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            if line.strip():
                sentences.append(parse_sentence(line))
        except ValueError as error:
            raise DataError(f"{where}, line {number}: {error}.") from error
    return sentences


def parse_sentence(text: str) -> Sentence:
    """`Oslo|I-LOC is|O` -> the sentence. Raises ValueError saying what is wrong."""
    pairs = [token.rpartition("|") for token in text.split()]
    for word, _, tag in pairs:
        if not word:
            raise ValueError(f"'{tag}' has no tag; expected word|tag")
        if tag not in TAGS:
            raise ValueError(f"'{word}' has the tag '{tag}', expected one of {', '.join(TAGS)}")
    return Sentence(tuple(word for word, _, _ in pairs), tuple(tag for _, _, tag in pairs))


def vocabulary(sentences: Iterable[Sentence], size: int, more_than: int) -> dict[str, int]:
    """The words that occur more than `more_than` times, the `size - 1` most frequent of them.

    They are numbered from 1 by frequency (of equals the earlier one first); 0 is left for every other word.
    """
    counted = Counter(word for sentence in sentences for word in sentence.words)
    frequent = [word for word, count in counted.most_common(size - 1) if count > more_than]
    return {word: k for k, word in enumerate(frequent, start=1)}


def alphabet(sentences: Iterable[Sentence], size: int, first: int) -> dict[str, int]:
    """The most frequent characters, numbered from `first` to below `size`."""
    counted = Counter(letter for sentence in sentences for word in sentence.words for letter in word)
    return {letter: k for k, (letter, _) in enumerate(counted.most_common(size - first), start=first)}


# --- generated sentences -------------------------------------------------------------------------

_COMMON = ("the", "a", "in", "from", "and", "was", "is", "with", "old", "new", "came", "saw", "built", "of")
_SYLLABLES = ("ba", "ko", "li", "mer", "no", "ra", "sta", "tu", "vi", "wen")
_ENDINGS = {"PER": ("son", "ov"), "LOC": ("ville", "burg"), "ORG": ("corp", "bank"), "MISC": ("ese", "ish")}
_MAX_SAMPLE_WORDS = 12


def sample_wikiner(n: int, seed: int) -> list[Sentence]:
    """Generated sentences of 1 to 12 words, for use without the data; the same `n` and `seed` give the same.

    **This is not WikiNER** and accuracies on it mean nothing beyond it. Names are made up of syllables, and
    seldom occur twice; what they name shows in how they end. All other words are a dozen frequent ones.
    """
    if n < 0:
        raise ValueError(f"the number of sentences must be 0 or more, got {n}")
    rng = np.random.default_rng(seed)
    return [_sample(rng) for _ in range(n)]


def _sample(rng: np.random.Generator) -> Sentence:
    words, tags = [], []
    for _ in range(int(rng.integers(1, _MAX_SAMPLE_WORDS + 1))):
        if rng.random() < 0.7:
            words.append(_COMMON[int(rng.integers(len(_COMMON)))])
            tags.append("O")
            continue
        kind = KINDS[int(rng.integers(len(KINDS)))]
        parts = [_SYLLABLES[i] for i in rng.integers(0, len(_SYLLABLES), int(rng.integers(1, 4)))]
        ending = _ENDINGS[kind][int(rng.integers(2))]
        words.append("".join((*parts, ending)).capitalize())
        tags.append(f"I-{kind}")
    return Sentence(tuple(words), tuple(tags))
