"""The walk through an instance as a browser shows it: somebody clicks through."""

from __future__ import annotations

from pathlib import Path

import pytest

from amphw.host.report import write_report
from amphw.page.walk.section import Firing, Frame, Walked, Walkthrough
from tests.browser import Browser
from tests.host.test_report import run


def sequence(number: int, length: int, traced: bool = True) -> Walked:
    """A cell that runs `length` times, its loss, and the way back; a frame for each."""
    first = 100 * number

    def frame(k: int, node: str, kind: str, version: int) -> Frame:
        when = (k % 2, 1e6 * number + 10.0 * k, 5.0) if traced else None
        return Frame(first + k, node, kind, version, 3, when)

    firings = [
        Firing(frame(t, "cell", "forward", number), (t,), (t - 1,) if t else ()) for t in range(length)
    ]
    firings.append(Firing(frame(length, "loss", "forward", 0), (), (length - 1,)))
    firings.append(Firing(frame(length + 1, "loss", "backward", 0), (), (length,)))
    for k, t in enumerate(reversed(range(length))):
        firings.append(Firing(frame(length + 2 + k, "cell", "backward", number + 2), (t,), (length + 1 + k,)))
    return Walked(number, "train", 0.5 * number, firings)


def report(folder: Path, *instances: Walked) -> Path:
    shown = Walkthrough({"cell": ("t",), "loss": ()}, {"cell": "fixed"}, instances)
    write_report(folder / "report.html", "</script> & a title", [run("rnn", 16, 2.0, 0.98)], {}, walk=shown)
    return folder / "report.html"


def click(browser: Browser, name: str) -> None:
    browser.evaluate(f"document.getElementById('walk-{name}').click()")


def step(browser: Browser) -> str:
    found = browser.evaluate("document.querySelector('#walk-step h3').textContent")
    assert isinstance(found, str)
    return found


def told(browser: Browser) -> dict[str, str]:
    """What stands beside the chosen step."""
    names, values = (
        browser.evaluate(f"[...document.querySelectorAll('#walk-step {kind}')].map(e => e.textContent)")
        for kind in ("dt", "dd")
    )
    return dict(zip(names, values, strict=True))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 400])
def test_somebody_clicks_through(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    requests = browser.show(report(tmp_path, *(sequence(n, 2 + n) for n in range(5))), width, dark)
    assert len(requests) == 1, "the page asks for nothing"
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    about = "document.getElementById('walk-about').textContent"
    assert browser.evaluate(about).startswith("Instance 2 (train), 3 of 5: 10 steps, 9 messages")
    assert step(browser) == "Step 1 of 10: cell, forward"
    for _ in range(6):
        click(browser, "next")
    assert step(browser) == "Step 7 of 10: cell, backward"
    now = told(browser)
    assert now["state"] == "t = 3"
    assert now["parameters"] == "version 4, 2 later than its forward step 4 met"
    assert now["frame"] == "number 206, on worker 0 (fixed), with 2 other firings"
    assert now["time"].startswith("began after 60.0 µs, took 5.0 µs, 5.0 µs after its last message")
    assert (now["messages from"], now["messages to"]) == ("6: loss", "8: cell (t = 2)")
    browser.evaluate("document.querySelector('#walk-step a').click()")
    assert step(browser) == "Step 6 of 10: loss, backward"
    click(browser, "back")
    click(browser, "back")
    assert step(browser) == "Step 4 of 10: cell, forward"
    click(browser, "after")
    assert browser.evaluate(about).startswith("Instance 3 (train), 4 of 5")
    assert step(browser) == "Step 1 of 12: cell, forward"
    boxes = "document.querySelectorAll('#walk-chart rect[data-step]')"
    assert browser.evaluate(f"{boxes}.length") == 12
    browser.evaluate(f"{boxes}[4].dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
    assert step(browser) == "Step 5 of 12: cell, forward"


def test_instances_are_found_by_number_by_length_and_by_loss(browser: Browser, tmp_path: Path) -> None:
    page = report(tmp_path, sequence(0, 2), sequence(1, 9), sequence(2, 3), sequence(3, 4))
    browser.show(page, 1280, False)

    def after(id: str, value: str) -> str:
        browser.evaluate(
            f"(() => {{const e = document.getElementById('walk-{id}'); e.value = '{value}';"
            " e.dispatchEvent(new Event('change'))})()"
        )
        found = browser.evaluate("document.getElementById('walk-number').value")
        assert isinstance(found, str)
        return found

    assert after("number", "3") == "3"
    assert after("number", "1") == "1"
    assert after("order", "longest") == "1"
    assert after("order", "loss") == "3"
    assert after("order", "pumped") == "3"


def test_keys_and_the_axis(browser: Browser, tmp_path: Path) -> None:
    browser.show(report(tmp_path, sequence(0, 4)), 1280, False)
    browser.evaluate(
        "document.querySelector('.walk').dispatchEvent("
        "new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}))"
    )
    assert step(browser) == "Step 2 of 10: cell, forward"
    width = "Number(document.getElementById('walk-chart').getAttribute('width'))"
    before = browser.evaluate(width)
    click(browser, "wider")
    assert browser.evaluate(width) > 1.5 * before
    assert browser.evaluate("document.documentElement.scrollWidth") == 1280


def test_what_was_not_traced_is_shown_in_the_order_of_its_steps(browser: Browser, tmp_path: Path) -> None:
    browser.show(report(tmp_path, sequence(0, 2, traced=False)), 1280, False)
    click(browser, "next")
    assert told(browser)["frame"] == "number 1, not traced (fixed), with 2 other firings"
    assert "time" not in told(browser)
    assert browser.evaluate("document.querySelectorAll('#walk-chart rect[data-step]').length") == 6
