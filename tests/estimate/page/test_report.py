"""The page of an estimate: everything is in it, and nothing from outside."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from amphw.cpu_runtime import planes
from amphw.estimate.count.traffic import Spread
from amphw.estimate.outcome import Outcome
from amphw.estimate.page.report import estimate_page
from amphw.estimate.page.sections import FOLDED
from amphw.ir.errors import AmphwError
from tests.estimate.page.outcomes import LINKED, idle, outcome

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")

VOID = {"meta", "br"}


class Page(HTMLParser):
    """Checks that tags nest, and collects headings, texts and attributes."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.headings: list[str] = []
        self.names: set[str] = set()
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h2", "h3"):
            self.headings.append(data)
        if self.open and self.open[-1] not in ("style", "title"):
            self.words.append(data.strip())

    @property
    def text(self) -> str:
        return " | ".join(word for word in self.words if word)


@pytest.fixture(scope="module")
def three() -> Outcome:
    return outcome([16, 16, 4])


def test_all_chapters_are_there(three: Outcome) -> None:
    page = Page(estimate_page(three))
    assert page.headings == [
        "Network",
        "Edges of the model",
        "Roofline",
        "What devices do when",
        "Calculated and played through",
        "Memory of each device",
        "What doubling one thing buys",
        "Other placements",
        "How right such estimates have been",
        "What is assumed",
    ]
    for words in (
        "What limits: ",
        "Estimate: chain on 3 devices",
        "layer0 → layer1.x",
        "device 1 Gop/s",
        "link 1 Gb/s",
        "links of twice the bandwidth",
        "all on one device",
        "the CPU engine",
        "flops | stated | by the test",
    ):
        assert words in page.text, words


def test_a_page_without_comparisons_leaves_them_out() -> None:
    page = Page(estimate_page(outcome([8, 8], compare=False)))
    assert "Other placements" not in page.headings and "What doubling one thing buys" not in page.headings
    assert "Roofline" in page.headings


def test_it_needs_nothing_from_outside(three: Outcome) -> None:
    source = estimate_page(three)
    page = Page(source)
    assert not page.names & {"src", "href", "srcset", "onload", "onclick"}
    assert source.count("http") == source.count('xmlns="http://www.w3.org/2000/svg"')
    for word in ("<script", "@import", "url("):
        assert word not in source
    assert "prefers-color-scheme: dark" in source and 'name="viewport"' in source


def test_names_cannot_break_the_page(three: Outcome) -> None:
    evil = '"><script>alert(1)</script>&'
    nodes = [replace(node, name=evil + node.name) for node in three.per_node]
    where = {node.name: node.devices for node in nodes}
    played = three.played
    assert played is not None and played.timeline is not None
    slices = [replace(each, node=evil + each.node) for each in played.timeline.slices]
    bad = replace(
        three,
        model=evil,
        counted=evil,
        notes=[evil],
        per_node=nodes,
        per_edge=[replace(e, source=evil + e.source, target=evil + e.target) for e in three.per_edge],
        devices=[replace(d, nodes=[evil + name for name in d.nodes]) for d in three.devices],
        origin={evil + name: replace(each, how=evil) for name, each in three.origin.items()},
        placements=[replace(each, name=evil, where=where) for each in three.placements],
        played=replace(played, timeline=replace(played.timeline, slices=slices)),
    )
    source = estimate_page(bad)
    assert "<script" not in source and Page(source).text.count("alert(1)") > 20


def test_what_never_fired_is_named_and_its_links_left_out(three: Outcome) -> None:
    found = idle([16, 16, 4], "layer1")
    page = Page(estimate_page(found))
    assert "Never fired on the 4 instances that are counted: layer1." in page.text
    row = page.text.split("updates behind | ")[1].split("layer2")[0]
    assert row.split("layer1 | ")[1].endswith("| never fired | ") and "no parameters" not in row
    assert "| no parameters | " in page.text  # the loss, which has none, and fires
    unused = len(found.links) - len(found.crossed)
    assert unused == 4 and f"Left out: {unused} links that nothing crosses" in page.text
    other = Page(estimate_page(three))
    assert "Never fired" not in other.text and "nothing crosses on" not in other.text


def test_a_node_has_one_colour_in_all_drawings() -> None:
    """Also where a node before it computes nothing, and so is no point of the roofline."""
    found = outcome([16, 16, 4], compare=False)
    zero = Spread.of([0.0])
    nodes = [
        replace(n, forward=zero, backward=zero, update=0.0) if n.name == "layer0" else n
        for n in found.per_node
    ]
    source = estimate_page(replace(found, per_node=nodes))
    named = {name: style for style, name in re.findall(r'<i class="key (c\d+)"></i>(\w+)</span>', source)}
    points = re.findall(r'<circle [^>]*class="own (c\d+)"/>[^c]*?<text[^>]*>(\w+)</text>', source)
    assert {name for _, name in points} == {"layer1", "layer2", "loss"}
    assert all(named[name] == style for style, name in points)


def test_firings_have_the_names_of_their_nodes(three: Outcome) -> None:
    assert "<title>layer0, forward</title>" in estimate_page(three)


def test_long_tables_are_folded() -> None:
    folded, plain = (estimate_page(outcome([4] * n, compare=False)) for n in (FOLDED, 4))
    assert f"<summary>{FOLDED} rows by device</summary>" in folded and "rows by" not in plain


def test_one_device_has_no_links() -> None:
    page = Page(estimate_page(outcome([8, 8], replace(LINKED, devices=1))))
    assert "nothing crosses" in page.text and "a message waits" not in page.text


def test_links_without_a_limit_have_no_roof() -> None:
    page = Page(estimate_page(outcome([8, 8], replace(LINKED, bandwidth=None))))
    assert "there is no slope" in page.text and "no limit" in page.text


def test_a_page_of_what_was_not_played_through_is_refused(three: Outcome) -> None:
    with pytest.raises(AmphwError, match="played through, with a timeline"):
        estimate_page(replace(three, played=None))
