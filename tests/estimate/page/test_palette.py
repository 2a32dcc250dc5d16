"""Colours differ, as many as there are, and stand out from the page."""

from __future__ import annotations

import itertools
import re

import pytest

from amphw.estimate.page.palette import CONTRAST, contrast, distance, palette
from amphw.estimate.page.svg import DARK, LIGHT, style

PAGES = {"light": (LIGHT, "#ffffff"), "dark": (DARK, "#14171b")}

FAR = 0.08
"""In Oklab, of which about 0.02 is a difference that is just seen."""


@pytest.mark.parametrize("look", PAGES)
@pytest.mark.parametrize("count", (1, 7, 11, 30))
def test_colours_are_told_apart(look: str, count: int) -> None:
    chosen, page = PAGES[look]
    found = palette(chosen, page, count)
    assert found[: len(chosen)] == chosen[:count] and len(found) == count
    assert all(distance(a, b) > FAR for a, b in itertools.combinations(found, 2))
    assert all(contrast(each, page) >= CONTRAST for each in found)


def test_more_colours_begin_with_fewer() -> None:
    assert palette(LIGHT, "#ffffff", 20)[:12] == palette(LIGHT, "#ffffff", 12)


def test_colours_do_not_repeat_however_many() -> None:
    assert len(set(palette(LIGHT, "#ffffff", 150))) == 150


def test_contrast_and_distance_are_those_of_the_standards() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21) == contrast("#000000", "#ffffff")
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)  # the greyest that text may be
    assert distance("#ffffff", "#000000") == pytest.approx(1.0, abs=1e-6)
    assert distance("#ff0000", "#00ff00") == pytest.approx(0.5197, abs=1e-3)


def test_every_thing_has_a_class_of_its_own() -> None:
    css = style(23)
    assert len(set(re.findall(r"^\.c(\d+) ", css, re.M))) == 23
    for look in css.split("@media (prefers-color-scheme: dark)")[:2]:
        assert len(set(re.findall(r"--c\d+: (#\w{6});", look.split("}")[0]))) == 23
