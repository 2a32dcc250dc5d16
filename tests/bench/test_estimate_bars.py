"""What the benchmark of simulated throughputs says of the order of settings."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.estimate_bars import correlation, pairs


def row(keys: int, simulated: float, *rounds: float) -> dict[str, Any]:
    return {
        "max_active_keys": keys,
        "measured": {"rounds": rounds},
        "simulation": {"instances_per_s": simulated},
    }


def test_settings_that_every_round_tells_apart_have_an_order() -> None:
    """Whatever the machine does from one round to the next."""
    machine = (50.0, 100.0, 200.0, 60.0, 70.0)
    slow, fast = row(1, 90.0, *machine), row(4, 100.0, *(1.2 * rate for rate in machine))
    (pair,) = pairs([slow, fast])
    assert pair.keys == (1, 4) and not pair.tie and not pair.swapped
    assert pair.rounds == pytest.approx([5 / 6] * 5) and pair.simulated == pytest.approx(0.9)
    assert "measured -16.7% (-16.7% to -16.7%), simulated -10.0%" in str(pair)
    (pair,) = pairs([slow | {"simulation": {"instances_per_s": 110.0}}, fast])
    assert pair.swapped and not pair.tie and "SWAPPED" in str(pair)


def test_settings_that_win_by_turns_are_a_tie() -> None:
    one, other = row(16, 110.0, *[100.0] * 5), row(64, 100.0, 90.0, 95.0, 95.0, 110.0, 90.0)
    (pair,) = pairs([one, other])
    assert pair.tie and "a tie" in str(pair)


@pytest.mark.parametrize(
    ("wins", "rounds", "tie"), [(4, 4, True), (5, 5, False), (7, 9, True), (8, 9, False)]
)
def test_how_many_rounds_must_agree(wins: int, rounds: int, tie: bool) -> None:
    other = [90.0] * wins + [110.0] * (rounds - wins)
    (pair,) = pairs([row(1, 1.0, *[100.0] * rounds), row(4, 1.0, *other)])
    assert pair.tie == tie


def test_rank_correlation_counts_pairs() -> None:
    rows = [row(1, 3.0, 1.0, 1.0), row(4, 2.0, 2.0, 2.0), row(16, 4.0, 3.0, 3.0)]
    assert correlation(pairs(rows)) == pytest.approx(1 / 3)
