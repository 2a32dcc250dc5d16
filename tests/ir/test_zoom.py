"""Drawings in pages: a picture without scripts; with them, mouse, fingers and keys move and zoom."""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ET
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from amphw.frontend import Floats, Int, Linear, Record, classify, compile, constant, fold, relu
from amphw.frontend import Sequence as Items
from amphw.ir.draw import to_svg
from amphw.ir.graph import Graph
from amphw.ir.zoom import framed, zoomable
from amphw.page.html import document
from tests.browser import Browser
from tests.ir.graphs import counting_loop


def large() -> Graph:
    """Six loops over a sequence, one after another: well over 60 nodes."""
    layers = [Linear(12) for _ in range(6)]
    top = Linear(3)

    def six_loops(x: Any) -> None:
        h = constant(12)
        for layer in layers:
            h = fold(lambda state, item, layer=layer: relu(layer(state, item)) + state, h, x.items)
        classify(top(h), x.label)

    return compile(six_loops, Record(items=Items(Floats(4), most=9), label=Int(3))).graph


def picture(markup: str) -> str:
    found = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', markup)
    assert found
    return b64decode(found[1]).decode()


def test_without_scripts_it_is_the_plain_drawing() -> None:
    graph = counting_loop()
    markup = graph._repr_html_()
    assert picture(markup) == to_svg(graph)
    plain = re.sub(r"<(script|style)>.*?</\1>", "", markup, flags=re.DOTALL)
    assert re.sub(r'"data:[^"]+"', '""', plain).count("<") == 3  # a box, the picture in it, and its end
    assert "http" not in markup.replace("http://www.w3.org/2000/svg", "")


def test_marimo_is_given_a_frame() -> None:
    kind, markup = counting_loop()._mime_()
    inside = re.search(r'<iframe srcdoc="([^"]*)"', markup)
    assert kind == "text/html" and inside
    whole = zoomable(to_svg(counting_loop()), fill=True)
    assert html.unescape(inside[1]) == whole and markup == framed(whole)


def test_regions_titles_keep_clear_of_lines() -> None:
    root = ET.fromstring(to_svg(large()))
    titles = [e for e in root.iter() if e.get("class") == "faint title"]
    assert len(titles) == 6
    assert all(float(e.attrib["data-room"]) > 0 for e in titles)


@pytest.fixture
def shown(browser: Browser, tmp_path: Path) -> Browser:
    graph = large()
    assert len(graph.nodes) > 60
    page = tmp_path / "graph.html"
    page.write_text(document("six loops", [zoomable(to_svg(graph)), "<p>below</p>"]))
    asked = browser.show(page, 400, dark=True)
    assert [address for address in asked if not address.startswith("data:")] == [page.as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= 400
    browser.show(page, 1280, dark=False)
    return browser


def view(browser: Browser) -> list[float]:
    """x, y, width and height of what is seen, in the drawing's units."""
    found = browser.evaluate("document.querySelector('.view > svg').getAttribute('viewBox')")
    return [float(each) for each in found.split()]


def press(browser: Browser, *keys: str) -> None:
    browser.evaluate("document.querySelector('.view').focus()")
    for key in keys:
        browser.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        browser.call("Input.dispatchKeyEvent", type="keyUp", key=key)


def mouse(browser: Browser, kind: str, x: float, y: float, **more: Any) -> None:
    browser.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **more)


def test_what_it_begins_with_can_be_read(shown: Browser) -> None:
    script = "document.querySelector('.view .label text').getBoundingClientRect().height"
    assert shown.evaluate(script) >= 9
    script = "document.querySelector('.view .node').getBoundingClientRect().left"
    assert 0 <= shown.evaluate(script) <= 1280


def test_keys_move_and_zoom(shown: Browser) -> None:
    began = view(shown)
    press(shown, "+")
    assert view(shown)[2] == pytest.approx(began[2] / 1.25)
    press(shown, "-", "ArrowDown")
    assert view(shown)[1] > began[1] and view(shown)[2] == pytest.approx(began[2])
    press(shown, "0")
    x, y, width, height = view(shown)
    size = shown.evaluate("document.querySelector('.map').getAttribute('viewBox')").split()
    assert x <= 0 and y <= 0 and x + width >= float(size[2]) and y + height >= float(size[3])
    assert shown.evaluate("getComputedStyle(document.querySelector('.map')).display") == "none"
    press(shown, "1")
    assert view(shown)[2] == shown.evaluate("document.querySelector('.view').clientWidth")


def test_the_wheel_zooms_only_where_the_drawing_was_clicked_on(shown: Browser) -> None:
    began = view(shown)
    wheel = {"deltaX": 0, "deltaY": -100}
    mouse(shown, "Wheel", 600, 200, **wheel)
    assert view(shown) == began
    press(shown)
    mouse(shown, "Wheel", 600, 200, **wheel)
    assert view(shown)[2] < began[2]


def test_dragging_moves_and_is_no_click(shown: Browser) -> None:
    began = view(shown)
    mouse(shown, "Pressed", 600, 400, button="left", clickCount=1)
    mouse(shown, "Moved", 600, 300, button="left", buttons=1)
    mouse(shown, "Released", 600, 300, button="left", clickCount=1)
    assert view(shown)[1] == pytest.approx(began[1] + 100 * began[2] / 1138, rel=0.01)
    assert shown.evaluate("document.querySelectorAll('.view .some').length") == 0


def test_two_fingers_zoom(shown: Browser) -> None:
    began = view(shown)
    for kind, apart in (("Start", 100), ("Move", 150), ("Move", 200)):
        points = [{"x": 600 - apart / 2, "y": 300, "id": 0}, {"x": 600 + apart / 2, "y": 300, "id": 1}]
        shown.call("Input.dispatchTouchEvent", type=f"touch{kind}", touchPoints=points)
    shown.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    assert view(shown)[2] == pytest.approx(began[2] / 2, rel=0.05)


def test_a_node_is_shown_with_what_it_is_connected_to(shown: Browser) -> None:
    press(shown, "n")
    told = shown.evaluate("document.querySelector('.said').textContent")
    node, on = (
        shown.evaluate(script)
        for script in (
            "document.querySelector('.view .node').dataset.node",
            "[...document.querySelectorAll('.view .node.on')].map(each => each.dataset.node)",
        )
    )
    assert node in told and node in on and len(on) < 6
    assert all(each in told for each in on)
    press(shown, "Escape")
    assert "zoom" in shown.evaluate("document.querySelector('.said').textContent")


def test_two_drawings_on_a_page_have_heads_of_their_own(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "two.html"
    page.write_text(document("two", [counting_loop()._repr_html_(), counting_loop()._repr_html_()]))
    browser.show(page, 900, dark=True)
    ids = browser.evaluate("[...document.querySelectorAll('marker')].map(each => each.id)")
    assert len(ids) == 4 == len(set(ids))
    used = browser.evaluate(
        "[...document.querySelectorAll('.view path[marker-end]')].map(e => e.getAttribute('marker-end'))"
    )
    assert {each[5:-1] for each in used} == set(ids)
