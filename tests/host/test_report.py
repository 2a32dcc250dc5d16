"""A report is one well-formed, self-contained page that shows the numbers of its runs."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from amphw.host.records import EpochRecord, RunSummary
from amphw.host.report import ReportRun, ReportTable, write_report
from amphw.host.run_folder import RunFolder, RunFolderError

VOID = {"meta", "img", "br", "link", "source"}


class Page(HTMLParser):
    """Checks that tags nest, and collects the text, the table rows and every address."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.addresses: list[str] = []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "title"):
            self.words.append(data.strip())

    @property
    def text(self) -> str:
        return " | ".join(word for word in self.words if word)


def run(label: str, keys: int, seconds: float, accuracy: float, **changes: Any) -> ReportRun:
    history = [
        EpochRecord(
            epoch=epoch,
            instances=7000 * epoch,
            seconds=seconds * epoch,
            train_loss=0.5,
            train={},
            valid={"accuracy": accuracy if epoch == 3 else 0.1},
            instances_per_s=7000 / seconds,
            staleness_p50=1.0,
            staleness_p99=8.0,
            staleness_nodes={},
            utilisation=[1.0],
            keys_in_flight=1.0,
        )
        for epoch in (1, 2, 3)
    ]
    values: dict[str, Any] = {
        "model": "rnn",
        "device": "cpu",
        "epochs": 3,
        "instances_per_s": 7000 / seconds,
        "target_reached": accuracy >= 0.97,
        "valid": {"accuracy": accuracy},
        "staleness": {"p50": 1.0 * keys, "p99": 8.0 * keys},
        "messages": {"forward": 500, "backward": 500, "lost": 0},
        "run_dir": f"runs/{label}",
        "history": history,
        "stopped_by": "target",
        "metric": "accuracy",
        "target": 0.97,
    }
    settings = {"train": {"max_active_keys": keys, "lr": 0.001}, "model": "rnn"}
    return ReportRun(
        label, RunSummary(**(values | changes)), settings, {"python": "3.11.7", "cpu": {"count": 2}}
    )


