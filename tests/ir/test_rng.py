"""The generator against its published vectors; masks depend on the state alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.ir.expr import ROW, Attr, Field
from amphw.ir.functions import dropout
from amphw.ir.primitives import RowContext
from amphw.ir.program import trace
from amphw.ir.rng import chain, philox2x32, uniform


@pytest.mark.parametrize(
    ("counter", "key", "wanted"),
    [
        # kat_vectors of the Random123 distribution, philox2x32 with 10 rounds
        ((0x00000000, 0x00000000), 0x00000000, (0xFF1DAE59, 0x6CD10DF2)),
        ((0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFF, (0x2C3F628B, 0xAB4FD7AD)),
        ((0x243F6A88, 0x85A308D3), 0x13198A2E, (0xDD7CE038, 0xF62A4C12)),
    ],
)
def test_known_answers(counter: tuple[int, int], key: int, wanted: tuple[int, int]) -> None:
    low, high = philox2x32(np.array([counter[0]]), np.array([counter[1]]), key)
    assert (int(low[0]), int(high[0])) == wanted
    low, high = philox2x32(np.array([counter[0]]), np.array([counter[1]]), np.array([key], np.uint64))
    assert (int(low[0]), int(high[0])) == wanted


def test_the_counter_is_permuted() -> None:
    """A keyed bijection: different counters never give the same pair."""
    n = np.arange(4096)
    low, high = philox2x32(n, n // 7, 3)
    pairs = set(zip(low.tolist(), high.tolist(), strict=True))
    assert len(pairs) == len({(int(a), int(a) // 7) for a in n})


@given(st.lists(st.tuples(st.integers(-5, 2**40), st.integers(0, 9)), min_size=1, max_size=8), st.data())
def test_rows_do_not_depend_on_their_order_or_company(
    rows: list[tuple[int, int]], data: st.DataObject
) -> None:
    seed = data.draw(st.integers(-3, 2**33))
    order = data.draw(st.permutations(range(len(rows))))
    words = [np.array(column) for column in zip(*rows, strict=True)]
    together = uniform(words, seed, len(rows), 5)
    shuffled = uniform([w[order] for w in words], seed, len(rows), 5)
    assert np.array_equal(shuffled, together[order])
    alone = uniform([w[:1] for w in words], seed, 1, 5)
    assert np.array_equal(alone, together[:1])


def test_uniform_numbers_are_uniform() -> None:
    u = uniform([np.arange(400)], 1, 400, 50)
    assert u.dtype == np.float32 and u.min() >= 0.0 and u.max() < 1.0
    counts, _ = np.histogram(u, bins=20, range=(0.0, 1.0))
    # 1000 a bin, standard deviation 31
    assert abs(counts - 1000).max() < 160
    assert abs(np.corrcoef(u[:, 0], u[:, 1])[0, 1]) < 0.2


def test_words_and_seeds_matter() -> None:
    one, two = np.array([1, 1]), np.array([2, 2])
    assert chain([one, two], 0, 2)[0] != chain([two, one], 0, 2)[0]
    assert chain([one], 0, 2)[0] != chain([one], 1, 2)[0]
    assert chain([], 5, 3).tolist() == [0, 0, 0]


def test_dropout_does_not_depend_on_the_frame() -> None:
    """Two messages in one frame, or one at a time, in either order: each row keeps its mask."""
    keys = [Attr("instance"), Field("t")]
    program = trace(lambda x: dropout(x, 0.5, keys, seed=9), {"x": 64})
    assert [e for e, _ in program.ints] == [*keys, ROW]
    x = np.ones((5, 64), np.float32)  # message 0 has 2 rows, message 1 has 3
    instance, t, row = np.array([4, 4, 6, 6, 6]), np.array([0, 0, 1, 1, 1]), np.array([0, 1, 0, 1, 2])
    (together,) = program.run(RowContext(2, {"rows": np.array([2, 3])}), [x], [instance, t, row], {})
    for part, count in ((slice(2, 5), 3), (slice(0, 2), 2)):
        ints = [c[part] for c in (instance, t, row)]
        (alone,) = program.run(RowContext(1, {"rows": count}), [x[part]], ints, {})
        assert np.array_equal(alone, together[part])
    assert set(np.unique(together)) == {0.0, 2.0}
    assert not np.array_equal(together[0], together[1])


def test_recurrent_dropout_repeats_its_mask() -> None:
    program = trace(lambda x: dropout(x, 0.5, [Attr("instance")], per_row=False), {"x": 32})
    x = np.ones((2, 32), np.float32)
    (y,) = program.run(RowContext(2, {"rows": 1}), [x], [np.array([3, 3])], {})
    assert np.array_equal(y[0], y[1])
