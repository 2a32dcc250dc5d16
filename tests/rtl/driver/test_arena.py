"""Pieces of memory: never two at one place, and all of them again once they are given back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amphw.rtl.driver.arena import Arena


@given(sizes=st.lists(st.integers(0, 20), max_size=30), order=st.randoms(use_true_random=False))
def test_pieces_do_not_overlap(sizes: list[int], order: object) -> None:
    arena, held = Arena(5, 105), []
    for size in sizes:
        if held and order.random() < 0.4:  # type: ignore[attr-defined]
            arena.give(*held.pop(order.randrange(len(held))))  # type: ignore[attr-defined]
        at = arena.take(size)
        if at is not None:
            assert 5 <= at and at + size <= 105
            assert all(at + size <= a or a + n <= at for a, n in held if n and size)
            held.append((at, size))
        else:
            assert size > 0
        assert arena.left == 100 - sum(n for _, n in held)
    for piece in held:
        arena.give(*piece)
    assert arena.take(100) == 5


def test_a_piece_that_does_not_fit_waits() -> None:
    arena = Arena(0, 10)
    first, second = arena.take(6), arena.take(4)
    assert (first, second, arena.take(1)) == (0, 6, None)
    arena.give(0, 6)
    assert arena.take(7) is None
    assert arena.take(6) == 0
