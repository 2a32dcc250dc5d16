"""Medians, spread and ratios."""

from __future__ import annotations

import pytest

from amphw.bench.figures import Figure, paired, ratio


def test_a_figure_is_the_median_with_its_spread() -> None:
    figure = Figure.of([3.0, 1.0, 2.0, 10.0])
    assert figure is not None
    assert (figure.median, figure.low, figure.high) == (2.5, 1.0, 10.0)
    assert figure.spread == pytest.approx(3.6)
    assert figure.to_json() == {
        "median": 2.5,
        "low": 1.0,
        "high": 10.0,
        "rounds": (3.0, 1.0, 2.0, 10.0),
        "spread": pytest.approx(3.6),
    }


def test_nothing_measured_is_no_figure() -> None:
    assert Figure.of([]) is None
    some = Figure.of([1.0])
    assert ratio(some, None) is None and ratio(None, some) is None
    assert paired(some, None) is None


def test_a_ratio_is_that_of_the_medians_and_of_each_round() -> None:
    ours, theirs = Figure.of([2.0, 4.0, 6.0]), Figure.of([1.0, 4.0, 2.0])
    assert ratio(ours, theirs) == 2.0
    rounds = paired(ours, theirs)
    assert rounds is not None and rounds.rounds == (2.0, 1.0, 3.0)


def test_rounds_that_do_not_correspond_are_not_paired() -> None:
    assert paired(Figure.of([1.0, 2.0]), Figure.of([1.0])) is None
