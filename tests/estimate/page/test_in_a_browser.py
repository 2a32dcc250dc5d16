"""The pages as a browser shows them: wide and narrow, light and dark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from amphw.cpu_runtime import planes
from amphw.estimate.outcome import Outcome
from amphw.estimate.page.report import estimate_page
from tests.browser import Browser
from tests.daily import daily
from tests.estimate.page.outcomes import LINKED, idle, outcome
from tests.estimate.page.test_map import full

pytestmark = [
    pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built"),
]

PAGES: dict[str, Callable[[], Outcome]] = {
    "one device": lambda: outcome([16, 16], replace(LINKED, devices=1)),
    "four devices": lambda: outcome([16, 24, 8, 4]),
    "a link that limits": lambda: outcome([16, 24, 8], replace(LINKED, bandwidth=1e6, memory=1e5)),
    "thirteen nodes, one of which never fires": lambda: idle([4 + k for k in range(12)], "layer5"),
    "replicas": lambda: outcome([16, 24, 8, 4, 12, 8], replicas=2),
    "twenty devices, all of which exchange": lambda: full(20),
}

LOOK = """
(() => {
  const shown = e => e.checkVisibility({visibilityProperty: true}) && e.getBoundingClientRect().width > 0;
  const texts = [...document.body.querySelectorAll('*')].filter(e => shown(e) &&
    [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim()));
  const parse = c => { const v = c.match(/[\\d.]+/g).map(Number); return v.length < 4 ? [...v, 1] : v; };
  const light = c => { const v = c.slice(0, 3).map(x => x / 255).map(
    x => x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
    return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
  const behind = e => {
    if (e.closest('svg')) {  // the last filled shape below the middle of the text
      const b = e.getBoundingClientRect(), x = b.x + b.width / 2, y = b.y + b.height / 2;
      const below = [...e.closest('svg').querySelectorAll('rect')].filter(r => {
        const s = r.getBoundingClientRect();
        return s.left < x && x < s.right && s.top < y && y < s.bottom; });
      if (below.length) return parse(getComputedStyle(below.at(-1)).fill);
    }
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c[3] > 0) return c;
    }
    return [255, 255, 255, 1];
  };
  const contrast = e => {
    const style = getComputedStyle(e);
    const a = light(parse(e.closest('svg') ? style.fill : style.color)), b = light(behind(e));
    return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  };
  const overlaps = [], outside = [];
  for (const svg of document.querySelectorAll('svg')) {
    if (!shown(svg)) continue;
    const frame = svg.getBoundingClientRect();
    const labels = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
    labels.forEach(([a, p], k) => {
      if (p.left < frame.left - 1 || p.right > frame.right + 1 || p.top < frame.top - 1 ||
          p.bottom > frame.bottom + 1) outside.push(a);
      for (const [b, q] of labels.slice(k + 1))
        if (Math.min(p.right, q.right) - Math.max(p.left, q.left) > 1 &&
            Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 3) overlaps.push([a, b]);
    });
  }
  return {
    width: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    small: texts.filter(e => parseFloat(getComputedStyle(e).fontSize) < 11).map(e => e.textContent),
    faint: texts.filter(e => contrast(e) < 4.5).map(e => [e.textContent, contrast(e)]),
    overlaps, outside, texts: texts.length, page: getComputedStyle(document.body).backgroundColor,
    cut: [...document.querySelectorAll('.scroll')].filter(e => e.querySelector('table') && shown(e) &&
      e.scrollWidth > e.clientWidth).map(e => e.querySelector('th').textContent),
    legends: [...document.querySelectorAll('.legend')].map(e =>
      [...e.querySelectorAll('.key')].map(key => getComputedStyle(key).backgroundColor)),
    drawings: [...document.querySelectorAll('svg')].filter(shown).length,
  };
})()
"""


@pytest.fixture(scope="module", params=PAGES)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("pages") / "report.html"
    file.write_text(estimate_page(PAGES[request.param]()), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("width", "dark"),
    daily([(1280, False), (400, True)], [(1280, True), (400, False)]),
    ids=("wide-light", "narrow-dark", "wide-dark", "narrow-light"),
)
def test_it_is_legible_and_alone(browser: Browser, page: Path, width: int, dark: bool) -> None:
    assert browser.show(page, width, dark) == [page.as_uri()]
    found = browser.evaluate(LOOK)
    assert found["width"] <= 0, "the page scrolls sideways"
    assert found["texts"] > 100 and found["drawings"] == 3
    assert (found["page"] == "rgb(255, 255, 255)") is not dark
    assert found["small"] == [] and found["faint"] == []
    assert found["overlaps"] == [] and found["outside"] == []
    assert width < 1280 or found["cut"] == [], "tables that are wider than the page"
    assert found["legends"] and all(len(set(own)) == len(own) for own in found["legends"])


def test_the_look_finds_what_is_wrong(browser: Browser, tmp_path: Path) -> None:
    """The check above is worth what it can see."""
    file = tmp_path / "bad.html"
    file.write_text(
        """<body style="background:#fff"><div style="width:3000px">wide</div>
        <p style="font-size:9px">small</p><p style="color:#aaa">faint</p><img src="there.png">
        <svg width="100" height="50"><rect width="100" height="50" fill="#333"/>
        <text x="5" y="20" fill="#fff">one label</text><text x="20" y="22" fill="#444">another</text>
        <text x="80" y="45" fill="#000">outside</text></svg>
        <div class="scroll" style="width:200px;overflow-x:auto"><table style="width:300px">
        <tr><th>cut</th></tr></table></div><p class="legend"><i class="key"></i><i class="key"></i></p>"""
    )
    asked = browser.show(file, 400, False)
    assert asked == [file.as_uri(), (tmp_path / "there.png").as_uri()]
    found = browser.evaluate(LOOK)
    assert found["width"] > 0 and found["small"] == ["small"]
    assert found["cut"] == ["cut"] and len(set(found["legends"][0])) == 1
    assert [words for words, _ in found["faint"]] == ["faint", "another"]
    assert found["overlaps"] == [["one label", "another"]] and found["outside"] == ["outside"]
