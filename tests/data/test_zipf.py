"""Generated sentences: words by Zipf's law at every position, and an order that tells what comes next."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.data.zipf import Language, Zipf, dictionary


def shares(words: np.ndarray, vocabulary: int) -> np.ndarray:
    return np.bincount(words, minlength=vocabulary) / len(words)


@pytest.mark.parametrize("position", [0, 1, 5])
def test_words_are_as_frequent_as_zipfs_law_says_at_every_position(position: int) -> None:
    sentences = Language(1000).sentences(20_000, 6, 6, 3)
    found = shares(np.stack(sentences)[:, position], 1000)
    harmonic = sum(1 / k for k in range(1, 1001))
    for k in (0, 1, 9):
        expected = 1 / ((k + 1) * harmonic)
        # Five standard deviations of a share among 20,000.
        assert abs(found[k] - expected) < 5 * (expected / 20_000) ** 0.5


def test_sentences_are_a_function_of_the_seed_and_of_the_lengths_asked_for() -> None:
    language = Language(50)
    first, again, other = (language.sentences(300, 2, 4, seed) for seed in (1, 1, 2))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert any(len(a) != len(b) or (a != b).any() for a, b in zip(first, other, strict=True))
    assert {len(s) for s in first} == {2, 3, 4}
    assert all(s.min() >= 0 and s.max() < 50 for s in first)


@pytest.mark.parametrize(("vocabulary", "classes"), [(12, 3), (5, 8), (40, 1)])
def test_the_conditional_entropy_is_that_of_the_sentences(vocabulary: int, classes: int) -> None:
    language = Language(vocabulary, classes, moods=1)
    words = np.stack(language.sentences(50_000, 5, 5, 1))
    pairs = shares((words[:, :-1] * vocabulary + words[:, 1:]).ravel(), vocabulary**2)
    one = shares(words[:, :-1].ravel(), vocabulary)

    def entropy(p: np.ndarray) -> float:
        return float(-(p[p > 0] * np.log(p[p > 0])).sum())

    assert entropy(one) == pytest.approx(language.entropy, abs=0.01)
    assert entropy(pairs) - entropy(one) == pytest.approx(language.conditional, abs=0.02)


def test_the_order_of_words_tells_much_about_them() -> None:
    language = Language(50_000)
    assert language.entropy == pytest.approx(7.563, abs=1e-3)
    assert language.conditional < language.entropy - 2.5
    assert Language(50_000, classes=1).conditional == pytest.approx(language.entropy)


def test_the_sentences_angle_is_not_told_by_a_single_word() -> None:
    """Without it a word is less certain, so that a model gains by remembering more than the last one."""
    words = np.stack(Language(12, 6, moods=4).sentences(50_000, 5, 5, 1))
    pairs = shares((words[:, :-1] * 12 + words[:, 1:]).ravel(), 144)
    found = float(-(pairs[pairs > 0] * np.log(pairs[pairs > 0])).sum()) - Language(12, 6).entropy
    assert found > Language(12, 6, moods=4).conditional + 0.2


def test_what_is_drawn_is_as_frequent_as_words_are() -> None:
    drawn = Zipf(1000).draw(50_000, np.random.default_rng(1))
    np.testing.assert_allclose(shares(drawn, 1000)[:10], Zipf(1000).probability[:10], rtol=0.15)
    assert Zipf(1000).probability.sum() == pytest.approx(1.0)
    assert drawn.min() == 0 and drawn.max() < 1000


@pytest.mark.parametrize("vocabulary", [1, 15, 1000])
def test_the_dictionary_is_a_permutation_of_words_that_are_about_as_frequent(vocabulary: int) -> None:
    found = dictionary(vocabulary)
    assert sorted(found.tolist()) == list(range(vocabulary))
    assert np.abs(found - np.arange(vocabulary)).max() < 16
    assert vocabulary < 2 or (found != np.arange(vocabulary)).any()


def test_what_makes_no_language_is_refused() -> None:
    with pytest.raises(ValueError, match="^classes is 0, expected an integer of 1 or more$"):
        Language(10, classes=0)
    with pytest.raises(ValueError, match="^a sentence of 3 to 2 words; expected 1 <= least <= most$"):
        Language(10).sentences(1, 3, 2, 0)
