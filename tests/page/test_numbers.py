"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest

from amphw.page.numbers import bits, duration, number, percent, seconds, size


def test_numbers() -> None:
    assert [number(x) for x in (0, 0.123456, 12.345678, 1234.5, 1e6)] == [
        *("0", "0.1235", "12.35", "1,234", "1,000,000")
    ]
    assert number(None) == number(math.nan) == number(math.inf) == "n/a"
    assert number(math.nan, "–") == "–"


def test_units() -> None:
    assert (percent(0.256), percent(None)) == ("26%", "n/a")
    assert (seconds(1.5e-6), seconds(1e-12), seconds(0.0)) == ("1.5 us", "< 1 ns", "0")
    assert (size(2e6), size(0)) == ("2 MB", "0")
    assert (bits(1.25e9), bits(0.0), bits(None)) == ("1.25 Gb/s", "0", "n/a")


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0.0, "0 s"), (0.0412, "0.041 s"), (9.9, "9.9 s"), (12.4, "12 s"), (89, "89 s"), (90, "2 min"),
        (5000, "83 min"), (5400, "1:30 h"), (36300, "10:05 h"), (math.nan, "n/a"),
    ],
)  # fmt: skip
def test_durations(time: float, text: str) -> None:
    assert duration(time) == text
