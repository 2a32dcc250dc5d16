"""The site: it has every page, its search finds every name, and a phone shows it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import amphw
from amphw import frontend
from tests.browser import Browser

ROOT = Path(__file__).parents[2]
PHONE = 400
"""Pixels."""


def test_the_menu_has_every_page() -> None:
    parts = tomllib.loads((ROOT / "website/contents.toml").read_text(encoding="utf-8"))["part"]
    listed = [page for part in parts for page in part["pages"]]
    found = [
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/notebooks/*.ipynb"),
        *ROOT.glob("website/reference/*.md"),
    ]
    assert {str(page.relative_to(ROOT)) for page in found} <= set(listed)
    assert len(listed) == len(set(listed))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx", reason="the extra docs is not installed; make docs installs it")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, ROOT / "website/build.py", folder], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.thorough
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    shown = "".join(page.read_text(encoding="utf-8") for page in (site / "website/reference").glob("*.html"))
    names = [f"amphw.{name}" for name in amphw.__all__]
    names += [f"amphw.frontend.{name}" for name in frontend.__all__]
    assert [name for name in names if f'id="{name}"' not in shown] == []


@pytest.mark.thorough
def test_no_page_is_wider_than_a_phone(site: Path, browser: Browser) -> None:
    pages = [page for page in sorted(site.rglob("*.html")) if "_static" not in page.parts]
    assert len(pages) > 30
    for page in pages:
        browser.show(page, PHONE, False)
        assert browser.evaluate("document.documentElement.scrollWidth") == PHONE, page


@pytest.mark.thorough
def test_the_search_finds_a_page_without_a_server(site: Path, browser: Browser) -> None:
    browser.show(site / "search.html", PHONE, False)
    browser.evaluate("location.search = '?q=TreeLSTMBranch'")
    for _ in range(100):
        found = browser.evaluate("[...document.querySelectorAll('#search-results li a')].map(a => a.href)")
        if found:
            break
        browser.evaluate("new Promise(done => setTimeout(done, 100))")
    assert any("reference/frontend.html" in address for address in found), found
