"""Curves by straight lines: how near they are, on every input there is."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.rtl.fixed.curves import FINEST, SEGMENTS, curve
from amphw.rtl.numbers.formats import COARSEST, FormatError

EVERY = np.arange(-(1 << 15), 1 << 15)
TRUE = {"tanh": np.tanh, "sigmoid": lambda x: np.exp(-np.logaddexp(0, -x))}


@pytest.mark.parametrize("name", TRUE)
@pytest.mark.parametrize("frac", range(COARSEST, FINEST + 1))
def test_every_input_is_as_near_as_stated(name: str, frac: int) -> None:
    found = curve(name, frac)
    y = found.evaluate(EVERY)
    true = TRUE[name](EVERY * 2.0**-frac)
    assert np.abs(y * 2.0**-frac - true).max() <= found.error
    assert y.dtype == np.int64
    assert np.all(np.diff(y) >= 0)


@pytest.mark.parametrize("name", TRUE)
@pytest.mark.parametrize("frac", [8, 12, 13, 15])
def test_the_stated_error_is_within_a_step_and_no_excuse(name: str, frac: int) -> None:
    """The bound is less than one step of the format, and inputs come within a factor of two of it."""
    found = curve(name, frac)
    assert 2.0 ** -(frac + 1) < found.error < 2.0**-frac
    assert np.abs(found.evaluate(EVERY) * 2.0**-frac - TRUE[name](EVERY * 2.0**-frac)).max() > found.error / 2


def test_by_hand() -> None:
    """tanh in q4.12 covers all inputs; line 256 starts at 0, line 257 at tanh(1/32)."""
    found = curve("tanh", 12)
    assert (found.limit_int, found.s, len(found.T), len(found.S)) == (32768, 7, SEGMENTS, SEGMENTS)
    start, end = 0, round(float(np.tanh(1 / 32)) * 65536)
    assert (found.T[256], found.S[256]) == (start, end - start)
    # Half way: 1023.5 / 65536 is 63.97 / 4096.
    assert found.evaluate(np.array([64])) == [64]


@pytest.mark.parametrize("name", TRUE)
@pytest.mark.parametrize("frac", range(COARSEST, FINEST + 1))
def test_a_table_fits_the_block_ram(name: str, frac: int) -> None:
    found = curve(name, frac)
    assert all(-(1 << 17) <= word < 1 << 17 for word in (*found.T, *found.S))


def test_flat_beyond_the_limit() -> None:
    found = curve("sigmoid", 8)
    assert found.limit_int == 16 << 8
    assert found.evaluate(np.array([-32768, -(16 << 8), (16 << 8) - 1, 32767])).tolist() == [0, 0, 256, 256]


def test_refusals() -> None:
    with pytest.raises(ValueError, match="no curve 'sine'; there are sigmoid, tanh"):
        curve("sine", 12)
    with pytest.raises(FormatError, match="with 16 bits behind the point: 2 to 15 are possible"):
        curve("tanh", 16)
