"""Generated sentences over a large vocabulary whose words are as frequent as Zipf's law says.

Word k, counted from 0, has probability p_k = 1 / ((k + 1) H) with H the sum of 1/1 .. 1/vocabulary, so words
are numbered by frequency. All words lie side by side on a circle of length 1, each on an arc of its length,
sorted by *class*; every word is in one of `classes` classes, drawn once and for all. The next word is found
in three steps: a uniform point on the arc of the present word's class, a turn of the circle by an angle, and
a word of the class where that ends, drawn by frequency. A turn leaves the uniform distribution as it is, so
words are distributed as p at every position, and what can be learned lies in their order alone.

A sentence keeps one of `moods` angles, drawn for it. It takes several words to tell which: who has read a
sentence up to here knows more than who reads its last word. `Language.entropy` is that of a word on its own,
`Language.conditional` that of a word whose predecessor is known, and its sentence's angle: no model gets
below it, on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

_GOLDEN = (5**0.5 - 1) / 2  # the share of a circle whose multiples are spread evenly


@dataclass(frozen=True)
class Zipf:
    """Words as frequent as Zipf's law says, and independent of one another."""

    vocabulary: int

    @property
    def probability(self) -> Floats:
        """Of each word [vocabulary]."""
        return _zipf(self.vocabulary)

    def draw(self, count: int, rng: np.random.Generator) -> Words:
        """`count` words; one may come twice."""
        found = np.searchsorted(_cumulated(self.vocabulary), rng.random(count), side="right")
        return found.clip(max=self.vocabulary - 1).astype(np.int32)


@dataclass(frozen=True)
class Language:
    """The process that draws sentences; its classes are those of every run.

    vocabulary: number of words. classes: of words; they tell what may follow. moods: angles of sentences.
    """

    vocabulary: int
    classes: int = 32
    moods: int = 4

    def __post_init__(self) -> None:
        for name in ("vocabulary", "classes", "moods"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected an integer of 1 or more")

    @cached_property
    def probability(self) -> Floats:
        """Of each word [vocabulary]."""
        return Zipf(self.vocabulary).probability

    @cached_property
    def kind(self) -> npt.NDArray[np.int64]:
        """The class of each word [vocabulary]."""
        return np.random.default_rng(0).integers(0, self.classes, self.vocabulary)

    @cached_property
    def angles(self) -> Floats:
        """How far each mood turns the circle [moods]."""
        return np.arange(1, self.moods + 1, dtype=np.float64) * _GOLDEN % 1.0

    @cached_property
    def _order(self) -> npt.NDArray[np.int64]:
        """The words along the circle."""
        return np.argsort(self.kind, kind="stable")

    @cached_property
    def _ends(self) -> Floats:
        """Where the arcs of the words end, along the circle."""
        ends = np.cumsum(self.probability[self._order])
        ends[-1] = 1.0
        return ends

    @cached_property
    def _edges(self) -> Floats:
        """Where the arcs of the classes begin, and where the last one ends [classes + 1]."""
        counts = np.cumsum(np.bincount(self.kind, minlength=self.classes))
        return np.concatenate([[0.0], np.concatenate([[0.0], self._ends])[counts]])

    def sentences(self, count: int, least: int, most: int, seed: int | list[int]) -> list[Words]:
        """`count` sentences of `least` to `most` words, all lengths equally likely; a function of `seed`."""
        if not 1 <= least <= most:
            raise ValueError(f"a sentence of {least} to {most} words; expected 1 <= least <= most")
        rng = np.random.default_rng(seed)
        length = rng.integers(least, most + 1, count)
        angle = self.angles[rng.integers(0, self.moods, count)]
        words = np.empty((count, most), np.int32)
        words[:, 0] = self._at(rng.random(count))
        for t in range(1, most):
            turned = (self._within(self.kind[words[:, t - 1]], rng) + angle) % 1.0
            words[:, t] = self._at(self._within(self._class_at(turned), rng))
        return [row[:n] for row, n in zip(words, length, strict=True)]

    def _at(self, point: Floats) -> npt.NDArray[np.int64]:
        """The words on whose arcs these points of the circle lie."""
        return self._order[np.searchsorted(self._ends, point, side="right").clip(max=self.vocabulary - 1)]

    def _class_at(self, point: Floats) -> npt.NDArray[np.int64]:
        return self.kind[self._at(point)]

    def _within(self, kind: npt.NDArray[np.int64], rng: np.random.Generator) -> Floats:
        """A point on the arc of each of these classes."""
        begin, end = self._edges[kind], self._edges[kind + 1]
        found: Floats = begin + rng.random(len(kind)) * (end - begin)
        return found

    @property
    def entropy(self) -> float:
        """Of a word that nothing is known of, in nats: the loss of the best unigram model."""
        return _entropy(self.probability)

    @cached_property
    def conditional(self) -> float:
        """Of a word behind a known one, in a sentence whose angle is known, in nats."""
        # Of the class, and of the word within it, which hangs on the class alone.
        one = _entropy(np.diff(self._edges))
        pair = float(np.mean([_entropy(self._pairs(angle)) for angle in self.angles]))
        return (pair - one) + (self.entropy - one)

    def _pairs(self, angle: float) -> Floats:
        """The probability that one class follows another [classes^2], under one angle."""
        # Between two cuts, neither the class of a point nor that of the point that it is turned to changes.
        cuts = np.unique(np.concatenate([self._edges, (self._edges - angle) % 1.0, [0.0, 1.0]]))
        middle = (cuts[:-1] + cuts[1:]) / 2
        pair = self._class_at(middle) * self.classes + self._class_at((middle + angle) % 1.0)
        return np.bincount(pair, np.diff(cuts), self.classes**2).astype(np.float64)


@lru_cache(maxsize=4)
def _zipf(vocabulary: int) -> Floats:
    weight = 1.0 / np.arange(1, vocabulary + 1, dtype=np.float64)
    found: Floats = weight / weight.sum()
    return found


@lru_cache(maxsize=4)
def _cumulated(vocabulary: int) -> Floats:
    return np.cumsum(_zipf(vocabulary))


def _entropy(p: Floats) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def dictionary(vocabulary: int, block: int = 16) -> Words:
    """The translation of each word [vocabulary]: a permutation that leaves words about as frequent as they
    are, because it mixes them within blocks of `block` neighbours by frequency."""
    rng = np.random.default_rng(1)
    blocks = [np.arange(at, min(at + block, vocabulary)) for at in range(0, vocabulary, block)]
    return np.concatenate([rng.permutation(each) for each in blocks]).astype(np.int32)