def plots(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "a.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (tmp_path / "b.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    return {"Who ran <when>": tmp_path / "a.svg", "Convergence": tmp_path / "b.png"}


def row(page: Page, label: str) -> dict[str, str]:
    """The comparison table's row of one run, by column name."""
    found = re.search(
        rf'<tr><th scope="row">{re.escape(label)}</th>(<td data-name.*?)</tr>', page.source, re.DOTALL
    )
    assert found is not None
    return dict(re.findall(r'data-name="([^"]*)"[^>]*><span>([^<]*)<', found.group(1)))


def test_one_run(tmp_path: Path) -> None:
    write_report(
        tmp_path / "r.html", "A <run>", [run("only", 16, 2.0, 0.98)], plots(tmp_path), ["5 < 6 & so on"]
    )
    page = Page(tmp_path / "r.html")
    assert "A <run>" in page.text
    assert "5 < 6 & so on" in page.text
    assert "Who ran <when>" in page.text
    assert "validation accuracy | 0.98 | target 0.97, reached" in page.text
    assert "throughput | 3,500/s | instances, on cpu" in page.text
    assert "staleness | 16 / 128 | versions, p50 / p99" in page.text
    assert "training loss | 0.5 | mean over epoch 3" in page.text
    assert "target met | 6.0 s | in epoch 3" in page.text
    assert "workers busy | 100% | in epoch 3; workers are always busy" in page.text
    assert "<table class" not in page.source, "one run is compared with nothing"
    assert "train.max_active_keys | 16" in page.text and "<details open" not in page.source
    assert "cpu.count | 2" in page.text


def test_a_table_of_ones_own_stands_before_the_plots_with_its_remarks(tmp_path: Path) -> None:
    table = ReportTable("what is <lost>", ("tensor", "share"), (("W & b", "1 %"), ("V", "0")), ("2 more.",))
    write_report(
        tmp_path / "r.html", "t", [run("only", 16, 2.0, 0.98)], plots(tmp_path), ["A note."], [table]
    )
    text = Page(tmp_path / "r.html").text
    assert "What is <lost> | tensor | share | W & b | 1 % | V | 0 | 2 more. | Who ran <when>" in text
    assert text.index("A note.") < text.index("What is <lost>")


def test_several_runs_are_compared(tmp_path: Path) -> None:
    runs = [run("k1", 1, 4.0, 0.98), run("k16", 16, 1.0, 0.975), run("k64", 64, 0.5, 0.9)]
    write_report(tmp_path / "r.html", "Compared", runs, {}, [])
    page = Page(tmp_path / "r.html")
    assert row(page, "k16") == {
        "max_active_keys": "16",
        "instances/s": "7,000",
        "epochs to target": "3",
        "time to target": "3.0 s",
        "staleness p50, p99": "16, 128",
        "workers busy": "100%",
        "training loss": "0.5",
        "validation accuracy": "0.975",
    }
    assert "k1: workers are always busy." in page.text and "k64: workers are always busy." in page.text
    assert row(page, "k64")["epochs to target"] == "not in 3"
    assert row(page, "k64")["time to target"] == "–"
    assert "highest throughput | 14,000/s | instances, k64" in page.text
    assert "first to target | 3.0 s | k16" in page.text
    assert "differs | k1 | k16 | k64 | train.max_active_keys | 1 | 16 | 64" in page.text
    assert "2 settings of all runs" in page.text


def test_the_page_needs_nothing_from_outside(tmp_path: Path) -> None:
    write_report(tmp_path / "r.html", "Alone", [run("only", 16, 2.0, 0.98)], plots(tmp_path), [])
    page = Page(tmp_path / "r.html")
    assert [address.partition(";")[0] for address in page.addresses] == [
        "data:image/svg+xml",
        "data:image/png",
    ]
    for word in ("<script", "@import", "url(", "http:", "https:"):
        assert word not in page.source
    assert "prefers-color-scheme: dark" in page.source
    assert 'name="viewport"' in page.source


def test_labels_and_settings_cannot_break_the_page(tmp_path: Path) -> None:
    evil = run("x", 1, 1.0, 0.98)
    evil.label, evil.settings = '"><script>alert(1)</script>', {"@BODY@": "</table><b>", "path": Path("x")}
    write_report(tmp_path / "r.html", "@BODY@ <b>", [evil, run("y", 1, 1.0, 0.98)], {}, ["@TITLE@"])
    assert "<script" not in Page(tmp_path / "r.html").source


def test_unknown_numbers_are_shown_as_unknown(tmp_path: Path) -> None:
    broken = run(
        "broken", 1, 1.0, math.nan, instances_per_s=math.inf, history=[], staleness={}, target_reached=False
    )
    broken.settings, broken.environment = {}, {}
    write_report(tmp_path / "r.html", "Broken", [broken, broken], {}, [])
    page = Page(tmp_path / "r.html")
    assert row(page, "broken")["instances/s"] == "–"
    assert "no config was given" in page.text
    assert "nan" not in page.text
    assert "inf" not in page.text


def test_what_cannot_be_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run to report on"):
        write_report(tmp_path / "r.html", "none", [], {}, [])
    with pytest.raises(ValueError, match=r"a plot is \.svg or \.png"):
        write_report(tmp_path / "r.html", "t", [run("a", 1, 1.0, 0.9)], {"x": tmp_path / "a.pdf"}, [])
    with pytest.raises(RunFolderError, match=r"cannot read plot .*a\.svg: No such file.*draw it again"):
        write_report(tmp_path / "r.html", "t", [run("a", 1, 1.0, 0.9)], {"x": tmp_path / "a.svg"}, [])
    assert not (tmp_path / "r.html").exists()


def test_a_run_is_read_from_its_folder(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "rnn-1", "rnn")
    with pytest.raises(RunFolderError, match=r"cannot read .*summary\.json"):
        ReportRun.from_folder(folder.path)
    original = run("rnn-1", 16, 2.0, 0.98)
    folder.write_json("summary.json", original.summary)
    folder.write_text("config.toml", 'model = "rnn"\n[train]\nmax_active_keys = 16\n')
    found = ReportRun.from_folder(folder.path)
    assert (found.label, found.summary) == ("rnn-1", original.summary)
    assert found.settings == {"model": "rnn", "train": {"max_active_keys": 16}}
    assert "python" in found.environment
    folder.write_text("config.toml", "model = ")
    with pytest.raises(RunFolderError, match="cannot report on"):
        ReportRun.from_folder(folder.path)
    folder.write_text("summary.json", json.dumps({"model": "rnn"}))
    with pytest.raises(RunFolderError, match="RunSummary lacks device"):
        ReportRun.from_folder(folder.path)


def test_without_a_target_there_is_no_verdict(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    for target in (None, 0.99):
        write_report(path, "t", [run("rnn", 4, 1.0, 0.5, target=target, target_reached=False)], {})
        tiles = path.read_text(encoding="utf-8").partition("<h2>")[0]
        assert ("not reached" in tiles) == (target is not None)


def test_the_command_is_shown_as_it_was_typed(tmp_path: Path) -> None:
    one = run("only", 16, 2.0, 0.98)
    one.environment["command"] = "amphw train rnn --set 'a=<b> c'"
    write_report(tmp_path / "r.html", "t", [one], {})
    page = Page(tmp_path / "r.html")
    assert "amphw train rnn --set 'a=<b> c' | " in page.text.partition("Resolved config")[0]


def test_several_runs_of_one_command_show_it_once(tmp_path: Path) -> None:
    runs = [run("a", 1, 2.0, 0.98), run("b", 16, 2.0, 0.98)]
    for each in runs:
        each.environment["command"] = "amphw demo"
    write_report(tmp_path / "r.html", "t", runs, {})
    assert Page(tmp_path / "r.html").text.partition("Resolved config")[0].count("amphw demo") == 1


def test_what_was_chosen_stands_before_what_is_recommended(tmp_path: Path) -> None:
    one = run("only", 16, 2.0, 0.98)
    one.changed = ["train.lr"]
    write_report(tmp_path / "r.html", "t", [one], {})
    assert "not as recommended | train.lr | 0.001 | 2 other settings | " in Page(tmp_path / "r.html").text


def test_figures_are_of_what_the_model_counts(tmp_path: Path) -> None:
    runs = [run("a", 1, 2.0, 0.98, counted="words"), run("b", 16, 1.0, 0.98, counted="words")]
    write_report(tmp_path / "one.html", "t", runs[:1], {})
    assert "throughput | 3,500/s | words, on cpu" in Page(tmp_path / "one.html").text
    write_report(tmp_path / "two.html", "t", runs, {})
    two = Page(tmp_path / "two.html")
    assert row(two, "b")["words/s"] == "7,000" and "7,000/s | words, b" in two.text


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ([1.0, 0.8], "90% | in epoch 3; workers are always busy"),
        ([0.9, 0.8], "85% | in epoch 3; with 3.26 instances in flight, workers wait for one another"),
        ([math.nan], None),
    ],
)
def test_what_limits(tmp_path: Path, shares: list[float], says: str | None) -> None:
    one = run("only", 16, 2.0, 0.98)
    one.summary.history[-1] = replace(one.summary.history[-1], utilisation=shares, keys_in_flight=3.257)
    write_report(tmp_path / "r.html", "t", [one], {})
    text = Page(tmp_path / "r.html").text
    assert f"workers busy | {says}" in text if says else "workers busy" not in text


def test_a_plot_for_narrow_screens_is_shown_there(tmp_path: Path) -> None:
    drawn = plots(tmp_path)
    (tmp_path / "a-narrow.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' id='n'/>")
    write_report(tmp_path / "r.html", "t", [run("only", 16, 2.0, 0.98)], drawn)
    source = Page(tmp_path / "r.html").source
    assert source.count('<source media="(max-width: 720px)" srcset="data:image/svg+xml;base64,') == 1
