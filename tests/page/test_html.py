"""Pieces of pages: text is escaped, markup is not, tables are well formed."""

from __future__ import annotations

import re

from amphw.page.html import Markup, document, note, table, text, tiles


def test_text_is_escaped_everywhere() -> None:
    evil = '"><script>&'
    made = document(evil, [note(evil), tiles([(evil, evil, evil)]), table([evil, "x"], [[evil, evil]])])
    assert "<script" not in made
    assert made.count("&quot;&gt;&lt;script&gt;&amp;") == 1 + 1 + 3 + 3


def test_markup_is_not() -> None:
    assert text(Markup("<b>")) == "<b>"
    assert "<td><b>x</b></td>" in table(["a", "b"], [["1", Markup("<b>x</b>")]])


def test_a_row_begins_with_its_heading_and_numbers_stand_to_the_right() -> None:
    made = table(["name", "count", "why"], [["a", "3", "so"]], right=["count"], long=["why"])
    assert '<th scope="row">a</th><td class="number">3</td><td class="long">so</td>' in made
    assert re.findall(r'<th scope="col"[^>]*>(\w+)', made) == ["name", "count", "why"]
    assert "<thead>" not in table((), [["a", "3"]])
