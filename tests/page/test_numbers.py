"""Numbers as people read them."""

from __future__ import annotations

import math

from amphw.page.numbers import bits, number, percent, seconds, size


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
