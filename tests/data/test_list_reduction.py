"""List reduction against a naive reading of its definition."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.data.list_reduction import (
    MAX_TOKENS,
    OPERATIONS,
    VOCABULARY,
    ListReduction,
    batches,
    datasets,
    generate,
    true_result,
)

SEEDS = st.integers(0, 2**32 - 1)


def mean(numbers: list[int]) -> Fraction:
    return Fraction(sum(numbers), len(numbers)) if numbers else Fraction(0)


def naive_label(sequence: list[int]) -> int:
    """The label of `[op, d1 .. dk]`, in fractions."""
    operation, digits = OPERATIONS[sequence[0] - 10], sequence[1:]
    result = {
        "mean": mean(digits),
        "alternate": mean(digits[0::2]) - mean(digits[1::2]),
        "range": Fraction(max(digits) - min(digits)),
        "length": Fraction(len(digits)),
    }[operation]
    return math.floor(result + Fraction(1, 2)) % 10


def sequences(data: ListReduction) -> list[list[int]]:
    return [row[:length].tolist() for row, length in zip(data.tokens, data.lengths, strict=True)]


@given(n=st.integers(0, 60), seed=SEEDS)
def test_labels_follow_the_definition(n: int, seed: int) -> None:
    data = generate(n, seed)
    assert [naive_label(sequence) for sequence in sequences(data)] == data.labels.tolist()


@given(operation=st.sampled_from(OPERATIONS), digits=st.lists(st.integers(0, 9), min_size=1, max_size=9))
def test_the_result_of_one_list_follows_the_definition(operation: str, digits: list[int]) -> None:
    assert true_result(operation, digits) == naive_label([10 + OPERATIONS.index(operation), *digits])


def test_rounding_and_sign() -> None:
    """Every case of rounding occurs: halves below and above zero, thirds, and a negative result modulo 10."""
    data = generate(100_000, 0)
    label_of = {tuple(s): label for s, label in zip(sequences(data), data.labels.tolist(), strict=True)}
    alternate = 10 + OPERATIONS.index("alternate")
    mean_of = 10 + OPERATIONS.index("mean")
    cases = {
        (mean_of, 2, 3): 3,  # 2.5 rounds up, not to even
        (mean_of, 0, 1): 1,  # 0.5
        (alternate, 7): 7,  # nothing to subtract
        (alternate, 0, 9): 1,  # -9
        (alternate, 1, 1, 0): 0,  # -0.5 rounds up
        (alternate, 0, 2, 1): 9,  # -1.5 rounds up to -1
    }
    assert {case: label_of[case] for case in cases} == cases


@given(n=st.integers(1, 60), seed=SEEDS)
def test_form(n: int, seed: int) -> None:
    tokens, lengths, labels = data = generate(n, seed)
    assert (tokens.shape, lengths.shape, labels.shape) == ((n, MAX_TOKENS), (n,), (n,))
    assert {array.dtype for array in data} == {np.dtype(np.int32)}
    assert (tokens[:, 0] >= 10).all()
    assert (tokens[:, 0] < VOCABULARY).all()
    assert ((tokens[:, 1:] >= 0) & (tokens[:, 1:] < 10)).all()
    assert ((lengths >= 2) & (lengths <= MAX_TOKENS)).all()
    assert (tokens[np.arange(MAX_TOKENS) >= lengths[:, None]] == 0).all()
    assert ((labels >= 0) & (labels < 10)).all()


def test_operations_lengths_and_digits_are_uniform() -> None:
    data = generate(90_000, 5)
    digits = np.concatenate([sequence[1:] for sequence in sequences(data)])
    for values, kinds in ((data.tokens[:, 0] - 10, 4), (data.lengths - 2, 9), (digits, 10)):
        counts = np.bincount(values, minlength=kinds)
        expected = len(values) / kinds
        # Five standard deviations of a binomial count.
        assert np.abs(counts - expected).max() < 5 * math.sqrt(expected * (1 - 1 / kinds))


def test_datasets() -> None:
    train, valid = datasets(0)
    assert (len(train.labels), len(valid.labels)) == (100_000, 10_000)
    again, _ = datasets(0)
    np.testing.assert_array_equal(train.tokens, again.tokens)
    assert not np.array_equal(train.tokens[:10_000], valid.tokens)
    assert not np.array_equal(datasets(1)[0].tokens, train.tokens)
    # Ten tokens leave so many sequences that independent streams hardly share one.
    long_train = {tuple(row) for row in train.tokens[train.lengths == 10].tolist()}
    long_valid = {tuple(row) for row in valid.tokens[valid.lengths == 10].tolist()}
    assert len(long_train & long_valid) <= 2


@given(n=st.integers(0, 80), batch=st.integers(1, 9), seed=SEEDS, epoch=st.integers(0, 3))
def test_every_instance_is_in_exactly_one_batch(n: int, batch: int, seed: int, epoch: int) -> None:
    data = generate(n, seed)
    found: Counter[tuple[tuple[int, ...], int]] = Counter()
    short: Counter[int] = Counter()
    for tokens, labels in batches(data, batch, seed, epoch):
        length, width = tokens.shape
        assert labels.shape == (width,)
        assert 1 <= width <= batch
        short[length] += width < batch
        found.update((tuple(column), label) for column, label in zip(tokens.T.tolist(), labels, strict=True))
    assert found == Counter(
        (tuple(s), label) for s, label in zip(sequences(data), data.labels.tolist(), strict=True)
    )
    assert max(short.values(), default=0) <= 1  # the leftovers of a length are one batch


def test_order_is_a_function_of_seed_and_epoch() -> None:
    data = generate(500, 0)

    def order(seed: int, epoch: int) -> list[list[list[int]]]:
        return [tokens.tolist() for tokens, _ in batches(data, 7, seed, epoch)]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)
    lengths = [len(tokens) for tokens in order(1, 0)]
    assert lengths != sorted(lengths)
    assert {len(tokens[0]) for tokens in order(1, 0)} > {7}


def test_every_sequence_may_be_a_batch_of_its_own() -> None:
    data, _ = datasets(0)
    assert len(batches(data, 1, seed=0, epoch=0)) == 100_000


def test_batches_cannot_be_written_to() -> None:
    tokens, labels = batches(generate(5, 0), 2, seed=0, epoch=0)[0]
    for array in (tokens, labels):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"^the number of instances must be 0 or more, got -1$"):
        generate(-1, 0)
    with pytest.raises(ValueError, match=r"^'sum' is no operation; there are mean, alternate, range, "):
        true_result("sum", [1])
    for digits in ([], [0] * 10, [10], [-1]):
        with pytest.raises(ValueError, match=r"^a list holds 1 to 9 digits 0 to 9, got \["):
            true_result("mean", digits)
    with pytest.raises(ValueError, match=r"^the batch size must be 1 or more, got 0$"):
        batches(generate(5, 0), 0, seed=0, epoch=0)
