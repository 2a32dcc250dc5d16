"""The picture of magnitudes: what is coloured how, and that nothing is cut off."""

from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.image import imread

from amphw.rtl.fixed.meters import Meter
from amphw.rtl.fixed.picture import draw
from amphw.rtl.numbers.formats import Format

HELD, SATURATES, VANISHES = (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0xE6, 0x9F, 0x00)
LEGEND = 700
"""Pixels: a patch of the legend has fewer, a bar more."""


def drawn(meter: Meter) -> np.ndarray:
    """Bytes [height, width, 3]."""
    png = imread(io.BytesIO(draw([meter], "title")), format="png")
    return np.rint(png[:, :, :3] * 255).astype(int)


def coloured(picture: np.ndarray) -> set[tuple[int, int, int]]:
    """The colours that bars have."""
    return {c for c in (HELD, SATURATES, VANISHES) if (picture == c).all(axis=2).sum() > LEGEND}


@pytest.mark.parametrize(
    "steps, colours",
    [
        (0.25, {VANISHES}),
        (0.75, {HELD}),  # less than a step, but it becomes one
        (3.0, {HELD}),
        (40000.0, {SATURATES}),
        (-32768.0, {HELD}),  # the least number of the format
    ],
)
def test_a_number_is_coloured_by_what_becomes_of_it(steps: float, colours: set) -> None:
    m = Meter("n", "t", "value", Format(12))
    m(np.array([[round(steps * 16)]]), 4)
    assert coloured(drawn(m)) == colours


def test_a_power_of_two_is_coloured_by_shares() -> None:
    m = Meter("n", "t", "value", Format(12))
    m(np.array([[8, 9]]), 4)  # half a step, and more
    assert coloured(drawn(m)) == {HELD, VANISHES}


def test_what_saturated_on_the_way_is_seen() -> None:
    m = Meter("n", "summed gradient W", "sum", Format(26, 32))
    m.add_saturated(np.array([1 << 32]))
    assert coloured(drawn(m)) == {SATURATES}


def test_no_label_touches_the_edge() -> None:
    m = Meter("a node with a long name", "backward affine_t with a long name", "value", Format(12))
    m(np.array([[1, 1 << 30]]), 4)
    picture = drawn(m)
    for edge in (picture[:, :12], picture[:, -12:], picture[:6], picture[-6:]):
        assert (edge == 255).all()
