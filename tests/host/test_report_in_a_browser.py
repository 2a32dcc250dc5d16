"""A run's report as a browser shows it: wide and narrow, light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from amphw.host.plots import comparison, convergence, gantt
from amphw.host.report import narrow, write_report
from tests.browser import Browser
from tests.host.test_plots import history, pieces, summary
from tests.host.test_report import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    names = {"Convergence": "convergence.svg", "Workers": "gantt.svg", "Runs": "comparison.svg"}
    files = {caption: root / name for caption, name in names.items()}
    for narrowed in (False, True):
        at = {caption: narrow(file) if narrowed else file for caption, file in files.items()}
        convergence({"rnn": history(0.5)}, at["Convergence"], 0.9, "accuracy", narrow=narrowed)
        gantt(pieces(), at["Workers"], "rnn on cpu", narrow=narrowed)
        runs = {"max_active_keys 1": summary(0.5), "max_active_keys 16": summary(1.0, reached=False)}
        comparison(runs, at["Runs"], narrow=narrowed)
    one = run("rnn", 16, 2.0, 0.98)
    one.environment["command"] = "amphw train rnn --out " + "a-long-folder-without-a-gap" * 5
    write_report(root / "report.html", "rnn on cpu", [one], files)
    return root


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "drawn"), [(1280, 1056), (400, 499)])
def test_plots_fit_the_screen(browser: Browser, folder: Path, width: int, drawn: int, dark: bool) -> None:
    """drawn: pixels that the plot for this screen is wide, before it is fitted."""
    browser.show(folder / "report.html", width, dark)
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    images = browser.evaluate(
        "[...document.images].map(i => [i.naturalWidth, i.getBoundingClientRect().width,"
        " i.parentElement.closest('.card').scrollWidth <= i.parentElement.closest('.card').clientWidth])"
    )
    assert len(images) == 3
    for natural, shown, fits in images:
        assert abs(natural - drawn) <= 2 and shown <= width and fits


@pytest.mark.parametrize("width", [1280, 400])
def test_a_comparison_of_runs_fits_the_screen(browser: Browser, tmp_path: Path, width: int) -> None:
    valid = {"loss": 0.0123, "accuracy": 0.9876}
    runs = [run(f"max_active_keys {k}", k, 2.0, 0.98, valid=valid, counted="sequences") for k in (1, 16)]
    write_report(tmp_path / "report.html", "compared", runs, {})
    browser.show(tmp_path / "report.html", width, False)
    table = "document.querySelector('table.runs').parentElement"
    assert browser.evaluate(f"{table}.scrollWidth <= {table}.clientWidth")
    assert browser.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize(("dark", "ink"), [(False, "rgb(27, 31, 36)"), (True, "rgb(230, 233, 237)")])
@pytest.mark.parametrize("name", ["convergence.svg", "gantt-narrow.svg"])
def test_a_plots_ink_follows_the_scheme(
    browser: Browser, folder: Path, name: str, dark: bool, ink: str
) -> None:
    browser.show(folder / name, 1280, dark)
    colours = browser.evaluate("[...document.querySelectorAll('text')].map(t => getComputedStyle(t).fill)")
    assert colours.count(ink) > 5
    assert set(colours) <= {ink, "rgb(0, 0, 0)", "rgb(255, 255, 255)"}  # the others stand on bars


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("convergence-narrow.svg", {"rnn", "target 0.9"}),
        ("gantt-narrow.svg", {"forward", "backward"}),
        ("comparison-narrow.svg", {"6 (not met)", "throughput (instances/s)"}),
    ],
)
def test_legends_and_values_of_a_plot_for_a_phone_are_seen(
    browser: Browser, folder: Path, name: str, says: set[str]
) -> None:
    browser.show(folder / name, 400, False)
    inside = browser.evaluate(
        "(() => {const s = document.documentElement.getBoundingClientRect();"
        " return [...document.querySelectorAll('text')].filter(t => {const r = t.getBoundingClientRect();"
        " return r.left >= s.left && r.right <= s.right && r.top >= s.top && r.bottom <= s.bottom})"
        ".map(t => t.textContent.trim())})()"
    )
    assert says <= set(inside)
